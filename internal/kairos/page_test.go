package kairos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"varve/internal/kairos/agg"
)

// docs/api.md names every aggregator and group-by.
func TestPageNamesAggregators(t *testing.T) {
	page := readDoc(t, "api.md")
	for _, s := range agg.Aggregators() {
		if !strings.Contains(page, "`"+s.Name+"`") {
			t.Errorf("docs/api.md has no row for the aggregator %s", s.Name)
		}
	}
	for _, s := range agg.GroupBys() {
		if !strings.Contains(page, `| `+"`"+`{"name": "`+s.Name+`"`) {
			t.Errorf("docs/api.md has no row for the group-by %s", s.Name)
		}
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
