package target

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A parser is a recursive descent parser with backtracking. Its methods return
// false, and leave pos unchanged, if the text does not match.
type parser struct {
	text         string
	pos          int
	depth, nodes int
	calls        map[int]called // by the position at which the call begins

	furthest int    // position of the most advanced failure
	reason   string // what was missing there
	limit    error  // a limit that was exceeded; ends the parsing
}

func (p *parser) fail(reason string) {
	if p.pos >= p.furthest {
		p.furthest, p.reason = p.pos, reason
	}
}

func (p *parser) exceed(format string, args ...any) {
	if p.limit == nil {
		p.limit = &Error{p.text, p.pos, fmt.Sprintf(format, args...)}
	}
}

// count counts an attempt to parse a node and reports whether it is allowed. It
// counts failed attempts, too, which limits backtracking.
func (p *parser) count() bool {
	p.nodes++
	if p.nodes > MaxNodes {
		p.exceed("more than %d paths, calls and literals", MaxNodes)
	}
	return p.limit == nil
}

// complete reports whether the rest of the text may be ignored, see Parse.
func (p *parser) complete() bool {
	if p.pos == len(p.text) {
		return true
	}
	next := p.skip(p.pos)
	if next == len(p.text) || p.text[p.pos:] == "." {
		return true
	}
	if next > p.pos {
		return p.text[next] != '(' && p.text[next] != '|'
	}
	return strings.IndexByte("),\"'", p.text[next]) >= 0
}

// skip returns the position of the first non-blank from at on.
func (p *parser) skip(at int) int {
	for at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[at]) >= 0 {
		at++
	}
	return at
}

// symbol consumes one character and the blanks before it.
func (p *parser) symbol(c byte) bool {
	at := p.skip(p.pos)
	if at >= len(p.text) || p.text[at] != c {
		return false
	}
	p.pos = at + 1
	return true
}

// need is symbol for a character that must follow. Without it, need records a failure.
func (p *parser) need(c byte) bool {
	if p.symbol(c) {
		return true
	}
	p.fail(fmt.Sprintf("%q is missing", c))
	return false
}

// expression parses a template, call or path, and the calls that it is piped into.
func (p *parser) expression() (Expr, bool) {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > MaxDepth {
		p.exceed("calls are nested deeper than %d", MaxDepth)
		return nil, false
	}
	e, ok := p.primary()
	piped := 0
	for ok {
		before := p.pos
		if !p.symbol('|') {
			break
		}
		call, fits := p.call()
		if !fits {
			p.pos = before
			break
		}
		if piped++; p.depth+piped > MaxDepth {
			p.exceed("calls are nested deeper than %d", MaxDepth)
			return nil, false
		}
		call.Args = append([]Expr{e}, call.Args...)
		e = call
	}
	return e, ok && p.limit == nil
}

func (p *parser) primary() (Expr, bool) {
	p.pos = p.skip(p.pos)
	if t, ok := p.template(); ok {
		return t, true
	}
	if p.limit != nil {
		return nil, false
	}
	if c, ok := p.call(); ok {
		return c, true
	}
	if p.limit != nil {
		return nil, false
	}
	return p.path()
}

// template parses template(...). It leaves calls of that name with other
// arguments to call.
func (p *parser) template() (Expr, bool) {
	before := p.pos
	if name, ok := p.name(); !ok || name != "template" || !p.symbol('(') {
		p.pos = before
		return nil, false
	}
	p.pos = p.skip(p.pos)
	var t Template
	if c, ok := p.call(); ok {
		t.Body = c
	} else if path, ok := p.path(); ok {
		t.Body = path
	} else {
		p.pos = before
		return nil, false
	}
	if !p.variables(&t) || !p.symbol(')') {
		p.pos = before
		return nil, false
	}
	return &t, true
}

// variables parses the literals after the body of a template. Either all of them
// have names, or none has.
func (p *parser) variables(t *Template) bool {
	for p.symbol(',') {
		before := p.pos
		name, named := p.keyword()
		p.pos = p.skip(p.pos)
		value, ok := p.number()
		if !ok {
			value, ok = p.quoted()
		}
		switch {
		case !ok || !p.count() || named && len(t.Args) > 0 || !named && len(t.Named) > 0:
			p.pos = before
			return false
		case named:
			t.Named = append(t.Named, Named{name, value})
		default:
			t.Args = append(t.Args, value)
		}
	}
	return true
}

// A called is what call found at a position.
type called struct {
	call *Call // nil: none
	end  int
}

// call parses a name and its arguments. It parses the arguments only once for each position: after
// template has failed, call parses the text that template tried as its body again, as its first
// argument, and with nested calls the attempts would multiply.
func (p *parser) call() (*Call, bool) {
	before, start := p.pos, p.skip(p.pos)
	name, ok := p.name()
	if !ok || !p.symbol('(') {
		p.pos = before
		return nil, false
	}
	c, known := p.calls[start]
	if !known {
		if c.call = p.parseCall(name); c.call != nil {
			c.call.Raw, c.end = p.text[start:p.pos], p.pos
		}
		if p.calls == nil {
			p.calls = map[int]called{}
		}
		p.calls[start] = c
	}
	if c.call == nil {
		p.pos = before
		return nil, false
	}
	p.pos = c.end
	return c.call, true
}

// parseCall parses what follows the opening parenthesis of a call. If that is not a call, it returns nil, and
// pos is undefined.
func (p *parser) parseCall(name string) *Call {
	c := &Call{Name: name}
	if !p.count() || !p.symbol(')') && !(p.arguments(c) && p.need(')')) {
		return nil
	}
	return c
}

// arguments parses positional arguments, then named ones.
func (p *parser) arguments(c *Call) bool {
	for {
		name, named := p.keyword()
		if !named && len(c.Named) > 0 {
			p.fail("an argument without a name follows one with a name")
			return false
		}
		value, ok := p.argument()
		if !ok {
			p.fail("an argument is missing")
			return false
		}
		if named {
			c.Named = append(c.Named, Named{name, value})
		} else {
			c.Args = append(c.Args, value)
		}
		if !p.symbol(',') {
			return true
		}
	}
}

// keyword parses a name and the equals sign after it.
func (p *parser) keyword() (string, bool) {
	before := p.pos
	name, ok := p.name()
	if ok && p.symbol('=') {
		return name, true
	}
	p.pos = before
	return "", false
}

func (p *parser) argument() (Expr, bool) {
	if !p.count() {
		return nil, false
	}
	p.pos = p.skip(p.pos)
	for _, literal := range [...]func() (Expr, bool){p.word, p.number, p.quoted} {
		if e, ok := literal(); ok {
			return e, true
		}
	}
	return p.expression()
}

// word parses true, false, none and inf. A path may begin with one of these
// words, so the end of the argument must follow.
func (p *parser) word() (Expr, bool) {
	before := p.pos
	name, ok := p.name()
	if ok && p.ends() {
		switch strings.ToLower(name) {
		case "true":
			return Bool(true), true
		case "false":
			return Bool(false), true
		case "none":
			return None{}, true
		case "inf":
			return Infinity{}, true
		}
	}
	p.pos = before
	return nil, false
}

// ends reports whether an argument may end here.
func (p *parser) ends() bool {
	at := p.skip(p.pos)
	return at == len(p.text) || p.text[at] == ',' || p.text[at] == ')'
}

// number parses an integer, a decimal number, or one with an exponent. An
// argument that continues after the number is a path: 10a, 1.a.
func (p *parser) number() (Expr, bool) {
	before := p.pos
	text := p.text[p.pos:]
	n, whole := scanNumber(text)
	if n == 0 {
		return nil, false
	}
	p.pos += n
	if !p.ends() {
		p.pos = before
		return nil, false
	}
	if whole {
		if i, err := strconv.ParseInt(text[:n], 10, 64); err == nil {
			return Number(i), true
		}
	}
	f, err := strconv.ParseFloat(text[:n], 64)
	if err != nil && !math.IsInf(f, 0) {
		p.pos = before
		return nil, false
	}
	return Float(f), true
}

// scanNumber returns the length of the number at the beginning of s and
// whether it is an integer.
func scanNumber(s string) (n int, whole bool) {
	sign := 0
	if strings.HasPrefix(s, "-") {
		sign = 1
	}
	n = sign + countDigits(s[sign:])
	if n == sign {
		return 0, false
	}
	whole = true
	if d := 0; n < len(s) && s[n] == '.' {
		if d = countDigits(s[n+1:]); d > 0 {
			n, whole = n+1+d, false
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		sign := 0
		if strings.HasPrefix(s[n+1:], "-") {
			sign = 1
		}
		if d := countDigits(s[n+1+sign:]); d > 0 {
			n, whole = n+1+sign+d, false
		}
	}
	return n, whole
}

func countDigits(s string) int {
	n := 0
	for n < len(s) && '0' <= s[n] && s[n] <= '9' {
		n++
	}
	return n
}

// quoted parses a string. A backslash before a quote, or a doubled quote, does
// not end the string. Backslashes and doubled quotes remain in the text.
func (p *parser) quoted() (Expr, bool) {
	if p.pos >= len(p.text) || p.text[p.pos] != '"' && p.text[p.pos] != '\'' {
		return nil, false
	}
	quote := p.text[p.pos]
	for i := p.pos + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '\\':
			i++
		case c == '\n' || c == '\r':
			p.fail("a string does not end on its line")
			return nil, false
		case c == quote && i+1 < len(p.text) && p.text[i+1] == quote:
			i++
		case c == quote:
			s := p.text[p.pos+1 : i]
			p.pos = i + 1
			return String(s), true
		}
	}
	p.fail("a string does not end")
	return nil, false
}

// name parses the name of a function or an argument.
func (p *parser) name() (string, bool) {
	at := p.skip(p.pos)
	end := at
	for end < len(p.text) && isNameByte(p.text[end], end > at) {
		end++
	}
	if end == at {
		return "", false
	}
	p.pos = end
	return p.text[at:end], true
}

func isNameByte(c byte, digits bool) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || digits && '0' <= c && c <= '9'
}

// path parses nodes joined by dots. A dot without a node after it is not part of
// the path.
func (p *parser) path() (Expr, bool) {
	if !p.count() {
		return nil, false
	}
	p.pos = p.skip(p.pos)
	var out strings.Builder
	for {
		if !p.node(&out) {
			p.fail("a path, a function or a value is missing")
			if out.Len() == 0 {
				return nil, false
			}
			p.pos--
			return &Path{strings.TrimSuffix(out.String(), ".")}, true
		}
		if p.pos >= len(p.text) || p.text[p.pos] != '.' {
			return &Path{out.String()}, true
		}
		p.pos++
		out.WriteByte('.')
	}
}

// node parses one node: plain text, escapes and lists.
func (p *parser) node(out *strings.Builder) bool {
	start := p.pos
	for p.plain(out) || p.list(out) {
	}
	return p.pos > start
}

// plain parses text without lists.
func (p *parser) plain(out *strings.Builder) bool {
	start := p.pos
	for p.pos < len(p.text) {
		c := p.text[p.pos]
		if c == '\\' {
			if p.pos+1 >= len(p.text) || strings.IndexByte(symbols+"=", p.text[p.pos+1]) < 0 {
				break
			}
			out.WriteByte(p.text[p.pos+1])
			p.pos += 2
			continue
		}
		n := plainLength(p.text[p.pos:])
		if n == 0 {
			break
		}
		out.WriteString(p.text[p.pos : p.pos+n])
		p.pos += n
	}
	return p.pos > start
}

// symbols are the characters of the language itself.
const symbols = "(){},.'\"\\|"

// plainLength returns the length of the character at the beginning of s if paths
// may contain it, otherwise 0.
func plainLength(s string) int {
	if c := s[0]; c < utf8.RuneSelf {
		if c <= ' ' || c == 0x7f || strings.IndexByte(symbols, c) >= 0 {
			return 0
		}
		return 1
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r) {
		return 0
	}
	return n
}

// list parses {a,b,c}, whose items may contain lists, but no dots.
func (p *parser) list(out *strings.Builder) bool {
	if p.pos >= len(p.text) || p.text[p.pos] != '{' {
		return false
	}
	before := p.pos
	var items strings.Builder
	if !p.items(&items, 0) {
		p.pos = before
		return false
	}
	out.WriteString(items.String())
	return true
}

func (p *parser) items(out *strings.Builder, level int) bool {
	if level > MaxDepth {
		p.exceed("lists are nested deeper than %d", MaxDepth)
		return false
	}
	out.WriteByte('{')
	p.pos++
	for {
		start := p.pos
		for p.plain(out) || p.pos < len(p.text) && p.text[p.pos] == '{' && p.items(out, level+1) {
		}
		if p.pos == start || p.pos >= len(p.text) || p.text[p.pos] != ',' && p.text[p.pos] != '}' {
			p.fail("a list is written as {a,b}, without dots and empty items")
			return false
		}
		out.WriteByte(p.text[p.pos])
		p.pos++
		if p.text[p.pos-1] == '}' {
			return true
		}
	}
}
