package kairos_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"varve/internal/kairos/agg"
)

// settingKey matches what looks like a configuration key of a limit.
var settingKey = regexp.MustCompile(`^((cassandra|embedded|ingest|kairos|query|rollups|telnet|transfer)(\.[a-z_]+)+|graphite\.max_[a-z_]+|timeline\.[a-z_]+_max)$`)

// unsettable are limits without a setting.
var unsettable = []string{
	"bytes of a batch", "bytes of a series", "series ids of a store", "metadata keys", "bytes of metadata", "bytes of a metadata name", "bytes of a metadata value", "backups",
	"bytes of a roll-up task", "bytes of a line of an import", "lines of an import that are blank or refused",
	"waiting requests", "waiting queries", "waiting deletes", "writes that wait", "bytes of a query", "roll-up tasks",
	"bytes of a metric name", "bytes of a tag name", "bytes of a string value", "bytes of a body", "bytes of an unpacked body", "bytes of an event", "events of a list", "events of a day",
	"levels of the data of an event", "timelines of an event", "bytes of a change of a timeline", "bytes of a line of events", "wrong events of a request", "bytes without an event of a packed body", "timelines of a merged read",
	"events that are looked through for an id", "layouts of a timeline", "events of a page", "timelines of a request", "timelines of a page",
	"deletes of a timeline in a day", "events of a request, counted once for each of their timelines", "bytes of the events of a request, counted once for each of their timelines",
}

// speakOfKeys are packages that mention keys without being limited by them.
var speakOfKeys = []string{"admin", "config", "kairosconf", "keyspacetest", "originals"}

// Each limit that an error can name is a setting, and both pages list it.
func TestLimitsAreDocumented(t *testing.T) {
	settings, page := readDoc(t, "configuration.md"), readDoc(t, "errors.md")
	keys := limitKeys(t)
	for _, known := range []string{"query.max_samples", "ingest.max_tags", "query.max_memory"} {
		if keys[known] == "" {
			t.Errorf("%s was not found in the code", known)
		}
	}
	for key, where := range keys {
		if !strings.Contains(page, "| `"+key+"` |") {
			t.Errorf("%s: docs/errors.md has no row for %s", where, key)
		}
		if !strings.Contains(settings, "| `"+key+"` |") {
			t.Errorf("%s: %s is no setting", where, key)
		}
	}
	for _, limit := range unsettable {
		if !strings.Contains(page, "| `"+limit+"` |") {
			t.Errorf("docs/errors.md has no row for %s", limit)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\|").FindAllStringSubmatch(page, -1) {
		if keys[row[1]] == "" && !slices.Contains(unsettable, row[1]) {
			t.Errorf("docs/errors.md explains %s, which no error names", row[1])
		}
	}
}

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

// limitKeys finds the keys in the code, each with a place. A LimitError whose
// limit is neither a key nor one of unsettable is an error.
func limitKeys(t *testing.T) map[string]string {
	keys := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains(speakOfKeys, entry.Name()) {
			return fs.SkipDir
		}
		ranges := entry.Name() == "config.go" // says which values a setting can have
		if err != nil || entry.IsDir() || ranges || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if key := keyIn(n, path); key != "" {
				keys[key] = files.Position(n.Pos()).String()
			}
			if member, ok := n.(*ast.KeyValueExpr); ok && isNamed(member.Key, "Section") {
				return false // not the key of a setting
			}
			if member, ok := n.(*ast.KeyValueExpr); ok && isNamed(member.Key, "Limit") {
				if text, ok := literal(member.Value); ok && !settingKey.MatchString(text) && !slices.Contains(unsettable, text) {
					t.Errorf("%s: limit %q is no configuration key", files.Position(n.Pos()), text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// sections are where the settings of packages stand that know only the last part of
// their keys.
var sections = map[string]string{"embedded": "embedded.", "spool": "cassandra.spool."}

// keyIn returns the key that a node names: all of it, or its last part in a call of
// store.Section.Key.
func keyIn(n ast.Node, path string) string {
	if text, ok := literal(n); ok && settingKey.MatchString(text) {
		return text
	}
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return ""
	}
	section := sections[filepath.Base(filepath.Dir(path))]
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "Key" || section == "" {
		return ""
	}
	if text, ok := literal(call.Args[0]); ok {
		return section + text
	}
	return ""
}

func literal(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func isNamed(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
