package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Environment variables of a test binary with many mutants.
const (
	onVariable      = "VARVE_MUTANT"         // number of the mutant that is on; reportReached: none is on
	reachedVariable = "VARVE_MUTANT_REACHED" // file for the numbers of the mutants that the tests reach
)

// reportReached is the number with which a binary writes the numbers of reached mutants.
const reportReached = -1

// switchCode is added to a package whose mutants are compiled together.
const switchCode = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantOn, _   = strconv.Atoi(os.Getenv("` + onVariable + `"))
	mutantReached [%d]atomic.Bool
)

func mutantAt(number int) bool {
	if mutantOn < 0 {
		mutantReport(number)
	}
	return mutantOn == number
}

func mutantReport(number int) {
	if mutantReached[number].Load() || mutantReached[number].Swap(true) {
		return
	}
	f, err := os.OpenFile(os.Getenv("` + reachedVariable + `"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	f.WriteString(strconv.Itoa(number) + "\n")
	f.Close()
}

func mutantPick[T any](number int, changed, original T) T {
	if mutantAt(number) {
		return changed
	}
	return original
}
`

// switchAll writes the sources of the packages to dir, with the mutants compiled together where
// possible, and returns the file for go test -overlay. It numbers these mutants from 1. Compiling
// and linking a test binary takes longer than most tests, so a package has one for all its
// mutants. Mutants that do not compile behind a condition keep the number 0, such as a changed
// constant declaration, and need a binary of their own.
func switchAll(dir string, packages []*pkg, drawn []mutant) (overlay string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	replace := map[string]string{}
	write := func(path, text string) error {
		replace[path] = filepath.Join(dir, strconv.Itoa(len(replace))+".go")
		return os.WriteFile(replace[path], []byte(text), 0o666)
	}
	for _, p := range packages {
		code := fmt.Sprintf(switchCode, p.files[0].tree.Name.Name, len(drawn)+1)
		if err := write(filepath.Join(p.dir, "mutants_switch.go"), code); err != nil {
			return "", err
		}
		for _, f := range p.files {
			text, err := switchFile(f, code, drawn)
			if err == nil && text != "" {
				err = write(f.path, text)
			}
			if err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o666)
}

// switchFile returns the file with those of its mutants that pass the type checker
// together, and "" if none does.
func switchFile(f *file, code string, drawn []mutant) (string, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	var text string
	var together []*mutant
	for i := range drawn {
		m := &drawn[i]
		if m.file != f {
			continue
		}
		m.number = i + 1
		try := append(slices.Clone(together), m)
		slices.SortStableFunc(try, func(a, b *mutant) int {
			return cmp.Or(cmp.Compare(a.node.Pos(), b.node.Pos()), cmp.Compare(b.node.End(), a.node.End()))
		})
		changed := f.render(0, len(f.source), try)
		if f.compiles(changed, tree) {
			together, text = try, changed
		} else {
			m.number = 0
		}
	}
	return text, nil
}

// render returns the source from one offset to another with the mutants behind conditions.
// The mutants are ordered by the position of their nodes, outer nodes first.
func (f *file) render(from, to int, mutants []*mutant) string {
	var b strings.Builder
	for len(mutants) > 0 {
		m := mutants[0]
		inner := 1
		for inner < len(mutants) && mutants[inner].node.Pos() < m.node.End() {
			inner++
		}
		start, end := f.offset(m.node.Pos()), f.offset(m.node.End())
		b.Write(f.source[from:start])
		b.WriteString(m.switched(f.render(start, end, mutants[1:inner])))
		from, mutants = end, mutants[inner:]
	}
	b.Write(f.source[from:to])
	return b.String()
}

// switched returns code that does what the mutant does if its number is on, and otherwise
// what original does.
func (m *mutant) switched(original string) string {
	f := m.file
	changed := string(f.source[f.offset(m.node.Pos()):m.start]) + m.text + string(f.source[m.end:f.offset(m.node.End())])
	e, ok := m.node.(ast.Expr)
	if !ok {
		return fmt.Sprintf("if mutantAt(%d) { %s } else { %s }", m.number, changed, original)
	}
	t := types.Default(f.pkg.info.TypeOf(e))
	if b, ok := t.Underlying().(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
		return fmt.Sprintf("(mutantAt(%d) && (%s) || mutantOn != %d && (%s))", m.number, changed, m.number, original)
	}
	name := types.TypeString(t, func(p *types.Package) string {
		if p.Path() == f.pkg.path {
			return ""
		}
		return p.Name()
	})
	return fmt.Sprintf("mutantPick[%s](%d, %s, %s)", name, m.number, changed, original)
}
