package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A place is a range of source text and its possible replacements.
type place struct {
	file       *file
	operator   string
	start, end int // offsets in the file's source, end exclusive
	texts      []string
	node       ast.Node // the statement or expression that the place is or belongs to
}

// A mutant is one change of one place.
type mutant struct {
	place
	text   string
	number int // switches it on in the binary of all mutants; 0: it is not in that binary
}

// source returns the file with the mutant's change.
func (m mutant) source() []byte {
	return bytes.Join([][]byte{m.file.source[:m.start], []byte(m.text), m.file.source[m.end:]}, nil)
}

// compiles reports whether the mutant's package passes the type checker.
func (m mutant) compiles() bool {
	return m.file.compiles(string(m.source()))
}

// compiles reports whether the file's package passes the type checker with another source of
// the file, and with more files.
func (f *file) compiles(source string, more ...*ast.File) bool {
	tree, err := parser.ParseFile(token.NewFileSet(), f.path, source, parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	_, err = f.pkg.check(f, tree, more...)
	return err == nil
}

// position returns line and column of the place, from 1.
func (m mutant) position() (line, column int) {
	before := m.file.source[:m.start]
	return 1 + bytes.Count(before, []byte("\n")), m.start - bytes.LastIndexByte(before, '\n')
}

// String returns the mutant's position and change on one line.
func (m mutant) String() string {
	line, _ := m.position()
	return fmt.Sprintf("%s:%d %s: %s -> %s", m.file.short, line, m.operator, oneLine(string(m.file.source[m.start:m.end])), oneLine(m.text))
}

// lines returns the first line of the place before and after the change.
func (m mutant) lines() (before, after string) {
	line := func(source []byte) string {
		from := bytes.LastIndexByte(source[:m.start], '\n') + 1
		to := len(source)
		if i := bytes.IndexByte(source[m.start:], '\n'); i >= 0 {
			to = m.start + i
		}
		return strings.TrimSpace(string(source[from:to]))
	}
	return line(m.file.source), line(m.source())
}

// oneLine shortens text to what fits a line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return "(nothing)"
	}
	if len(text) > 70 {
		text = strings.ToValidUTF8(text[:67], "") + "..."
	}
	return text
}

// places returns what can be mutated in the package, in the order of its source.
func (p *pkg) places() []place {
	var all []place
	for _, f := range p.files {
		if ast.IsGenerated(f.tree) {
			continue
		}
		v := visitor{file: f}
		ast.Inspect(f.tree, v.visit)
		all = append(all, v.places...)
	}
	return all
}

// A visitor collects the places of a file.
type visitor struct {
	file    *file
	places  []place
	checked []*ast.IfStmt // the if statements visited so far
}

// add adds a place that is all of node.
func (v *visitor) add(operator string, node ast.Node, texts ...string) {
	v.addPart(operator, node, node.Pos(), node.End(), texts...)
}

// addPart adds a place that is a part of node, such as its operator.
func (v *visitor) addPart(operator string, node ast.Node, from, to token.Pos, texts ...string) {
	v.places = append(v.places, place{file: v.file, operator: operator, start: v.file.offset(from), end: v.file.offset(to), texts: slices.Clone(texts), node: node})
}

func (v *visitor) text(n ast.Node) string {
	return string(v.file.source[v.file.offset(n.Pos()):v.file.offset(n.End())])
}

func (f *file) offset(p token.Pos) int { return f.pkg.fset.Position(p).Offset }

// visit collects the places of n and reports whether to go below it.
func (v *visitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case nil:
		return false
	case *ast.ImportSpec, *ast.ArrayType, *ast.StructType, *ast.InterfaceType:
		return false
	case *ast.FuncDecl:
		return n.Body != nil && !v.file.pkg.logOnly[v.file.pkg.info.Defs[n.Name]]
	case ast.Stmt:
		if v.file.pkg.onlyLogs(n) {
			return false
		}
		v.statement(n)
		if r, ok := n.(*ast.ReturnStmt); ok && v.fails(r) && v.surely(r.Results[len(r.Results)-1]) {
			v.failure(r)
			return false
		}
	case *ast.BinaryExpr:
		v.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			v.addPart("boolean", n, n.OpPos, n.OpPos+1, "")
		}
	case *ast.BasicLit:
		v.literal(n)
	case *ast.Ident:
		v.constant(n)
	case *ast.CallExpr:
		return v.call(n)
	}
	return true
}

// statement adds the mutations of a statement as a whole.
func (v *visitor) statement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.BlockStmt:
		v.drop(n.List)
	case *ast.CaseClause:
		v.drop(n.Body)
	case *ast.CommClause:
		v.drop(n.Body)
	case *ast.IfStmt:
		v.checked = append(v.checked, n)
		v.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			v.condition(n.Cond)
		}
	case *ast.ReturnStmt:
		v.result(n)
	}
}

// drop adds the removal of each statement of a list that can be removed.
func (v *visitor) drop(list []ast.Stmt) {
	for _, s := range list {
		if v.file.pkg.onlyLogs(s) {
			continue
		}
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || allBlank(s.Lhs) {
				continue
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.ReturnStmt, *ast.BranchStmt:
		default:
			continue
		}
		v.add("dropped statement", s, "")
	}
}

func allBlank(list []ast.Expr) bool {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

// condition adds the negation of a condition. It skips comparisons, which binary
// reverses, and negations, whose ! visit removes. A check for an error becomes false.
func (v *visitor) condition(cond ast.Expr) {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	switch {
	case ok && v.isErrorCheck(b):
		if b.Op == token.NEQ {
			v.add("swallowed error", cond, "false && "+v.text(cond))
		}
	case ok && comparisons[b.Op] != nil, isNot(cond):
	default:
		v.add("boolean", cond, "!("+v.text(cond)+")")
	}
}

func isNot(e ast.Expr) bool {
	u, ok := ast.Unparen(e).(*ast.UnaryExpr)
	return ok && u.Op == token.NOT
}

// fails reports whether a return statement returns an error other than the literal nil.
func (v *visitor) fails(n *ast.ReturnStmt) bool {
	if len(n.Results) == 0 {
		return false
	}
	last := n.Results[len(n.Results)-1]
	t := v.file.pkg.info.TypeOf(last)
	return t != nil && types.Implements(t, errorType.Underlying().(*types.Interface))
}

// surely reports whether an error cannot be nil: it is created here, it is a variable of a package,
// such as io.EOF, or the surrounding if compared it with nil.
func (v *visitor) surely(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		return e.Op == token.AND
	case *ast.CallExpr:
		text := v.text(e.Fun)
		return text == "fmt.Errorf" || text == "errors.New"
	case *ast.SelectorExpr:
		return v.ofPackage(e.Sel)
	case *ast.Ident:
		return v.ofPackage(e) || slices.ContainsFunc(v.checked, func(b *ast.IfStmt) bool {
			cond, ok := ast.Unparen(b.Cond).(*ast.BinaryExpr)
			return ok && cond.Op == token.NEQ && v.isErrorCheck(cond) && v.text(cond.X) == e.Name && b.Body.Pos() <= e.Pos() && e.Pos() < b.Body.End()
		})
	}
	return false
}

// ofPackage reports whether id is a variable of a package.
func (v *visitor) ofPackage(id *ast.Ident) bool {
	object, ok := v.file.pkg.info.Uses[id].(*types.Var)
	return ok && object.Pkg() != nil && object.Parent() == object.Pkg().Scope()
}

// failure collects the places in a return with an error. It skips constants that are returned
// together with the error, because no caller uses them.
func (v *visitor) failure(n *ast.ReturnStmt) {
	for _, r := range n.Results {
		if v.file.pkg.info.Types[r].Value == nil {
			ast.Inspect(r, v.visit)
		}
	}
}

// result replaces a returned error by nil. The expression of the error is still evaluated.
func (v *visitor) result(n *ast.ReturnStmt) {
	if !v.fails(n) {
		return
	}
	last := n.Results[len(n.Results)-1]
	text := "_ = " + v.text(last) + "; return "
	for _, r := range n.Results[:len(n.Results)-1] {
		text += v.text(r) + ", "
	}
	v.add("swallowed error", n, text+"nil")
}

// comparisons are the replacements of each comparison: one that differs only where both
// sides are equal, and the negation.
var comparisons = map[token.Token][]string{
	token.LSS: {"<=", ">="},
	token.LEQ: {"<", ">"},
	token.GTR: {">=", "<="},
	token.GEQ: {">", "<"},
	token.EQL: {"!="},
	token.NEQ: {"=="},
}

func (v *visitor) binary(n *ast.BinaryExpr) {
	end := n.OpPos + token.Pos(len(n.Op.String()))
	switch {
	case n.Op == token.LAND:
		v.addPart("boolean", n, n.OpPos, end, "||")
	case n.Op == token.LOR:
		v.addPart("boolean", n, n.OpPos, end, "&&")
	case comparisons[n.Op] != nil && !v.isErrorCheck(n):
		v.addPart("comparison", n, n.OpPos, end, comparisons[n.Op]...)
	}
}

// isErrorCheck reports whether n compares an error with nil.
func (v *visitor) isErrorCheck(n *ast.BinaryExpr) bool {
	info := v.file.pkg.info
	return (n.Op == token.EQL || n.Op == token.NEQ) && info.Types[n.Y].IsNil() && isError(info.TypeOf(n.X))
}

var errorType = types.Universe.Lookup("error").Type()

func isError(t types.Type) bool { return t != nil && types.Identical(t, errorType) }

// literal changes a number by one, and to 0.
func (v *visitor) literal(n *ast.BasicLit) {
	if n.Kind != token.INT && n.Kind != token.FLOAT {
		return
	}
	info := v.file.pkg.info
	value := info.Types[n].Value
	if value == nil { // part of a constant expression of another type
		value = constant.MakeFromLiteral(n.Value, n.Kind, 0)
	}
	if duration, ok := info.TypeOf(n).(*types.Named); ok && duration.String() == "time.Duration" && constant.Sign(value) != 0 {
		// A nanosecond more makes no difference.
		v.add("constant", n, "0")
		return
	}
	texts := []string{"(" + n.Value + " + 1)"}
	if constant.Sign(value) != 0 {
		texts = append(texts, "("+n.Value+" - 1)")
	} else {
		texts = append(texts, "-1")
	}
	if constant.Compare(constant.ToFloat(value), token.NEQ, constant.MakeFloat64(0)) && constant.Compare(constant.ToFloat(value), token.NEQ, constant.MakeFloat64(1)) {
		texts = append(texts, "0") // 1 - 1 is 0 already
	}
	v.add("constant", n, texts...)
}

// constant swaps true and false.
func (v *visitor) constant(n *ast.Ident) {
	switch v.file.pkg.info.Uses[n] {
	case types.Universe.Lookup("true"):
		v.add("boolean", n, "false")
	case types.Universe.Lookup("false"):
		v.add("boolean", n, "true")
	}
}
