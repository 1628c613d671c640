package pytext

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Pattern is a regular expression. Graphite's expressions are Python's. Go's have no
// look-around and no back-references, but no expression takes more steps than its size times the
// length of the text. That is bounded too: nothing can end a match that has begun.
type Pattern struct {
	re    *regexp.Regexp
	inner *regexp.Regexp // nil if it has no empty match behind another match
	size  int            // in instructions, or a few more
}

const (
	// maxSize bounds the size of an expression. A list of 2,000 names has about 20,000.
	// Reading one of this size takes some 100 ms.
	maxSize = 1 << 15

	// maxMatchSteps bounds the steps of one match, each of which takes 10 to 20 ns.
	maxMatchSteps = 1 << 22

	// maxReplaceSteps bounds the steps of replacing all matches in a name. Most need far fewer: a
	// search may look at all that is left of the name, but seldom does.
	maxReplaceSteps = 1 << 26
)

// NewPattern reads an expression.
func NewPattern(expression string) (Pattern, error) {
	expression = strings.ReplaceAll(expression, `\Z`, `\z`)
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return Pattern{}, fmt.Errorf("the regular expression %.200q cannot be used: %v", expression, err)
	}
	size := sizeOf(tree)
	if size > maxSize {
		return Pattern{}, fmt.Errorf("the regular expression %.200q is too large: it has %d steps, with its repetitions; at most %d are allowed", expression, size, maxSize)
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return Pattern{}, fmt.Errorf("the regular expression %.200q cannot be used: %v", expression, err)
	}
	p := Pattern{re: re, size: size}
	if re.MatchString("") {
		p.inner = inner(tree)
	}
	return p, nil
}

// sizeOf is about how many instructions an expression has. It stops counting above maxSize.
func sizeOf(tree *syntax.Regexp) int {
	n := 1 + len(tree.Sub)
	if tree.Op == syntax.OpLiteral {
		n = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		if n += sizeOf(sub); n > maxSize {
			return n
		}
	}
	if tree.Op == syntax.OpRepeat {
		n *= max(tree.Max, tree.Min+1)
	}
	return n
}

// Matches reports whether some part of s matches.
func (p Pattern) Matches(s string) (bool, error) {
	if err := p.affords(s, maxMatchSteps); err != nil {
		return false, err
	}
	return p.re.MatchString(s), nil
}

// steps is how many steps a search in s takes at most.
func (p Pattern) steps(s string) int { return p.size * (len(s) + 1) }

func (p Pattern) affords(s string, most int) error {
	if steps := p.steps(s); steps > most {
		return fmt.Errorf("matching the regular expression %.100q with a name of %d bytes may take %d steps, and at most %d are allowed; use a shorter expression", p.re, len(s), steps, most)
	}
	return nil
}

// A Replacement is the parsed text that stands for a match: pieces of text and
// groups.
type Replacement []piece

type piece struct {
	text  string
	group int // used if text is empty
}

// escapes are the characters that a letter behind a backslash stands for.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\\': `\`}

// NewReplacement reads \1, \g<1>, \g<name> and escapes. Of the expression's
// groups those that took no part in a match are empty.
func (p Pattern) NewReplacement(s string) (Replacement, error) {
	var out Replacement
	for i := 0; i < len(s); {
		next := strings.IndexByte(s[i:], '\\')
		if next < 0 {
			return append(out, piece{text: s[i:]}), nil
		}
		if next > 0 {
			out = append(out, piece{text: s[i : i+next]})
		}
		i += next
		part, n, err := p.escape(s[i:])
		if err != nil {
			return nil, err
		}
		out = append(out, part)
		i += n
	}
	return out, nil
}

// escape reads what a backslash begins and returns its length.
func (p Pattern) escape(s string) (part piece, n int, err error) {
	if len(s) < 2 {
		return piece{}, 0, errors.New("a replacement ends in a backslash")
	}
	c := s[1]
	if text, ok := escapes[c]; ok {
		return piece{text: text}, 2, nil
	}
	switch {
	case c == 'g' && strings.HasPrefix(s[2:], "<") && strings.Contains(s, ">"):
		name := s[3:strings.IndexByte(s, '>')]
		part, err = p.group(name)
		return part, len(name) + 4, err
	case c >= '1' && c <= '9':
		n = 2
		if len(s) > 2 && s[2] >= '0' && s[2] <= '9' {
			n = 3
		}
		part, err = p.group(s[1:n])
		return part, n, err
	case c == '0':
		return piece{text: "\x00"}, 2, nil
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return piece{}, 0, fmt.Errorf("a replacement has the unknown escape \\%c", c)
	}
	_, size := utf8.DecodeRuneInString(s[1:])
	return piece{text: s[:1+size]}, 1 + size, nil
}

func (p Pattern) group(name string) (piece, error) {
	n, err := strconv.Atoi(name)
	if err != nil {
		n = p.re.SubexpIndex(name)
	}
	if n < 0 || n > p.re.NumSubexp() {
		return piece{}, fmt.Errorf("a replacement refers to the group %.64q, which the expression does not have", name)
	}
	return piece{group: n}, nil
}

// MaxReplaced bounds the length of a name that replacing makes, in bytes.
const MaxReplaced = 256 << 10

// Replace puts a replacement in place of each match. Unlike in Go, a match may
// be empty directly behind another one: replacing .* by x in "a" gives "xx".
func (p Pattern) Replace(s string, r Replacement) (string, error) {
	if err := p.affords(s, maxMatchSteps); err != nil {
		return "", err
	}
	var out strings.Builder
	end := 0 // of what is written
	most := maxReplaceSteps / p.steps(s)
	matches := p.re.FindAllStringSubmatchIndex(s, most+1)
	if len(matches) > most {
		return "", fmt.Errorf("the regular expression %.100q matches a name of %d bytes more than %d times; use a shorter expression", p.re, len(s), most)
	}
	for _, m := range matches {
		out.WriteString(s[end:m[0]])
		fits := r.expand(&out, s, m)
		end = m[1]
		if m[0] < m[1] {
			if empty := p.emptyAt(s, end); empty != nil {
				fits = fits && r.expand(&out, s, empty)
			}
		}
		if !fits {
			return "", fmt.Errorf("the replacement would make a name longer than %d bytes", MaxReplaced)
		}
	}
	out.WriteString(s[end:])
	return out.String(), nil
}

// expand writes what stands for a match, and reports whether it is not too
// long.
func (r Replacement) expand(out *strings.Builder, s string, match []int) bool {
	for _, part := range r {
		if out.Len() > MaxReplaced {
			return false
		}
		if part.text != "" {
			out.WriteString(part.text)
		} else if from, to := match[2*part.group], match[2*part.group+1]; from >= 0 {
			out.WriteString(s[from:to])
		}
	}
	return out.Len() <= MaxReplaced
}

// ReplaceAll is strings.ReplaceAll with MaxReplaced as a bound on the result.
func ReplaceAll(s, old, new string) (string, error) {
	if grown := strings.Count(s, old) * (len(new) - len(old)); len(s)+grown > MaxReplaced {
		return "", fmt.Errorf("replacing %.32s would make a text longer than %d bytes", old, MaxReplaced)
	}
	return strings.ReplaceAll(s, old, new), nil
}

// emptyAt returns the empty match at a place behind another match, or nil.
func (p Pattern) emptyAt(s string, at int) []int {
	if p.inner == nil {
		return nil
	}
	m := p.inner.FindStringSubmatchIndex(s[at:])
	if m == nil || m[1] != 0 {
		return nil
	}
	for i := range m {
		if m[i] >= 0 {
			m[i] += at
		}
	}
	return m
}

// inner returns an expression without the alternatives that match only at the
// beginning of a text, or nil if it cannot match the empty text then.
func inner(tree *syntax.Regexp) *regexp.Regexp {
	withoutBegin(tree)
	re, err := regexp.Compile(tree.String())
	if err != nil || !re.MatchString("") {
		return nil
	}
	return re
}

func withoutBegin(tree *syntax.Regexp) {
	if tree.Op == syntax.OpBeginText || tree.Op == syntax.OpBeginLine {
		tree.Op = syntax.OpNoMatch
	}
	for _, sub := range tree.Sub {
		withoutBegin(sub)
	}
}
