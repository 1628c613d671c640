package schema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentedTables: the statements in the page about the format are those
// that are executed.
func TestDocumentedTables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "formats", "kairosdb-cassandra.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if text := strings.Replace(d.Create("").Text, "IF NOT EXISTS ", "", 1) + ";\n"; !strings.Contains(string(page), text) {
			t.Errorf("docs/formats/kairosdb-cassandra.md lacks: %s", text)
		}
	}
	if id := WroteHere.String(); !strings.Contains(string(page), id) {
		t.Errorf("docs/formats/kairosdb-cassandra.md lacks %s", id)
	}
}
