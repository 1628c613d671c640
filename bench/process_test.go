package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestParseStat(t *testing.T) {
	// User and system time are 1,234 and 66 ticks, and 30 and 10 of children.
	const rest = " S 1 2 3 0 -1 4194560 100 0 0 0 1234 66 30 10 20 0 8 0 5000 1000000 200 18446744073709551615"
	for _, name := range []string{"(varve)", "(a b)", "(x) y)"} {
		own, ended, parent, err := parseStat("77 " + name + rest)
		if err != nil || own != 13 || ended != 0.4 || parent != "1" {
			t.Errorf("%s: %v s, ended children %v s, parent %s, %v, want 13, 0.4 and 1", name, own, ended, parent, err)
		}
	}
	for _, text := range []string{"", "77 (varve) S 1 2", "77 (varve) S 1 2 3 0 -1 4194560 100 0 0 0 x 66 9 9", "77 (a) S 1 2 3 0 -1 4194560 100 0 0 0 1200 60 x 10 20"} {
		if got, _, _, err := parseStat(text); err == nil {
			t.Errorf("%q: %v and no error", text, got)
		}
	}
}

// TestFamilySeconds: a server that has ended is an error, not one that costs nothing.
func TestFamilySeconds(t *testing.T) {
	p, err := startProcess(t.Context(), "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if seconds, err := p.familySeconds(); err != nil || seconds < 0 {
		t.Errorf("%v s, %v", seconds, err)
	}
	p.kill()
	if seconds, err := p.familySeconds(); err == nil {
		t.Errorf("after its end: %v s and no error", seconds)
	}
}

func TestParseSchedstat(t *testing.T) {
	if got, err := parseSchedstat("123456789 42 7\n"); err != nil || got != 123456789 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"", "x 1 2\n"} {
		if got, err := parseSchedstat(text); err == nil {
			t.Errorf("%q: %d and no error", text, got)
		}
	}
}

func TestParsePeak(t *testing.T) {
	got, err := parsePeak("Name:\tvarve\nVmPeak:\t  999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n")
	if err != nil || got != 2<<20 {
		t.Errorf("%d, %v, want 2 MiB", got, err)
	}
	for _, text := range []string{"", "VmHWM:\t2048 MB\n", "VmHWM:\tx kB\n"} {
		if got, err := parsePeak(text); err == nil {
			t.Errorf("%q: %d and no error", text, got)
		}
	}
}

func TestDiskBytes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := diskBytes(dir)
	if err != nil || got < 2<<20 || got > 3<<20 {
		t.Errorf("%d bytes, %v, want 2 MiB", got, err)
	}
	if got, err := diskBytes(filepath.Join(dir, "none")); err != nil || got != 0 {
		t.Errorf("no directory: %d bytes, %v", got, err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var out tail
	for range 3 * tailBytes / 10 {
		out.Write([]byte("0123456789"))
	}
	out.Write([]byte("the end"))
	if got := out.String(); len(got) != tailBytes || got[len(got)-7:] != "the end" {
		t.Errorf("%d bytes, end %q", len(got), got[max(len(got)-20, 0):])
	}
}
