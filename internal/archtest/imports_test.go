package archtest

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the imports in docs/architecture.md")

// row matches the row of a package in docs/architecture.md: its name, what it is, and
// the packages that it imports.
var row = regexp.MustCompile("^\\| `([a-z0-9/]+)` \\| ([^|]*) \\|([^|]*)\\|$")

// name is how docs/architecture.md calls a package.
func name(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, "varve/"), "internal/")
}

// TestImports compares the packages of docs/architecture.md with the code: each has a
// row, imports what the row says and nothing else, and stands below what it imports.
func TestImports(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "architecture.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	code := map[string][]string{}
	for _, p := range list(t) {
		own := []string{}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "varve/") {
				own = append(own, name(imported))
			}
		}
		code[name(p.ImportPath)] = own
	}
	above := map[string]bool{}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		m := row.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		imports, exists := code[m[1]]
		if !exists || above[m[1]] {
			t.Errorf("%s:%d: %s is no package, or has two rows", page, i+1, m[1])
			continue
		}
		for _, imported := range imports {
			if !above[imported] {
				t.Errorf("%s:%d: %s imports %s, which does not stand above it", page, i+1, m[1], imported)
			}
		}
		above[m[1]] = true
		allowed := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		switch {
		case *update:
			lines[i] = "| `" + m[1] + "` | " + m[2] + " | " + strings.Join(imports, ", ") + " |"
		case !slices.Equal(allowed, imports):
			t.Errorf("%s:%d: %s imports\n%s\nand may import\n%s\nIf that is meant, -update changes the row", page, i+1, m[1], strings.Join(imports, ", "), m[3])
		}
	}
	for p := range code {
		if !above[p] {
			t.Errorf("%s has no row in %s: add | `%[1]s` | what it is | | below the rows of the packages that it imports, and run with -update", p, page)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
