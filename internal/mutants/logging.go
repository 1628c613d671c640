package main

import (
	"go/ast"
	"go/types"
	"strings"
)

// Packages for logs, metrics and stack traces.
var telling = []string{"log/slog", "github.com/prometheus/client_golang/", "runtime/debug"}

// findTold finds the functions that return nothing and only log, count or measure,
// directly or by calling other such functions.
func (p *pkg) findTold() {
	p.told = map[types.Object]bool{}
	for more := true; more; {
		more = false
		for _, f := range p.files {
			for _, d := range f.tree.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil || fn.Type.Results != nil || len(fn.Body.List) == 0 {
					continue
				}
				if object := p.info.Defs[fn.Name]; !p.told[object] && p.tells(fn.Body) {
					p.told[object], more = true, true
				}
			}
		}
	}
}

// tells reports whether a statement only logs, counts or measures.
func (p *pkg) tells(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := ast.Unparen(s.X).(*ast.CallExpr)
		return ok && p.tellingCall(call)
	case *ast.DeferStmt:
		return p.tellingCall(s.Call)
	case *ast.BlockStmt:
		for _, inner := range s.List {
			if !p.tells(inner) {
				return false
			}
		}
		return len(s.List) > 0
	case *ast.IfStmt:
		return s.Init == nil && p.tells(s.Body) && (s.Else == nil || p.tells(s.Else))
	case *ast.RangeStmt:
		return p.tells(s.Body)
	case *ast.AssignStmt:
		// logger := s.log.With(...), attrs = append(attrs, slog.Int(...))
		for _, e := range s.Lhs {
			if !telltale(p.info.TypeOf(e)) {
				return false
			}
		}
		return true
	}
	return false
}

// tellingCall reports whether a call is to a logger, a metric or a function in p.told.
func (p *pkg) tellingCall(call *ast.CallExpr) bool {
	var id *ast.Ident
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = fun
	case *ast.SelectorExpr:
		id = fun.Sel
	default:
		return false
	}
	object := p.info.Uses[id]
	return object != nil && (p.told[object] || tellingPackage(object.Pkg()) && !returnsError(object))
}

// returnsError reports whether a function returns an error. Calls to such functions are
// mutated even in telling packages: the failure of Register, for example, matters.
func returnsError(object types.Object) bool {
	signature, ok := object.Type().(*types.Signature)
	if !ok || signature.Results().Len() == 0 {
		return false
	}
	return isError(signature.Results().At(signature.Results().Len() - 1).Type())
}

func tellingPackage(p *types.Package) bool {
	if p == nil {
		return false
	}
	for _, t := range telling {
		if p.Path() == t || strings.HasSuffix(t, "/") && strings.HasPrefix(p.Path(), t) {
			return true
		}
	}
	return false
}

// telltale reports whether a type belongs to a telling package.
func telltale(t types.Type) bool {
	switch t := t.(type) {
	case *types.Pointer:
		return telltale(t.Elem())
	case *types.Slice:
		return telltale(t.Elem())
	case *types.Named:
		return tellingPackage(t.Obj().Pkg())
	}
	return false
}

// call reports whether to mutate a call's arguments. It excludes capacities, which affect
// only speed, and calls to loggers and metrics.
func (v *visitor) call(n *ast.CallExpr) bool {
	if v.file.pkg.tellingCall(n) {
		return false
	}
	id, ok := ast.Unparen(n.Fun).(*ast.Ident)
	if ok && v.file.pkg.info.Uses[id] == types.Universe.Lookup("make") && (len(n.Args) == 3 || len(n.Args) == 2 && v.isMap(n.Args[0])) {
		for _, a := range n.Args[:len(n.Args)-1] {
			ast.Inspect(a, v.visit)
		}
		return false
	}
	if s, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && s.Sel.Name == "Grow" {
		return false
	}
	return true
}

func (v *visitor) isMap(e ast.Expr) bool {
	t := v.file.pkg.info.TypeOf(e)
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}
