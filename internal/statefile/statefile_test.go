package statefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type state struct{ N int }

func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.state")
	var s state
	if found, err := Read(path, &s); found || err != nil {
		t.Error(found, err)
	}
	for n := range 2 {
		if err := Write(path, state{n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := Read(path, &s); !found || err != nil || s.N != 2 {
		t.Error(found, err, s)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "2", "3", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := Read(path, &s); found || err == nil || !strings.Contains(err.Error(), "damaged") || s.N != 2 {
		t.Error("a damaged state:", found, err, s)
	}
	if err := os.WriteFile(path, []byte(`{"N":7}`), 0o644); err != nil { // of an earlier build
		t.Fatal(err)
	}
	if found, err := Read(path, &s); !found || err != nil || s.N != 7 {
		t.Error(found, err, s)
	}
	if err := os.WriteFile(path, []byte("none"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, err := Read(path, &s); found || err == nil || !strings.Contains(err.Error(), "remove it to begin again") {
		t.Error(found, err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
}

// What cannot be read or written is an error, and never taken for a command that has not begun.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "something"), 0o755); err != nil {
		t.Fatal(err)
	}
	var s state
	if found, err := Read(dir, &s); found || err == nil || strings.Contains(err.Error(), "remove it") {
		t.Error("a directory is read as a state:", found, err)
	}
	if err := Write(filepath.Join(dir, "nosuch", "state"), s); err == nil {
		t.Error("a state is written nowhere")
	}
	if err := Write(full, s); err == nil {
		t.Error("a state takes the place of a directory")
	}
	if err := Write(filepath.Join(dir, "state"), func() {}); err == nil {
		t.Error("a function is written as a state")
	}
	if err := Remove(full); err == nil {
		t.Error("what cannot be removed is removed")
	}
	r := Report{Path: full}
	if err := r.Add("x"); err == nil || r.At != 0 {
		t.Error("a directory takes a report:", err, r.At)
	}
	if err := r.Close(); err != nil {
		t.Error("a report that was never opened:", err)
	}
	for _, at := range []int64{-1, 0} {
		r = Report{Path: filepath.Join(dir, "report"), At: at}
		if err := r.Add("x"); (err != nil) != (at < 0) || err != nil && r.At != at {
			t.Errorf("a report that goes on at byte %d: %v, now at %d", at, err, r.At)
		}
	}
	if info, err := os.Stat(r.Path); err != nil || info.Mode().Perm()&0o600 != 0o600 {
		t.Errorf("the user cannot read the report: %v, %v", info, err)
	}
	if err := r.f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Add("y"); err == nil || r.At != 1 {
		t.Error("a closed file takes a report:", err, r.At)
	}
	if err := r.Close(); err == nil {
		t.Error("the error of a file that cannot be closed is lost")
	}
	if text, err := os.ReadFile(r.Path); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}

// What was reported after the last state is reported again, over what there is.
func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.rejected")
	r := Report{Path: path}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	add := func(r *Report, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if err := r.Add(text); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add(&r, "one\n", "lost\n")
	again := Report{Path: path, At: 4}
	add(&again, "two\n")
	if got, err := os.ReadFile(path); string(got) != "one\ntwo\n" || again.At != 8 || err != nil {
		t.Errorf("%q, at %d, %v", got, again.At, err)
	}
}
