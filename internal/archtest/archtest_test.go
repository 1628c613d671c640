package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A ban keeps packages from importing something. Packages end in a slash when
// everything below is meant too.
type ban struct {
	packages []string
	imports  []string
	except   []string
	why      string
}

var bans = []ban{
	{
		packages: []string{"internal/units", "internal/model", "internal/rowtime", "internal/store", "internal/record",
			"internal/chunk", "internal/wal", "internal/blockfile", "internal/index", "internal/head", "internal/registry", "internal/writelog", "internal/embedded", "internal/spool", "internal/query", "internal/kairos/agg"},
		imports: []string{"net/http", "net", "varve/internal/httpapi"},
		why:     "stores and queries know nothing of the network",
	},
	{
		packages: []string{"internal/units", "internal/model", "internal/rowtime", "internal/store", "internal/diskspace", "internal/record", "internal/chunk", "internal/index", "internal/head", "internal/registry"},
		imports:  []string{"os", "github.com/cockroachdb/pebble/v2/vfs"},
		why:      "these do no I/O",
	},
	{
		packages: []string{"internal/wal", "internal/blockfile", "internal/writelog", "internal/embedded", "internal/spool"},
		imports:  []string{"os"},
		why:      "files are reached through vfs, so that crash tests can run in memory",
	},
	{
		packages: []string{"internal/", "cmd/", "tools/"},
		imports:  []string{"log", "C", "gopkg.in/yaml.v3", "github.com/prometheus/client_golang/prometheus/promauto"},
		why:      "use log/slog, pure Go, go.yaml.in/yaml/v3 and a registry that is passed in",
	},
	{
		packages: []string{"internal/", "cmd/", "tools/"},
		imports:  []string{"github.com/apache/cassandra-gocql-driver/v2"},
		except:   []string{"internal/cassandra/cql", "internal/originals"},
		why:      "Cassandra is reached through package cql",
	},
	{
		packages: []string{"internal/", "cmd/", "tools/"},
		imports:  []string{"testing"},
		except: []string{"internal/store/storetest", "internal/timeline/timelinetest", "internal/ingest/ingesttest", "internal/graphite/graphitetest", "internal/originals", "e2e/",
			"internal/units/unitstest", "internal/server/tlstest", "internal/cassandra/cql/cqltest", "internal/cassandra/kairosrows/kairosrowstest", "internal/cassandra/kairosrows/keyspacetest"},
		why: "only test suites are linked with package testing",
	},
}

// pkg is what go list says of a package.
type pkg struct {
	Dir, ImportPath  string
	Imports, GoFiles []string
}

// path is the package's place in the module.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, "varve/") }

// list returns the packages of the module. Test files are not looked at: a
// test may import from anywhere.
func list(t *testing.T) []pkg {
	t.Helper()
	command := exec.Command("go", "list", "-e", "-json=Dir,ImportPath,Imports,GoFiles", "./...")
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var packages []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func TestBans(t *testing.T) {
	for _, p := range list(t) {
		for _, b := range bans {
			if !covers(b.packages, p.path()) || covers(b.except, p.path()) {
				continue
			}
			for _, imported := range p.Imports {
				if slices.Contains(b.imports, imported) {
					t.Errorf("%s imports %s: %s", p.path(), imported, b.why)
				}
			}
		}
	}
}

func covers(packages []string, path string) bool {
	return slices.ContainsFunc(packages, func(p string) bool {
		return p == path || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}

func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		var commented []string
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if file.Doc == nil {
				continue
			}
			commented = append(commented, name)
			checkStart(t, p.path()+"/"+name, file)
		}
		if len(commented) != 1 && len(p.GoFiles) > 0 {
			t.Errorf("%s: %d package comments %v, want 1", p.path(), len(commented), commented)
		}
	}
}

// packageLines is the most lines that a package of the product may have, without tests.
const packageLines = 5000

// A package that grows beyond a size has a part that could be a package of its own.
func TestPackageSizes(t *testing.T) {
	for _, p := range list(t) {
		if !covers([]string{"internal/", "cmd/"}, p.path()) {
			continue
		}
		lines := 0
		for _, name := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(text, []byte("\n"))
		}
		if lines > packageLines {
			t.Errorf("%s has %d lines without tests, at most %d are allowed: move a part of it to a package below it", p.path(), lines, packageLines)
		}
	}
}

// checkStart wants a first sentence that names what it is about: a package
// "Package name", a command "Command name" or "Name".
func checkStart(t *testing.T, where string, file *ast.File) {
	t.Helper()
	words := strings.Fields(file.Doc.Text())
	command := file.Name.Name == "main"
	switch {
	case len(words) < 3:
	case !command && words[0] == "Package" && words[1] == file.Name.Name:
		return
	case command && (words[0] == "Command" || strings.EqualFold(words[0], filepath.Base(filepath.Dir(where)))):
		return
	}
	t.Errorf("%s: package comment begins %.40q, want the name of the package or command", where, file.Doc.Text())
}
