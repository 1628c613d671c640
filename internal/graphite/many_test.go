package graphite

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"varve/internal/query"
)

// Lists of more names than are read at once have each of them once.
func TestNamesOfSeveralPages(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	const names = 2*namesPage + 5
	var lines strings.Builder
	for i := range names {
		fmt.Fprintf(&lines, "a.m%05d 1 1710071000\n", i)
	}
	s.send(lines.String())
	var paths []string
	if err := json.Unmarshal(s.ask("GET", "/metrics/index.json", nil).Body.Bytes(), &paths); err != nil {
		t.Fatal(err)
	}
	if len(paths) != names {
		t.Fatalf("%d paths of %d", len(paths), names)
	}
	for i, path := range paths {
		if want := fmt.Sprintf("a.m%05d", i); path != want {
			t.Fatalf("path %d is %s, want %s", i, path, want)
		}
	}
}
