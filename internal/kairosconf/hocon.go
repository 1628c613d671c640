package kairosconf

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Values of HOCON. A scalar is a string, even if it looks like a number; null is nil.
type (
	object map[string]any
	list   []any
	joined []any // a concatenation of strings and substitutions
	lookup struct {
		path     string
		optional bool
		line     int
	}
)

// maxDepth limits the nesting of objects and lists, and the parts of a key. Substitutions
// may be nested twice as deep.
const maxDepth = 50

// parseHOCON parses a document. Substitutions of keys that it does not have are looked up
// in getenv.
func parseHOCON(text string, getenv func(string) (string, bool)) (object, error) {
	p := &hoconParser{text: strings.TrimPrefix(text, "\ufeff"), line: 1}
	root, err := p.document()
	if err == nil {
		r := &resolver{root: root, getenv: getenv}
		var v any
		if v, err = r.value(root, 0); err == nil {
			return v.(object), nil
		}
	}
	return nil, err
}

type hoconParser struct {
	text  string
	at    int
	line  int
	depth int
}

func (p *hoconParser) fail(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", p.line, fmt.Sprintf(format, args...))
}

func (p *hoconParser) peek() byte {
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// column returns the position in the line, from 1. Messages do not quote the text there:
// it may be part of a password.
func (p *hoconParser) column() int { return p.at - strings.LastIndexByte(p.text[:p.at], '\n') }

func (p *hoconParser) has(prefix string) bool { return strings.HasPrefix(p.text[p.at:], prefix) }

// blanks skips white space within the line.
func (p *hoconParser) blanks() {
	for p.at < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if r == '\n' || !unicode.IsSpace(r) && r != '\ufeff' {
			return
		}
		p.at += n
	}
}

// gap skips white space and comments. It reports whether it skipped a line break.
func (p *hoconParser) gap() (ended bool) {
	for {
		p.blanks()
		switch {
		case p.has("#") || p.has("//"):
			if end := strings.IndexByte(p.text[p.at:], '\n'); end >= 0 {
				p.at += end
			} else {
				p.at = len(p.text)
			}
		case p.has("\n"):
			p.at++
			p.line++
			ended = true
		default:
			return ended
		}
	}
}

func (p *hoconParser) document() (object, error) {
	p.gap()
	root := object{}
	if p.has("{") {
		if err := p.object(root); err != nil {
			return nil, err
		}
	} else if err := p.members(root, false); err != nil {
		return nil, err
	}
	p.gap()
	if p.at < len(p.text) {
		return nil, p.fail("there is text after the end of the configuration, from column %d on", p.column())
	}
	return root, nil
}

func (p *hoconParser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return p.fail("nested deeper than %d", maxDepth)
	}
	return nil
}

// object parses { ... } into o.
func (p *hoconParser) object(o object) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer func() { p.depth-- }()
	p.at++
	return p.members(o, true)
}

// members parses keys and values into o, up to a closing brace or the end.
func (p *hoconParser) members(o object, braced bool) error {
	for {
		p.gap()
		switch {
		case p.at == len(p.text):
			if braced {
				return p.fail("a { is not closed")
			}
			return nil
		case p.has("}"):
			if !braced {
				return p.fail("a } without {")
			}
			p.at++
			return nil
		}
		if err := p.member(o); err != nil {
			return err
		}
		ended := p.gap()
		if p.has(",") {
			p.at++
		} else if !ended && p.at < len(p.text) && !p.has("}") {
			return p.fail("want a comma or the end of the line at column %d", p.column())
		}
	}
}

func (p *hoconParser) member(o object) error {
	if p.has("include ") || p.has("include\t") {
		return p.fail("include is not read here; put the text of that file into this one")
	}
	path, err := p.path()
	if err != nil {
		return err
	}
	p.gap()
	add := false
	switch {
	case p.has("{"):
	case p.has("+="):
		p.at += 2
		add = true
	case p.has(":"), p.has("="):
		p.at++
	default:
		return p.fail("%s: want : or = or {", strings.Join(path, "."))
	}
	for _, name := range path[:len(path)-1] {
		inner, ok := o[name].(object)
		if !ok {
			inner = object{}
			o[name] = inner
		}
		o = inner
	}
	name := path[len(path)-1]
	p.gap()
	v, err := p.value()
	if err != nil {
		return err
	}
	if add {
		before, _ := o[name].(list)
		v = append(before[:len(before):len(before)], v)
	}
	o[name] = merged(o[name], v)
	return nil
}

// merged returns the value of a key that is set to v after it had the value before.
func merged(before, v any) any {
	a, ok := before.(object)
	b, both := v.(object)
	if !ok || !both {
		return v
	}
	for name, inner := range b {
		a[name] = merged(a[name], inner)
	}
	return a
}

// path parses a key. It splits the key at dots outside quotes.
func (p *hoconParser) path() ([]string, error) {
	var path []string
	var part strings.Builder
	quoted := false
	for {
		switch c := p.peek(); {
		case c == '"':
			s, err := p.quoted()
			if err != nil {
				return nil, err
			}
			part.WriteString(s)
			quoted = true
			continue
		case c == '.' || c == ':' || c == '=' || c == '{' || p.has("+=") || c == '\n' || c == 0:
			name := part.String()
			if !quoted {
				name = strings.TrimSpace(name)
			}
			if name == "" && !quoted {
				return nil, p.fail("a key without a name")
			}
			path = append(path, name)
			if c != '.' {
				return path, nil
			}
			part.Reset()
			quoted = false
		case strings.IndexByte(`}[],$`+"`"+`^?!@*&\#`, c) >= 0 || p.has("//"):
			return nil, p.fail("%q in a key", c)
		case (quoted || part.Len() == 0) && (c == ' ' || c == '\t' || c == '\r'):
		default:
			part.WriteByte(c)
		}
		p.at++
		if len(path) > maxDepth {
			return nil, p.fail("a key of more than %d parts", maxDepth)
		}
	}
}

// value parses the value of a key or an item of a list, up to the end of the line, a
// comma or a closing bracket or brace.
func (p *hoconParser) value() (any, error) {
	var parts joined
	for {
		from := p.at
		p.blanks()
		blank := p.text[from:p.at]
		v, err := p.part()
		if err != nil {
			return nil, err
		}
		if v == nil {
			break
		}
		if blank != "" && len(parts) > 0 {
			parts = append(parts, blank)
		}
		parts = append(parts, v)
	}
	switch len(parts) {
	case 0:
		return nil, p.fail("a value is missing")
	case 1:
		if word, ok := parts[0].(plain); ok {
			if word == "null" {
				return nil, nil
			}
			return string(word), nil
		}
		return parts[0], nil
	}
	return p.join(parts)
}

// join concatenates the parts of a value: objects are merged, lists appended, and strings
// and substitutions become a joined value.
func (p *hoconParser) join(parts joined) (any, error) {
	var all any
	texts, others := joined{}, 0
	for _, v := range parts {
		switch v := v.(type) {
		case object:
			all = merged(all, v)
			others++
		case list:
			before, _ := all.(list)
			all = append(before, v...)
			others++
		case plain:
			texts = append(texts, string(v))
		case string:
			if others == 0 || strings.TrimSpace(v) != "" {
				texts = append(texts, v)
			}
		default:
			texts = append(texts, v)
		}
	}
	switch {
	case others == 0:
		return texts, nil
	case len(texts) > 0:
		return nil, p.fail("texts or ${} beside an object or a list are not read here; write out what they stand for")
	}
	return all, nil
}

// plain is a string without quotes.
type plain string

// part parses one part of a value. It returns nil at the end of the value.
func (p *hoconParser) part() (any, error) {
	switch c := p.peek(); {
	case c == 0 || c == '\n' || c == ',' || c == '}' || c == ']' || c == '#' || p.has("//"):
		return nil, nil
	case c == '{':
		o := object{}
		return o, p.object(o)
	case c == '[':
		return p.list()
	case c == '"':
		return p.quoted()
	case p.has("${"):
		return p.lookup()
	}
	from := p.at
	for p.at < len(p.text) && strings.IndexByte("\n,}]#\"{[", p.text[p.at]) < 0 && !p.has("//") && !p.has("${") {
		p.at++
	}
	text := strings.TrimRightFunc(p.text[from:p.at], unicode.IsSpace)
	p.at = from + len(text)
	if text == "" {
		return nil, p.fail("a byte %#x where a value should be", p.peek())
	}
	return plain(text), nil
}

func (p *hoconParser) list() (any, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.at++
	items := list{}
	for {
		p.gap()
		switch {
		case p.at == len(p.text):
			return nil, p.fail("a [ is not closed")
		case p.has("]"):
			p.at++
			return items, nil
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		items = append(items, v)
		ended := p.gap()
		if p.has(",") {
			p.at++
		} else if !ended && !p.has("]") && p.at < len(p.text) {
			return nil, p.fail("want a comma or ] at column %d", p.column())
		}
	}
}

// quoted parses "..." or """...""".
func (p *hoconParser) quoted() (string, error) {
	if p.has(`"""`) {
		end := strings.Index(p.text[p.at+3:], `"""`)
		if end < 0 {
			return "", p.fail(`a """ is not closed`)
		}
		text := p.text[p.at+3 : p.at+3+end]
		p.at += end + 6
		p.line += strings.Count(text, "\n")
		return text, nil
	}
	for end := p.at + 1; end < len(p.text) && p.text[end] != '\n'; end++ {
		switch p.text[end] {
		case '\\':
			end++
		case '"':
			text, err := unescaped(p.text[p.at+1 : end])
			if err != nil {
				return "", p.fail("%v", err)
			}
			p.at = end + 1
			return text, nil
		}
	}
	return "", p.fail("a quote is not closed")
}

// unescaped replaces JSON's escapes.
func unescaped(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	s = strings.ReplaceAll(s, `\/`, `/`)
	text, err := strconv.Unquote(`"` + s + `"`)
	if err != nil {
		return "", errors.New("a text with an escape that JSON does not have") // not the text: it may be a password
	}
	return text, nil
}

func (p *hoconParser) lookup() (any, error) {
	end := strings.IndexAny(p.text[p.at:], "}\n")
	if end < 0 || p.text[p.at+end] != '}' {
		return nil, p.fail("a ${ is not closed")
	}
	path := p.text[p.at+2 : p.at+end]
	p.at += end + 1
	name, optional := strings.CutPrefix(path, "?")
	return lookup{strings.TrimSpace(strings.ReplaceAll(name, `"`, "")), optional, p.line}, nil
}

// A resolver replaces substitutions.
type resolver struct {
	root   object
	getenv func(string) (string, bool)
	steps  int
}

// maxSteps limits the values that are resolved: nested substitutions can multiply them.
const maxSteps = 100_000

var errTooDeep = errors.New("substitutions that are circular, or nested too deep")

func (r *resolver) value(v any, depth int) (any, error) {
	if r.steps++; depth > 2*maxDepth || r.steps > maxSteps {
		return nil, errTooDeep
	}
	switch v := v.(type) {
	case object:
		o := make(object, len(v))
		for name, inner := range v {
			found, err := r.value(inner, depth+1)
			if err != nil {
				return nil, err
			}
			if found != (absent{}) {
				o[name] = found
			}
		}
		return o, nil
	case list:
		items := make(list, 0, len(v))
		for _, inner := range v {
			found, err := r.value(inner, depth+1)
			if err != nil {
				return nil, err
			}
			if found != (absent{}) {
				items = append(items, found)
			}
		}
		return items, nil
	case joined:
		return r.join(v, depth)
	case lookup:
		return r.lookup(v, depth)
	}
	return v, nil
}

// absent is the value of an optional substitution whose key is not defined.
type absent struct{}

func (r *resolver) join(parts joined, depth int) (any, error) {
	var b strings.Builder
	for _, part := range parts {
		v, err := r.value(part, depth+1)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case string:
			b.WriteString(v)
		case nil, absent:
		default:
			return nil, errors.New("a substitution within a text is not a text")
		}
		if b.Len() > 1<<20 {
			return nil, errTooDeep
		}
	}
	return b.String(), nil
}

func (r *resolver) lookup(l lookup, depth int) (any, error) {
	var at any = r.root
	for part := range strings.SplitSeq(l.path, ".") {
		o, _ := at.(object)
		next, ok := o[strings.TrimSpace(part)]
		if !ok {
			at = absent{}
			break
		}
		at = next
	}
	if at != (absent{}) {
		return r.value(at, depth+1)
	}
	if text, ok := r.getenv(l.path); ok {
		return text, nil
	}
	if l.optional {
		return absent{}, nil
	}
	return nil, fmt.Errorf("line %d: ${%s}: neither in the file nor in the environment", l.line, l.path)
}
