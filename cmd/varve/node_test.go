package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A server keeps its name, and has one where it cannot be kept.
func TestNodeID(t *testing.T) {
	path := filepath.Join(t.TempDir(), nodeFile)
	first, err := nodeID(path)
	if err != nil || first == "" {
		t.Fatal(first, err)
	}
	if again, err := nodeID(path); again != first || err != nil {
		t.Errorf("%q and then %q, %v", first, again, err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil { // a crash while it was written
		t.Fatal(err)
	}
	second, err := nodeID(path)
	if err != nil || second == "" || second == first {
		t.Errorf("%q and then %q, %v", first, second, err)
	}
	if id, err := nodeID(filepath.Join(path, "below")); id == "" || err == nil {
		t.Errorf("%q, %v", id, err)
	}
}

// Two servers with the same host name and the same path, as two containers have
// them, have different names, also where their names cannot be kept. So have the
// tools that run beside them.
func TestServerNodesDiffer(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	a, b := t.TempDir(), t.TempDir()
	names := map[string]bool{}
	for _, name := range []string{serverNode(a, log), toolNode(a), serverNode(b, log), toolNode(b), toolNode(t.TempDir())} {
		if names[name] || name == "" {
			t.Errorf("%q is the name of two", name)
		}
		names[name] = true
	}
	for _, again := range []string{serverNode(a, log), toolNode(a)} {
		if !names[again] {
			t.Error("a name changes")
		}
	}
	none := filepath.Join(a, nodeFile) // a file is in the way
	if first, second := serverNode(none, log), serverNode(none, log); first == second {
		t.Error("two servers that cannot keep their names have the same")
	}
}
