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

// A Pattern is a regular expression. Graphite's are Python's. Go's lack look-around and
// back-references, but a match takes at most as many steps as the size of the expression times the
// length of the text. This product is limited, too, because a match cannot be interrupted.
type Pattern struct {
	re    *regexp.Regexp
	inner *regexp.Regexp // for empty matches directly after a match; nil if there are none
	size  int            // about the number of instructions, or a few more
}

const (
	// maxSize limits the size of an expression. A list of 2,000 names has about 20,000.
	// Compiling an expression of this size takes some 100 ms.
	maxSize = 1 << 15

	// maxMatchSteps limits the steps of one match, each of which takes 10 to 20 ns.
	maxMatchSteps = 1 << 22

	// maxReplaceSteps limits the steps of replacing all matches in a name. It assumes that each
	// search reads the whole name, which few do.
	maxReplaceSteps = 1 << 26
)

// NewPattern compiles an expression.
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

// sizeOf estimates the number of instructions of an expression. It stops counting above maxSize.
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
	if err := p.affords(s); err != nil {
		return false, err
	}
	return p.re.MatchString(s), nil
}

// steps returns the largest number of steps that a search in s can take.
func (p Pattern) steps(s string) int { return p.size * (len(s) + 1) }

func (p Pattern) affords(s string) error {
	if steps := p.steps(s); steps > maxMatchSteps {
		return fmt.Errorf("matching the regular expression %.100q with a name of %d bytes may take %d steps, and at most %d are allowed; use a shorter expression", p.re, len(s), steps, maxMatchSteps)
	}
	return nil
}

// A Replacement is the parsed text that replaces a match: literal pieces and
// references to groups.
type Replacement []piece

type piece struct {
	text  string
	group int // used if text is empty
}

// escapes are the characters of escape sequences, by the character after the backslash.
var escapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\\': `\`}

// NewReplacement parses a replacement with \1, \g<1>, \g<name> and escapes. A
// group that took no part in a match is empty.
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

// escape parses an escape sequence or a reference to a group, and returns its length.
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

// MaxReplaced limits the length of a name after replacing, in bytes.
const MaxReplaced = 256 << 10

// Replace replaces each match. Unlike in Go, an empty match may directly follow
// another match: replacing .* by x in "a" gives "xx".
func (p Pattern) Replace(s string, r Replacement) (string, error) {
	if err := p.affords(s); err != nil {
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

// expand writes the replacement of a match. It returns false if the result is
// longer than MaxReplaced.
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

// ReplaceAll is strings.ReplaceAll with the limit MaxReplaced.
func ReplaceAll(s, old, new string) (string, error) {
	if grown := strings.Count(s, old) * (len(new) - len(old)); len(s)+grown > MaxReplaced {
		return "", fmt.Errorf("replacing %.32s would make a text longer than %d bytes", old, MaxReplaced)
	}
	return strings.ReplaceAll(s, old, new), nil
}

// emptyAt returns the empty match at the end of another match, or nil.
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

// inner removes from an expression what matches only at the beginning of a text. It
// returns nil if the result cannot match the empty text.
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
