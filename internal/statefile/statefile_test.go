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
	if err := os.WriteFile(path, []byte("none"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, &s); err == nil || !strings.Contains(err.Error(), "remove it to begin again") {
		t.Error(err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
		t.Error(left, err)
	}
	if err := Write(filepath.Join(path, "nosuch"), s); err == nil {
		t.Error("a state is written nowhere")
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
