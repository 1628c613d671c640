package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// quoted is a text in a cell of a table of docs/errors.md.
	quoted = regexp.MustCompile("`([^`]+)`")

	// variable is what stands in such a text for something else, or separates what the
	// code puts together: capitals, numbers, dots and punctuation.
	variable = regexp.MustCompile(`\.\.\.|\b[A-Z]+\b|\b[ijk]\b|\d+|["'(){}\[\]:;,=]`)

	// joined is where the code continues a text on another line, or with a value.
	joined = regexp.MustCompile(`"\s*\+\s*"`)
)

// assembled are texts of the page that the code puts together from parts, or that other
// programs word.
var assembled = []string{
	"End of input at line", "Resource not found", "Status not found", "limit bytes of", "varve export -",
	"invalid aggregators name", "invalid group_by name",
	"The rate aggregator cannot compute rate for data points with the same time stamp.  You must precede rate with another aggregator.",
	"the store stops writing", "the store tries to write", "256KiB a second", "Cassandra does not accept samples",
	"/admin/check is for", "named by flag --config", "address already in use",
}

// Each error text on docs/errors.md is in the code: every three words of it that follow each
// other. Somebody who got an error searches the page for its text.
func TestErrorTexts(t *testing.T) {
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	code := sources(t)
	texts := 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cell, _, _ := strings.Cut(strings.ReplaceAll(line[2:], `\|`, "/"), "|")
		for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
			text := match[1]
			texts++
			rest := text
			for _, a := range assembled {
				rest = strings.ReplaceAll(rest, a, "...")
			}
			for _, part := range variable.Split(rest, -1) {
				words := strings.Fields(part)
				for i := range max(0, len(words)-2) {
					if three := strings.Join(words[i:i+3], " "); !strings.Contains(code, three) {
						t.Errorf("%q of %q is in no source", three, text)
					}
				}
			}
		}
	}
	if texts < 150 {
		t.Errorf("only %d texts", texts)
	}
}

// sources returns the text of all Go files that are not tests, with texts in one piece.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, root := range []string{"../../internal", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(joined.ReplaceAllString(b.String(), ""), `\"`, `"`)
}

// healthCheck is the name of a check where it is made; more of the name may follow.
var healthCheck = regexp.MustCompile(`Name: "((?:Datastore|JVM|Tenants)[^"]*)"|append\(lines, "(Server-[A-Za-z]+): `)

// Each line that the health status may have is explained on docs/operations.md.
func TestHealthChecksAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := healthCheck.FindAllStringSubmatch(sources(t), -1)
	if len(found) < 10 {
		t.Errorf("only %d checks: %q", len(found), found)
	}
	for _, match := range found {
		if name := match[1] + match[2]; !strings.Contains(string(page), "`"+name) {
			t.Errorf("%s is not explained", name)
		}
	}
}
