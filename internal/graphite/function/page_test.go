package function

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/graphite-functions.md")

// TestFunctionPage holds the table of functions in the documentation to the
// registry.
func TestFunctionPage(t *testing.T) {
	page := filepath.Join("..", "..", "..", "docs", "graphite-functions.md")
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "<!-- functions: written by go test ./internal/graphite/function -run TestFunctionPage -update -->\n"
	head, _, ok := strings.Cut(string(old), begin)
	if !ok {
		t.Fatalf("%s has no place for the table", page)
	}
	want := head + begin + functionTable()
	if want == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the functions say; -update writes it", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func functionTable() string {
	groups := map[string][]*Function{}
	var order []string
	for _, f := range All() {
		if groups[f.Group] == nil {
			order = append(order, f.Group)
		}
		groups[f.Group] = append(groups[f.Group], f)
	}
	slices.Sort(order)
	var out strings.Builder
	for _, group := range order {
		fmt.Fprintf(&out, "\n### %s\n\n| function | what it does |\n|---|---|\n", group)
		for _, f := range groups[group] {
			fmt.Fprintf(&out, "| `%s` | %s |\n", f.Signature(), strings.ReplaceAll(f.Description, "|", `\|`))
		}
	}
	return out.String()
}
