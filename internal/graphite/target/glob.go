package target

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// MaxAlternatives limits the texts to which the lists of a node are expanded. A
// node with more is matched only as a pattern.
const MaxAlternatives = 1024

// A Glob is the pattern of a path: one Node for each level.
//
//	?        one character
//	*        any characters in a node, or none
//	[a-z0]   one character of a set; [!a] one that is not in it
//	{a,b*}   one of several patterns
//	**       as a whole node: any number of levels
type Glob struct{ Nodes []Node }

// A Node is the pattern of one level of a path. To find names, look up the
// literals if there are any; otherwise scan the names with the prefix, and check
// each with Match.
type Node struct {
	text     string
	literals []string // all texts that match, sorted; nil if too many
	prefix   string
	any      bool           // every name matches
	pattern  *regexp.Regexp // nil if literals or any suffice
}

// ParseGlob compiles the pattern of a path. Unclosed braces and brackets are
// literal.
func ParseGlob(path string) (Glob, error) {
	if len(path) > MaxLength {
		return Glob{}, fmt.Errorf("a path is longer than %d bytes", MaxLength)
	}
	texts := strings.Split(path, ".")
	g := Glob{Nodes: make([]Node, len(texts))}
	room := maxExpanded
	for i, text := range texts {
		n, err := compile(text, &room)
		if err != nil {
			return Glob{}, fmt.Errorf("the pattern %.64q of a path: %w", text, err)
		}
		g.Nodes[i] = n
	}
	return g, nil
}

// IsLiteral reports whether path has no wildcard, so that it matches only itself.
func IsLiteral(path string) bool { return !strings.ContainsAny(path, "*?[]{}") }

// maxNode limits the pattern of one node, in bytes.
const maxNode = 16 << 10

// maxExpanded limits the bytes that are copied to expand the lists of all nodes of a path. A
// node for which this is not enough becomes a regular expression.
const maxExpanded = 4 << 20

// compile compiles a node. It takes what it copies from room.
func compile(text string, room *int) (Node, error) {
	if len(text) > maxNode {
		return Node{}, fmt.Errorf("longer than %d bytes", maxNode)
	}
	n := Node{text: text, any: text == "*" || text == "**"}
	if IsLiteral(text) {
		n.literals, n.prefix = []string{text}, text
		return n, nil
	}
	if n.any {
		return n, nil
	}
	if texts, ok := alternatives(text, room); ok {
		slices.Sort(texts)
		n.literals = slices.Compact(texts)
		n.prefix = commonPrefix(n.literals)
		return n, nil
	}
	t := newTranslator(text)
	pattern, err := regexp.Compile(`(?s)\A(?:` + t.translate() + `)\z`)
	if err != nil {
		return Node{}, err
	}
	n.pattern = pattern
	n.prefix = text[:strings.IndexAny(text, "*?[]{}")]
	return n, nil
}

// Match reports whether the name of one node matches.
func (n Node) Match(name string) bool {
	switch {
	case n.any:
		return true
	case n.pattern != nil:
		return n.pattern.MatchString(name)
	case len(n.literals) == 1:
		return n.literals[0] == name
	}
	_, found := slices.BinarySearch(n.literals, name)
	return found
}

// Literals returns all names that match, sorted, or nil if they are more than
// MaxAlternatives. The caller must not change the slice.
func (n Node) Literals() []string { return n.literals }

// Prefix returns the prefix that all matching names have in common.
func (n Node) Prefix() string { return n.prefix }

// AnyDepth reports whether the node is **, which matches any number of levels.
func (n Node) AnyDepth() bool { return n.text == "**" }

// Any reports whether every name matches.
func (n Node) Any() bool { return n.any }

// Match reports whether a whole path matches. A ** matches zero or more levels;
// as the last node, one or more.
func (g Glob) Match(path string) bool {
	names := strings.Split(path, ".")
	// fits[i] is true if the nodes so far match names[:i].
	fits := make([]bool, len(names)+1)
	fits[0] = true
	for k, n := range g.Nodes {
		next := make([]bool, len(names)+1)
		reached := false
		for i, ok := range fits {
			if n.AnyDepth() {
				if k == len(g.Nodes)-1 {
					next[i] = reached
				} else {
					next[i] = reached || ok
				}
				reached = reached || ok
			} else if ok && i < len(names) && n.Match(names[i]) {
				next[i+1] = true
			}
		}
		fits = next
	}
	return fits[len(names)]
}

// alternatives expands a text with lists and no other wildcard. It returns false
// if there are more than MaxAlternatives texts, or no room for them.
func alternatives(text string, room *int) ([]string, bool) {
	if strings.ContainsAny(text, "*?[]") {
		return nil, false
	}
	t := newTranslator(text)
	t.room = room
	out := t.expand(0)
	return out, !t.large
}

// A translator parses the pattern of one node.
type translator struct {
	text   string
	pos    int
	closes map[int]bool // positions of opening braces that have a closing one
	large  bool         // too many alternatives
	room   *int         // for alternatives, in bytes
}

// expand returns all texts that match the pattern from pos on, up to the end of
// the list item if level > 0.
func (t *translator) expand(level int) []string {
	out := []string{""}
	for t.pos < len(t.text) && !t.large {
		c := t.text[t.pos]
		if level > 0 && (c == ',' || c == '}') {
			return out
		}
		if c == '{' && t.closes[t.pos] {
			out = t.product(out, t.choices(level))
			continue
		}
		start := t.pos
		for t.pos++; t.pos < len(t.text) && strings.IndexByte("{},", t.text[t.pos]) < 0; t.pos++ {
		}
		out = t.product(out, []string{t.text[start:t.pos]})
	}
	return out
}

// choices expands the items of the list at pos.
func (t *translator) choices(level int) []string {
	var items []string
	for t.pos++; !t.large; t.pos++ {
		items = append(items, t.expand(level+1)...)
		if len(items) > MaxAlternatives || level > MaxDepth {
			t.large = true
		}
		if t.pos >= len(t.text) || t.text[t.pos] == '}' {
			t.pos++
			return items
		}
	}
	return items
}

func (t *translator) product(heads, tails []string) []string {
	if t.large || len(heads)*len(tails) > MaxAlternatives {
		t.large = true
		return heads
	}
	if *t.room -= len(tails)*sizeOf(heads) + len(heads)*sizeOf(tails); *t.room < 0 {
		t.large = true
		return heads
	}
	out := make([]string, 0, len(heads)*len(tails))
	for _, h := range heads {
		for _, tail := range tails {
			out = append(out, h+tail)
		}
	}
	return out
}

// sizeOf returns the memory of texts.
func sizeOf(texts []string) int {
	size := len(texts) * 16 // a pointer and a length each
	for _, text := range texts {
		size += len(text)
	}
	return size
}

// newTranslator returns a translator, and finds the closed lists of the pattern.
func newTranslator(text string) *translator {
	t := &translator{text: text, closes: map[int]bool{}}
	var open []int
	for i := range len(text) {
		switch {
		case text[i] == '{':
			open = append(open, i)
		case text[i] == '}' && len(open) > 0:
			t.closes[open[len(open)-1]] = true
			open = open[:len(open)-1]
		}
	}
	return t
}

// translate returns the regular expression of the pattern.
func (t *translator) translate() string {
	var out strings.Builder
	level := 0
	for t.pos < len(t.text) {
		c := t.text[t.pos]
		t.pos++
		switch {
		case c == '*':
			out.WriteString(".*")
		case c == '?':
			out.WriteByte('.')
		case c == '[':
			out.WriteString(t.set())
		case c == '{' && t.closes[t.pos-1]:
			out.WriteString("(?:")
			level++
		case c == '}' && level > 0:
			out.WriteByte(')')
			level--
		case c == ',' && level > 0:
			out.WriteByte('|')
		default:
			start := t.pos - 1
			for t.pos < len(t.text) && strings.IndexByte("*?[]{},", t.text[t.pos]) < 0 {
				t.pos++
			}
			out.WriteString(regexp.QuoteMeta(t.text[start:t.pos]))
		}
	}
	return out.String()
}

// set translates [abc], [a-z] and [!abc]; pos is after the opening bracket. An
// unclosed bracket is literal.
func (t *translator) set() string {
	rest := t.text[t.pos:]
	first := 0
	if strings.HasPrefix(rest, "!") {
		first = 1
	}
	if first < len(rest) && rest[first] == ']' {
		first++ // a closing bracket in the first place is a member
	}
	end := strings.IndexByte(rest[min(first, len(rest)):], ']')
	if end < 0 {
		return `\[`
	}
	end += first
	t.pos += end + 1
	members := []rune(strings.TrimPrefix(rest[:end], "!"))
	body := setBody(members)
	switch {
	case body == "" && rest[0] == '!':
		return "."
	case body == "":
		return `[^\x00-\x{10FFFF}]` // only empty ranges: nothing matches
	case rest[0] == '!':
		return "[^" + body + "]"
	}
	return "[" + body + "]"
}

func setBody(members []rune) string {
	var out strings.Builder
	for i := 0; i < len(members); i++ {
		if i+2 < len(members) && members[i+1] == '-' {
			if members[i] <= members[i+2] {
				fmt.Fprintf(&out, `\x{%x}-\x{%x}`, members[i], members[i+2])
			}
			i += 2
			continue
		}
		fmt.Fprintf(&out, `\x{%x}`, members[i])
	}
	return out.String()
}

func commonPrefix(sorted []string) string {
	first, last := sorted[0], sorted[len(sorted)-1]
	n := 0
	for n < len(first) && n < len(last) && first[n] == last[n] {
		n++
	}
	return first[:n]
}
