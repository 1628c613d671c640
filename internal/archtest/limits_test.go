package archtest

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
)

// settingKey matches what looks like a configuration key of a limit.
var settingKey = regexp.MustCompile(`^((cassandra|embedded|ingest|kairos|query|rollups|telnet|transfer)(\.[a-z_]+)+|graphite\.max_[a-z_]+|timeline\.[a-z_]+_max)$`)

// speakOfKeys are packages that mention keys without being limited by them.
var speakOfKeys = []string{"admin", "config", "kairosconf", "keyspacetest", "originals"}

// limitRow is a row of a table of limits: a key, or what is counted, in words.
var limitRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// Each limit that an error can name has a row on docs/errors.md, each row is a limit of the code,
// and each limit with a key is a setting.
func TestLimitsAreDocumented(t *testing.T) {
	settings, page := readPage(t, "configuration.md"), readPage(t, "errors.md")
	_, page, _ = strings.Cut(page, "\n## Limits\n")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := map[string]bool{}
	for _, row := range limitRow.FindAllStringSubmatch(page, -1) {
		rows[row[1]] = true
	}
	keys, words, texts := limitsIn(t)
	for _, known := range []string{"query.max_samples", "ingest.max_tags", "query.max_memory"} {
		if keys[known] == "" {
			t.Errorf("%s was not found in the code", known)
		}
	}
	for key, where := range keys {
		if !rows[key] {
			t.Errorf("%s: the limits on docs/errors.md have no row for %s", where, key)
		}
		if !strings.Contains(settings, "| `"+key+"` |") {
			t.Errorf("%s: %s is no setting", where, key)
		}
	}
	for limit, where := range words {
		if !rows[limit] {
			t.Errorf("%s: the limit %q is no key of a setting, and the limits on docs/errors.md have no row for it", where, limit)
		}
	}
	for row := range rows {
		if keys[row] == "" && !texts[row] {
			t.Errorf("docs/errors.md explains the limit %q, which no error names", row)
		}
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// limitsIn finds the keys in the code, each with a place, the limits in words of each LimitError
// too, and all other texts.
func limitsIn(t *testing.T) (keys, words map[string]string, texts map[string]bool) {
	keys, words, texts = map[string]string{}, map[string]string{}, map[string]bool{}
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
			if text, ok := literal(n); ok {
				texts[text] = true
			}
			if key := keyIn(n, path); key != "" {
				keys[key] = files.Position(n.Pos()).String()
			}
			if member, ok := n.(*ast.KeyValueExpr); ok && isNamed(member.Key, "Section") {
				return false // not the key of a setting
			}
			if member, ok := n.(*ast.KeyValueExpr); ok && isNamed(member.Key, "Limit") {
				if text, ok := literal(member.Value); ok && !settingKey.MatchString(text) {
					words[text] = files.Position(n.Pos()).String()
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys, words, texts
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
