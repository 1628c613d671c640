// Package target parses Graphite's target language: paths with globs, function
// calls, pipes and templates.
//
//	target   = call | path | template, followed by any number of "|" call
//	call     = name "(" [ args ] ")"            positional, then name=value
//	arg      = true | false | number | none | string | inf | target
//	string   = '...' or "..."                   escapes are not resolved
//	template = "template(" ( call | path ) [ "," literals ] ")"
//	path     = nodes joined by "."; a node holds any printable character
//	           except ( ) { } , . ' " \ | and blanks, those escaped by a
//	           backslash, and lists {a,b*,c}
//
// A pipe passes its left side as the first argument of the call on its right, so
// a|f(1) and f(a,1) give the same tree.
//
// The package knows no data and no functions: it does not check names or numbers
// of arguments.
package target

import "fmt"

// Limits of one target. They are far above what people and tools write, and keep
// the work of a request in proportion to its size.
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
		// Raw is the source text of the call, without what is piped into it.
		Raw string
	}

	// A Template is an expression with variables in its paths.
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

// near quotes the text at the position of the error.
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

// Parse parses a target. Text after a complete expression is ignored if it begins
// with a closing parenthesis, a comma, a quote, or a blank that neither ( nor |
// follows, or if it is a dot. Graphite does the same, and dashboards rely on it:
// they have targets with one parenthesis too many. Other trailing text is an
// error, because the expression before it is not the intended one: the unclosed
// f(a would select the path f.
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

// FirstPath returns the first path in the name of a series, which is often the
// expression that computed it: srv.web1.cpu in "scale(srv.web1.cpu,2)". It
// ignores text after the expression.
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
