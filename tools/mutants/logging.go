package main

import (
	"go/ast"
	"go/types"
	"strings"
)

// Packages for logs, metrics and stack traces.
var logging = []string{"log/slog", "github.com/prometheus/client_golang/", "runtime/debug"}

// findLogOnly finds the functions that return nothing and only log, count or measure,
// directly or by calling other such functions.
func (p *pkg) findLogOnly() {
	p.logOnly = map[types.Object]bool{}
	for more := true; more; {
		more = false
		for _, f := range p.files {
			for _, d := range f.tree.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil || fn.Type.Results != nil || len(fn.Body.List) == 0 {
					continue
				}
				if object := p.info.Defs[fn.Name]; !p.logOnly[object] && p.onlyLogs(fn.Body) {
					p.logOnly[object], more = true, true
				}
			}
		}
	}
}

// onlyLogs reports whether a statement only logs, counts or measures.
func (p *pkg) onlyLogs(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := ast.Unparen(s.X).(*ast.CallExpr)
		return ok && p.loggingCall(call)
	case *ast.DeferStmt:
		return p.loggingCall(s.Call)
	case *ast.BlockStmt:
		for _, inner := range s.List {
			if !p.onlyLogs(inner) {
				return false
			}
		}
		return len(s.List) > 0
	case *ast.IfStmt:
		return s.Init == nil && p.onlyLogs(s.Body) && (s.Else == nil || p.onlyLogs(s.Else))
	case *ast.RangeStmt:
		return p.onlyLogs(s.Body)
	case *ast.AssignStmt:
		// logger := s.log.With(...), attrs = append(attrs, slog.Int(...))
		for _, e := range s.Lhs {
			if !loggingType(p.info.TypeOf(e)) {
				return false
			}
		}
		return true
	}
	return false
}

// loggingCall reports whether a call is to a logger, a metric or a function in p.logOnly.
func (p *pkg) loggingCall(call *ast.CallExpr) bool {
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
	return object != nil && (p.logOnly[object] || loggingPackage(object.Pkg()) && !returnsError(object))
}

// returnsError reports whether a function returns an error. Calls to such functions are
// mutated even in logging packages: the failure of Register, for example, matters.
func returnsError(object types.Object) bool {
	signature, ok := object.Type().(*types.Signature)
	if !ok || signature.Results().Len() == 0 {
		return false
	}
	return isError(signature.Results().At(signature.Results().Len() - 1).Type())
}

func loggingPackage(p *types.Package) bool {
	if p == nil {
		return false
	}
	for _, t := range logging {
		if p.Path() == t || strings.HasSuffix(t, "/") && strings.HasPrefix(p.Path(), t) {
			return true
		}
	}
	return false
}

// loggingType reports whether a type belongs to a logging package.
func loggingType(t types.Type) bool {
	switch t := t.(type) {
	case *types.Pointer:
		return loggingType(t.Elem())
	case *types.Slice:
		return loggingType(t.Elem())
	case *types.Named:
		return loggingPackage(t.Obj().Pkg())
	}
	return false
}

// call reports whether to mutate a call's arguments. It excludes capacities, which affect
// only speed, and calls to loggers and metrics.
func (v *visitor) call(n *ast.CallExpr) bool {
	if v.file.pkg.loggingCall(n) {
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
