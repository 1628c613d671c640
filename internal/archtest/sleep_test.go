package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sleepsAllowed are tests, by file and function, whose subject is time that
// passes: a pace, a power cut at some moment, a clock of another process. All
// others wait for an event: a loop that polls until a deadline, a channel, or
// the clock of testing/synctest.
var sleepsAllowed = map[string]string{
	"cmd/varve/canceldelete_test.go TestLongWorkOverCassandra":                   "a cancelled job must not go on: nothing happens, which takes time to see",
	"e2e/beside/beside_test.go deletes":                                          "KairosDB's clock and caches, which tell nobody",
	"e2e/clients/scripts_test.go TestStatsd":                                     "pauses between packets inside a poll",
	"e2e/cluster/several_test.go several":                                        "the load lasts this long",
	"e2e/crowd_test.go TestStopInTheCrowd":                                       "the load lasts this long before the stop",
	"e2e/kill_test.go once":                                                      "kills at a random moment of a start",
	"e2e/kill_test.go end":                                                       "kills at a random moment of what has begun",
	"e2e/overload_test.go write":                                                 "the pace of a slow disk",
	"e2e/overload_test.go sync":                                                  "the pace of a slow disk",
	"internal/cassandra/cql/cluster_test.go look":                                "the measured load lasts this long",
	"internal/cassandra/cql/hedge_ring_test.go Read":                             "the network that it stands for is so slow",
	"internal/cassandra/cql/wire_test.go startWire":                              "runs in the bubbles of the tests that call it",
	"internal/cassandra/kairosrows/remove/turns_test.go TestUnindexingRests":     "the time that a statement takes, which the rest follows",
	"internal/cassandra/kairosrows/write/rule_test.go TestLivesWithoutOwnTables": "Cassandra expires rows by its own clock",
	"internal/cassandra/kairosrows/rule_test.go TestRowKeyBesideWholeDelete":     "the write timestamp of the delete must be above those before",
	"internal/cassandra/kairosrows/model_test.go newRowModel":                    "the pace of a slow cluster",
	"internal/ingest/telnet/server_test.go TestShutdownStoresWhatWasReceived":    "the pace of a slow store",
	"internal/kairos/admin_test.go unread":                                       "pauses of a poll: nothing more is sent",
	"internal/spool/crash_test.go runAndCut":                                     "cuts power at a random moment",
	"internal/embedded/crash_test.go runAndCut":                                  "cuts power at a random moment",
}

// TestNoBareSleeps finds sleeps in tests that stand for an event: too short on a
// busy machine, too long on an idle one. A sleep inside a loop is a poll's or a
// pacer's; in a bubble of synctest it costs nothing and is exact.
func TestNoBareSleeps(t *testing.T) {
	root := filepath.Join("..", "..")
	met := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		bare, err := bareSleeps(path, nil)
		for _, s := range bare {
			key := filepath.ToSlash(rel) + " " + s.function
			if met[key] = true; sleepsAllowed[key] == "" {
				t.Errorf("%s:%d: %s sleeps; wait for the event, or list %q with its reason", rel, s.line, s.function, key)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range sleepsAllowed {
		if !met[key] {
			t.Errorf("%q does not sleep any more; take it off the list", key)
		}
	}
}

type sleep struct {
	function string
	line     int
}

// bareSleeps returns the sleeps of a file that are in no loop and no bubble.
// source is the file's text, nil to read it.
func bareSleeps(path string, source any) ([]sleep, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
		return nil, nil
	}
	var bare []sleep
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				return false
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" && fmt.Sprint(s.X) == "time" {
					bare = append(bare, sleep{fn.Name.Name, fset.Position(n.Pos()).Line})
				}
			}
			return true
		})
	}
	return bare, nil
}

func TestBareSleepsAreFound(t *testing.T) {
	const head = "package a\n\nimport \"time\"\n\n"
	for body, want := range map[string]int{
		"func a() { time.Sleep(1) }":                                1,
		"func a() { go func() { time.Sleep(1) }() }":                1,
		"func a() { for !done() { time.Sleep(1) } }":                0,
		"func a() { for ; !done(); time.Sleep(1) {\n} }":            0,
		"func a() { for range 3 { time.Sleep(1) }; time.Sleep(1) }": 1,
		"func a() { clock.Sleep(1) }":                               0,
		"import \"testing/synctest\"\n\nfunc a() { time.Sleep(1) }": 0,
	} {
		bare, err := bareSleeps("a_test.go", head+body)
		if err != nil || len(bare) != want {
			t.Errorf("%s: %d sleeps, %v; want %d", body, len(bare), err, want)
		}
	}
}
