package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is a package whose code is mutated, with its types.
type pkg struct {
	path, dir string
	fset      *token.FileSet
	files     []*file
	info      *types.Info
	importer  types.Importer
	logOnly   map[types.Object]bool // functions that only log, count or measure
}

// A file is one source file of a package.
type file struct {
	pkg    *pkg
	path   string // absolute
	short  string // path relative to the working directory, if below it
	source []byte
	tree   *ast.File
}

// load lists, parses and type-checks the packages that match patterns. Dependencies
// are read from the compiler's export data, and so are the imports of switchCode.
func load(ctx context.Context, dir string, patterns []string) ([]*pkg, error) {
	args := append([]string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Standard", "os", "strconv", "sync/atomic"}, patterns...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr = dir, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	exports := map[string]string{}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	var packages []*pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var listed struct {
			ImportPath, Dir, Export string
			GoFiles                 []string
			DepOnly, Standard       bool
		}
		err := d.Decode(&listed)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[listed.ImportPath] = listed.Export
		if listed.DepOnly || listed.Standard || len(listed.GoFiles) == 0 {
			continue
		}
		p := &pkg{path: listed.ImportPath, dir: listed.Dir, fset: fset, importer: imports}
		for _, name := range listed.GoFiles {
			f, err := p.parse(filepath.Join(listed.Dir, name))
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, f)
		}
		packages = append(packages, p)
	}
	for _, p := range packages {
		if p.info, err = p.check(nil, nil); err != nil {
			return nil, fmt.Errorf("type-check %s: %w", p.path, err)
		}
		p.findLogOnly()
	}
	return packages, nil
}

func (p *pkg) parse(path string) (*file, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseFile(p.fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	short := path
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, "..") {
			short = rel
		}
	}
	return &file{pkg: p, path: path, short: short, source: source, tree: tree}, nil
}

// check type-checks the package together with more files, with tree in place of old's if
// old is given.
func (p *pkg) check(old *file, tree *ast.File, more ...*ast.File) (*types.Info, error) {
	trees := slices.Clone(more)
	for _, f := range p.files {
		if f == old {
			trees = append(trees, tree)
		} else {
			trees = append(trees, f.tree)
		}
	}
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Uses:       map[*ast.Ident]types.Object{},
		Defs:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: p.importer, Sizes: types.SizesFor("gc", "amd64")}
	_, err := config.Check(p.path, p.fset, trees, info)
	return info, err
}
