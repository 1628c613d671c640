// Package target reads Graphite's target language: paths with globs, calls of
// functions, pipes and templates.
//
//	target   = call | path | template, followed by any number of "|" call
//	call     = name "(" [ args ] ")"            positional, then name=value
//	arg      = true | false | number | none | string | inf | target
//	string   = '...' or "..."                   escapes stay in the text
//	template = "template(" ( call | path ) [ "," literals ] ")"
//	path     = nodes joined by "."; a node holds any printable character
//	           except ( ) { } , . ' " \ | and blanks, those escaped by a
//	           backslash, and lists {a,b*,c}
//
// A pipe passes what is on its left as the first argument of the call on its
// right, so a|f(1) and f(a,1) are one tree.
//
// The package knows nothing of data and of functions: it does not check names
// or numbers of arguments.
package target

import "fmt"

// Bounds of one target. They are far above what people and tools write, and
// keep what a request can make a server do in proportion to its size.
const (
	MaxLength = 256 << 10 // bytes of text
	MaxDepth  = 100       // calls within calls
	MaxNodes  = 50_000    // paths, calls and literals
)

// An Expr is a node of a parsed target: *Path, *Call, *Template, Number,
// Float, String, Bool, None or Infinity.
type Expr interface{ expr() }

type (
	// A Path selects series by a glob. Escapes are resolved.
	Path struct{ Text string }

	// A Call is a function and its arguments.
	Call struct {
		Name  string
		Args  []Expr
		Named []Named
		// Raw is the text of the call as it was written, without what was piped
		// into it.
		Raw string
	}

	// A Template is an expression in whose paths variables stand for text.
	Template struct {
		Body  Expr
		Args  []Expr // literals: the variables $1, $2, ...
		Named []Named
	}

	// Named is an argument that is passed by name.
	Named struct {
		Name  string
		Value Expr
	}

	Number   int64
	Float    float64
	String   string
	Bool     bool
	None     struct{}
	Infinity struct{}
)

func (*Path) expr()     {}
func (*Call) expr()     {}
func (*Template) expr() {}
func (Number) expr()    {}
func (Float) expr()     {}
func (String) expr()    {}
func (Bool) expr()      {}
func (None) expr()      {}
func (Infinity) expr()  {}

// An Error says where a target is wrong, and why.
type Error struct {
	Text   string
	At     int // offset in bytes
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("target, at byte %d: %s%s", e.At, e.Reason, e.near())
}

// near quotes what stands at the place of the error.
func (e *Error) near() string {
	const width = 24
	if e.At >= len(e.Text) {
		return " at the end of the text"
	}
	rest := e.Text[e.At:]
	if len(rest) > width {
		rest = rest[:width] + "..."
	}
	return fmt.Sprintf(" before %q", rest)
}

// Parse reads a target. Text behind a complete expression is ignored when it
// starts with a blank, a closing parenthesis, a comma or a quote, or is a dot,
// as in Graphite: dashboards have targets with one parenthesis too many, and they
// work. Other trailing text is an error, since the expression before it is not
// what was meant: f(a without its end would select the path f.
func Parse(text string) (Expr, error) {
	if len(text) > MaxLength {
		return nil, &Error{"", 0, fmt.Sprintf("the text is longer than %d bytes", MaxLength)}
	}
	p := &parser{text: text}
	e, ok := p.expression()
	switch {
	case p.limit != nil:
		return nil, p.limit
	case !ok:
		return nil, &Error{text, p.furthest, p.reason}
	case p.complete():
		return e, nil
	case p.furthest > p.pos:
		return nil, &Error{text, p.furthest, p.reason}
	}
	return nil, &Error{text, p.pos, "unexpected text"}
}

// FirstPath returns the first path within the name of a series, which often is
// the text of the expression that made it: srv.web1.cpu in
// "scale(srv.web1.cpu,2)". It reads as far as the name is an expression.
func FirstPath(name string) (string, bool) {
	p := &parser{text: name}
	if len(name) > MaxLength {
		return "", false
	}
	e, ok := p.expression()
	for ok && p.limit == nil {
		switch x := e.(type) {
		case *Path:
			return x.Text, true
		case *Call:
			if len(x.Args) == 0 {
				return "", false
			}
			e = x.Args[0]
		default:
			return "", false
		}
	}
	return "", false
}
