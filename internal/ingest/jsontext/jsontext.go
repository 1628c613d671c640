// Package jsontext reads JSON from bytes without building a tree: the caller
// walks objects and arrays and takes or skips what it finds. It is as lenient
// as KairosDB's reader: unquoted and single-quoted texts, comments, anything
// after the value. It does no I/O and allocates only for errors. It also writes texts, see AppendText.
//
// A Scanner is a small value: a copy is a place to come back to.
package jsontext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"varve/internal/ingest/decimal"
)

// MaxEscape is the length of the longest escape, \u0041, which may stand for a single
// byte.
const MaxEscape = 6

// Kind says what a token is.
type Kind uint8

const (
	Object Kind = iota // the opening brace was read
	Array              // the opening bracket was read
	String             // in quotes
	Number             // a literal by JSON's number grammar
	True
	False
	Null
	Word // any other literal
)

var kindNames = [...]string{"BEGIN_OBJECT", "BEGIN_ARRAY", "STRING", "NUMBER", "BOOLEAN", "BOOLEAN", "NULL", "STRING"}

// String returns the name that KairosDB's reader has for k in messages.
func (k Kind) String() string { return kindNames[k] }

// Scalar reports whether k is neither an object nor an array.
func (k Kind) Scalar() bool { return k >= String }

// A Token is a scalar, or the beginning of an object or array.
type Token struct {
	Kind    Kind
	Escaped bool   // Text holds backslashes: see Unescape
	Start   int    // offset of its first byte
	Text    []byte // content without quotes; shares the input's memory
}

// A SyntaxError is text that is not even lenient JSON.
type SyntaxError struct {
	Reason       string
	Line, Column int  // from 1, in UTF-16 code units as KairosDB counts
	AtEnd        bool // the text ends where something must follow
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at line %d column %d", e.Reason, e.Line, e.Column)
}

// maxDepth bounds nesting inside a skipped value.
const maxDepth = 256

// A Scanner reads one text.
type Scanner struct {
	data []byte
	pos  int
	mark mark // where Position last was
}

type mark struct{ offset, line, column int }

var byteOrderMark = []byte("\xef\xbb\xbf")

// New returns a Scanner over data, after a byte order mark.
func New(data []byte) Scanner {
	s := Scanner{data: data}
	if bytes.HasPrefix(data, byteOrderMark) {
		s.pos = len(byteOrderMark)
	}
	return s
}

// Offset is the offset of the next byte.
func (s *Scanner) Offset() int { return s.pos }

// Seek moves to an offset that Offset returned before.
func (s *Scanner) Seek(offset int) { s.pos = offset }

// Bytes returns the input between two offsets.
func (s *Scanner) Bytes(from, to int) []byte { return s.data[from:to] }

// Rest returns the input from the next byte on.
func (s *Scanner) Rest() []byte { return s.data[s.pos:] }

// Errorf makes a SyntaxError at the present place.
func (s *Scanner) Errorf(format string, args ...any) *SyntaxError {
	line, column := s.Position(s.pos)
	return &SyntaxError{Reason: fmt.Sprintf(format, args...), Line: line, Column: column}
}

// behind makes a SyntaxError one byte further on: KairosDB's reader notices that a byte is wrong
// after it has read it.
func (s *Scanner) behind(reason string) *SyntaxError {
	line, column := s.Position(s.pos)
	return &SyntaxError{Reason: reason, Line: line, Column: column + 1}
}

// unterminated describes the byte that should have closed what is still open.
func (s *Scanner) unterminated(closing byte) *SyntaxError {
	if closing == '}' {
		return s.behind("Unterminated object")
	}
	return s.behind("Unterminated array")
}

func (s *Scanner) atEnd() *SyntaxError {
	e := s.Errorf("End of input")
	e.AtEnd = true
	return e
}

// Position returns line and column of an offset, both from 1. Asking for
// ascending offsets walks the text once.
func (s *Scanner) Position(offset int) (line, column int) {
	if s.mark.line == 0 || offset < s.mark.offset {
		s.mark = mark{line: 1, column: 1}
		if bytes.HasPrefix(s.data, byteOrderMark) {
			s.mark.offset = len(byteOrderMark)
		}
	}
	m := &s.mark
	for m.offset < offset {
		r, n := utf8.DecodeRune(s.data[m.offset:])
		m.offset += n
		if r == '\n' {
			m.line, m.column = m.line+1, 1
		} else {
			m.column += max(1, utf16.RuneLen(r))
		}
	}
	return m.line, m.column
}

// Peek skips blanks and comments and returns the next byte, without reading it.
func (s *Scanner) Peek() (byte, *SyntaxError) {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\n', '\r', '\t', '\f':
			s.pos++
		case '/', '#':
			if err := s.comment(); err != nil {
				return 0, err
			}
		default:
			return c, nil
		}
	}
	return 0, s.atEnd()
}

func (s *Scanner) comment() *SyntaxError {
	rest := s.data[s.pos:]
	if bytes.HasPrefix(rest, []byte("/*")) {
		end := bytes.Index(rest[2:], []byte("*/"))
		if end < 0 {
			return s.Errorf("Unterminated comment")
		}
		s.pos += 2 + end + 2
		return nil
	}
	if rest[0] == '/' && !bytes.HasPrefix(rest, []byte("//")) {
		return s.Errorf("Expected value")
	}
	if end := bytes.IndexByte(rest, '\n'); end >= 0 {
		s.pos += end + 1
	} else {
		s.pos = len(s.data)
	}
	return nil
}

// Next reads a scalar, or the beginning of an object or array.
func (s *Scanner) Next() (Token, *SyntaxError) {
	c, err := s.Peek()
	if err != nil {
		return Token{}, err
	}
	start := s.pos
	switch c {
	case '{':
		s.pos++
		return Token{Kind: Object, Start: start}, nil
	case '[':
		s.pos++
		return Token{Kind: Array, Start: start}, nil
	case '"', '\'':
		return s.quoted(c)
	}
	end := start // s.pos itself would be written to memory for every byte
	for end < len(s.data) && !ends[s.data[end]] {
		end++
	}
	s.pos = end
	t := Token{Start: start, Text: s.data[start:s.pos]}
	if len(t.Text) == 0 {
		return t, s.Errorf("Expected value")
	}
	t.Kind = literalKind(t.Text)
	return t, nil
}

// ends marks the bytes that end an unquoted literal.
var ends = func() (t [256]bool) {
	for _, c := range "/\\;#={}[]:, \t\f\r\n\"" {
		t[c] = true
	}
	return t
}()

func literalKind(text []byte) Kind {
	if n := decimal.Scan(text); n.Len == len(text) && n.JSON {
		return Number
	}
	switch {
	case bytes.EqualFold(text, []byte("true")):
		return True
	case bytes.EqualFold(text, []byte("false")):
		return False
	case bytes.EqualFold(text, []byte("null")):
		return Null
	}
	return Word
}

func (s *Scanner) quoted(quote byte) (Token, *SyntaxError) {
	start := s.pos
	rest := s.data[start+1:]
	end := bytes.IndexByte(rest, quote)
	escaped := end > 0 && bytes.IndexByte(rest[:end], '\\') >= 0
	if escaped {
		end = escapedEnd(rest, quote)
	}
	if end < 0 {
		s.pos = len(s.data)
		return Token{}, s.Errorf("Unterminated string")
	}
	s.pos = start + 1 + end + 1
	return Token{Kind: String, Escaped: escaped, Start: start, Text: rest[:end]}, nil
}

// skipQuoted skips a quoted text. Most are short and without escapes.
func (s *Scanner) skipQuoted(quote byte) *SyntaxError {
	for i, c := range s.data[s.pos+1:] {
		if c == quote {
			s.pos += i + 2
			return nil
		}
		if c == '\\' {
			break
		}
	}
	_, err := s.quoted(quote)
	return err
}

// escapedEnd finds the closing quote of a text that has escapes, -1 if none.
func escapedEnd(text []byte, quote byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case quote:
			return i
		case '\\':
			i++
		}
	}
	return -1
}

// More reports whether another member or element follows, and reads the comma
// before it or the closing byte after the last one. first is true right after
// the opening byte.
func (s *Scanner) More(closing byte, first bool) (bool, *SyntaxError) {
	c, err := s.Peek()
	if err != nil {
		return false, err
	}
	if c == closing {
		s.pos++
		return false, nil
	}
	if first {
		return true, nil
	}
	if c != ',' && c != ';' {
		return false, s.unterminated(closing)
	}
	s.pos++
	return true, nil
}

// Name reads a member's name and the colon after it.
func (s *Scanner) Name() (Token, *SyntaxError) {
	c, err := s.Peek()
	if err != nil {
		return Token{}, err
	}
	var t Token
	switch c {
	case '"':
		t, err = s.quoted(c)
	case '{', '[', '}', ']':
		return Token{}, s.behind("Expected name")
	default:
		if ends[c] {
			return Token{}, s.Errorf("Expected name")
		}
		t, err = s.Next()
	}
	if err != nil {
		return t, err
	}
	if s.pos < len(s.data) && s.data[s.pos] == ':' {
		s.pos++
		return t, nil
	}
	if c, err = s.Peek(); err != nil {
		return t, err
	}
	if c != ':' {
		return t, s.behind("Expected ':'")
	}
	s.pos++
	return t, nil
}

// Skip reads the rest of an object or array after its opening byte. Inside it,
// only nesting, texts and comments are looked at.
func (s *Scanner) Skip(opened Kind) *SyntaxError {
	var open [maxDepth]byte // closing bytes that are awaited
	open[0] = closingOf(opened)
	depth := 1
	inside := -1 // a single quote that is part of a literal
	for depth > 0 {
		at := s.pos // s.pos itself would be written to memory for every byte
		for at < len(s.data) && !nests[s.data[at]] {
			at++
		}
		s.pos = at
		if s.pos == len(s.data) {
			return s.atEnd()
		}
		switch c := s.data[s.pos]; c {
		case '[', '{':
			if depth == maxDepth {
				return s.Errorf("Nested deeper than %d", maxDepth)
			}
			open[depth] = c + 2 // in ASCII, ] is [ + 2 and } is { + 2
			depth++
			s.pos++
		case ']', '}':
			if open[depth-1] != c {
				return s.unterminated(open[depth-1])
			}
			depth--
			s.pos++
		case '"', '\'':
			// As in Next, a quote in the middle of a literal is part of it
			// when single, and a text of its own when double.
			if c == '\'' && (s.inLiteral() || inside == s.pos-1) {
				inside = s.pos
				s.pos++
				continue
			}
			if err := s.skipQuoted(c); err != nil {
				return err
			}
		default: // / or #
			if err := s.comment(); err != nil {
				return err
			}
		}
	}
	return nil
}

// inLiteral reports whether the byte before the next one belongs to an unquoted
// literal.
func (s *Scanner) inLiteral() bool {
	return s.pos > 0 && !ends[s.data[s.pos-1]] && s.data[s.pos-1] != '\''
}

func closingOf(k Kind) byte {
	if k == Object {
		return '}'
	}
	return ']'
}

// nests marks the bytes at which Skip must look closer.
var nests = func() (t [256]bool) {
	for _, c := range "[]{}\"'/#" {
		t[c] = true
	}
	return t
}()

// Unescape appends the text of a token to dst, with escapes resolved. ok is
// false for a \u without four digits. Half a surrogate pair becomes
// bytes that are not UTF-8, so that a later check refuses it.
func Unescape(dst, text []byte) (_ []byte, ok bool) {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(dst, text...), true
		}
		dst = append(dst, text[:i]...)
		if i+1 >= len(text) {
			return dst, false
		}
		c := text[i+1]
		text = text[i+2:]
		switch c {
		case 'u':
			r, n := unescapeRune(text)
			if n == 0 {
				return dst, false
			}
			if utf16.IsSurrogate(r) {
				dst = append(dst, 0xff)
			} else {
				dst = utf8.AppendRune(dst, r)
			}
			text = text[n:]
		case 't':
			dst = append(dst, '\t')
		case 'b':
			dst = append(dst, '\b')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 'f':
			dst = append(dst, '\f')
		default: // the character itself, also where JSON knows no such escape
			dst = append(dst, c)
		}
	}
}

// unescapeRune reads the digits after \u, and of a second \u when they make a
// pair. n is the bytes read, 0 if there are no four digits.
func unescapeRune(text []byte) (r rune, n int) {
	r, ok := hex4(text)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(r) && len(text) >= 10 && text[4] == '\\' && text[5] == 'u' {
		if low, ok := hex4(text[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 10
			}
		}
	}
	return r, 4
}

func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20-'a' <= 5:
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// AppendText appends a text in JSON. Bytes that are not UTF-8 become U+FFFD.
func AppendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // texts always marshal
			}
			return append(dst, quoted...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}
