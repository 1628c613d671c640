package main

import (
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
