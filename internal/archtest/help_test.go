package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	metricName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	identifiers = regexp.MustCompile(`^[a-z0-9]+[_.][a-z0-9_.]+`) // such as page_cache_bytes
)

// TestMetricHelp holds the help texts of all metrics to one style: a sentence
// that begins with a capital, or with the name of a setting, and ends with a full
// stop.
func TestMetricHelp(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if !importsPrometheus(file) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit := helpOf(n); lit != nil {
					seen++
					text, _ := strconv.Unquote(lit.Value)
					if fault := faultOfHelp(text); fault != "" {
						t.Errorf("%s: the help %q %s", fset.Position(lit.Pos()), text, fault)
					}
				}
				return true
			})
		}
	}
	if seen < 100 {
		t.Errorf("only %d help texts found: helpOf misses some", seen)
	}
}

func importsPrometheus(file *ast.File) bool {
	for _, i := range file.Imports {
		if i.Path.Value == `"github.com/prometheus/client_golang/prometheus"` || i.Path.Value == `"varve/internal/collectors"` {
			return true
		}
	}
	return false
}

// helpOf returns the help text in a node: the member Help of options, or what
// follows the name of a metric in a call, be it NewDesc or a helper of a package.
func helpOf(n ast.Node) *ast.BasicLit {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Help" {
			return text(n.Value)
		}
	case *ast.CallExpr:
		for i := 0; i+1 < len(n.Args); i++ {
			name, help := text(n.Args[i]), text(n.Args[i+1])
			if name == nil || help == nil {
				continue
			}
			s, _ := strconv.Unquote(name.Value)
			if h, _ := strconv.Unquote(help.Value); metricName.MatchString(s) && strings.Contains(h, " ") {
				return help
			}
		}
	}
	return nil
}

func text(e ast.Expr) *ast.BasicLit {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	return lit
}

func faultOfHelp(help string) string {
	switch first := []rune(help + " ")[0]; {
	case !unicode.IsUpper(first) && !unicode.IsDigit(first) && !identifiers.MatchString(help):
		return "must begin with a capital"
	case !strings.HasSuffix(help, "."):
		return "must end with a full stop"
	}
	return ""
}
