package kairos

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"varve/internal/ingest/jsontext"
)

// A value is a node of a request's JSON. Texts and literals stay as written, since
// KairosDB converts late: "5" is a number where one is expected.
type value struct {
	kind    jsontext.Kind
	text    string   // scalars
	members []member // objects; of equal names the last one counts
	items   []value  // arrays

	repeated *string        // objects: a name that occurs more than once
	places   map[string]int // objects of many members: indexes in members, by name
}

type member struct {
	name  string
	value value
}

// maxDepth bounds nesting; queries need 6.
const maxDepth = 64

// parseValue parses lenient JSON. Text after the value is an error, as in KairosDB's
// queries.
func parseValue(text string) (*value, error) { return parseText([]byte(text), text) }

// parseText is parseValue for a caller that has the text as bytes, too.
func parseText(data []byte, text string) (*value, error) {
	r := readers.Get().(*reader)
	defer r.release()
	r.s, r.text = jsontext.New(data), text
	if _, err := r.s.Peek(); err != nil && err.AtEnd {
		return nil, badRequest("Not a JSON Object: null")
	}
	v, err := r.read(maxDepth)
	if err != nil {
		return nil, syntaxFault(err)
	}
	if r.s.Offset() == len(data) {
		return &v, nil
	}
	if _, err := r.s.Peek(); err == nil {
		line, column := r.s.Position(r.s.Offset() + 1)
		return nil, syntaxFault(&jsontext.SyntaxError{
			Reason: "Use JsonReader.setLenient(true) to accept malformed JSON", Line: line, Column: column,
		})
	}
	return &v, nil
}

// syntaxFault gives an error the text of KairosDB's JSON reader.
func syntaxFault(err *jsontext.SyntaxError) error {
	if err.AtEnd {
		return badRequest("java.io.EOFException: " + err.Error())
	}
	return badRequest("com.google.gson.stream.MalformedJsonException: " + err.Error())
}

// A reader parses values from a text. They share its memory.
type reader struct {
	s    jsontext.Scanner
	text string // what s reads

	// Members and items of the objects and arrays being parsed, the outer ones' first.
	// A complete object or array is removed.
	members []member
	items   []value
}

// readers are pooled, with room for the members of usual requests.
var readers = sync.Pool{New: func() any { return &reader{} }}

// keptMembers bounds the members that a reader keeps in memory (104 KiB), and those
// that are copied.
const keptMembers = 1 << 10

// cutOff splits a stack. The upper part is a copy without spare room, so that the stack
// serves the next object too. A large upper part is not copied; the stack then
// continues in new memory.
func cutOff[T any](stack []T, from int) (upper, lower []T) {
	if len(stack)-from > keptMembers {
		return slices.Clip(stack[from:]), slices.Clip(stack[:from])
	}
	return slices.Clone(stack[from:]), stack[:from]
}

func (r *reader) release() {
	if cap(r.members)+cap(r.items) > keptMembers {
		return
	}
	clear(r.members[:cap(r.members)])
	clear(r.items[:cap(r.items)])
	*r = reader{members: r.members[:0], items: r.items[:0]}
	readers.Put(r)
}

// read returns the next value. Values are returned by value: one filled in through its
// address would be allocated, since read is recursive.
func (r *reader) read(depth int) (value, *jsontext.SyntaxError) {
	if depth == 0 {
		return value{}, r.s.Errorf("Nested too deeply")
	}
	t, err := r.s.Next()
	if err != nil {
		return value{}, err
	}
	switch t.Kind {
	case jsontext.Object:
		return r.readMembers(depth)
	case jsontext.Array:
		return r.readItems(depth)
	}
	text, err := r.textOf(t)
	return value{kind: t.Kind, text: text}, err
}

func (r *reader) readMembers(depth int) (value, *jsontext.SyntaxError) {
	v := value{kind: jsontext.Object}
	from := len(r.members)
	for first := true; ; first = false {
		more, err := r.s.More('}', first)
		if err != nil {
			return v, err
		}
		if !more {
			v.members, r.members = cutOff(r.members, from)
			return v, nil
		}
		t, err := r.s.Name()
		if err != nil {
			return v, err
		}
		var m member
		if m.name, err = r.textOf(t); err != nil {
			return v, err
		}
		if m.value, err = r.read(depth - 1); err != nil {
			return v, err
		}
		if i := v.find(r.members[from:], m.name); i >= 0 {
			r.members[from+i].value = m.value
			name := m.name // not m, which would be allocated for each member
			v.repeated = &name
			continue
		}
		r.members = append(r.members, m)
		v.index(r.members[from:])
	}
}

// fewMembers is the number of members up to which a linear search is as fast as
// a map.
const fewMembers = 16

// index adds the names of members, which are or will be those of v, for find.
func (v *value) index(members []member) {
	switch n := len(members); {
	case n == fewMembers:
		v.places = make(map[string]int, 2*fewMembers)
		for i := range members {
			v.places[members[i].name] = i
		}
	case n > fewMembers:
		v.places[members[n-1].name] = n - 1
	}
}

// find returns the index of a name among members, which are those of v, -1 if it is
// absent.
func (v *value) find(members []member, name string) int {
	if v.places != nil {
		if i, ok := v.places[name]; ok {
			return i
		}
		return -1
	}
	for i := range members {
		if members[i].name == name {
			return i
		}
	}
	return -1
}

func (r *reader) readItems(depth int) (value, *jsontext.SyntaxError) {
	v := value{kind: jsontext.Array}
	from := len(r.items)
	for first := true; ; first = false {
		more, err := r.s.More(']', first)
		if err != nil {
			return v, err
		}
		if !more {
			v.items, r.items = cutOff(r.items, from)
			return v, nil
		}
		item, err := r.read(depth - 1)
		if err != nil {
			return v, err
		}
		r.items = append(r.items, item)
	}
}

func (r *reader) textOf(t jsontext.Token) (string, *jsontext.SyntaxError) {
	if t.Escaped {
		text, ok := jsontext.Unescape(nil, t.Text)
		if !ok {
			return "", r.s.Errorf("Invalid escape sequence")
		}
		return strings.ToValidUTF8(string(text), "\uFFFD"), nil
	}
	start := t.Start
	if t.Kind == jsontext.String {
		start++ // after the quote
	}
	return strings.ToValidUTF8(r.text[start:start+len(t.Text)], "\uFFFD"), nil
}

// member returns the value of a member, nil if there is none.
func (v *value) member(name string) *value {
	if i := v.find(v.members, name); i >= 0 {
		return &v.members[i].value
	}
	return nil
}

func (v *value) isNull() bool { return v.kind == jsontext.Null }

// absent reports whether a member is missing or null.
func absent(v *value) bool { return v == nil || v.isNull() }

// String formats v for messages.
func (v *value) String() string {
	switch v.kind {
	case jsontext.Object:
		return "{...}"
	case jsontext.Array:
		if len(v.items) == 0 {
			return "[]"
		}
		return "[...]"
	case jsontext.String, jsontext.Word:
		return strconv.Quote(clipName(v.text))
	}
	return clipName(v.text)
}

// pathTo returns the path from v to a value in it, as JavaScript writes it:
// metrics[0].tags.host[1]. It is "" for v itself and for a value that is not in v.
func (v *value) pathTo(to *value) string {
	path, _ := v.appendPath(nil, to)
	return strings.TrimPrefix(string(path), ".")
}

func (v *value) appendPath(path []byte, to *value) ([]byte, bool) {
	if v == to {
		return path, true
	}
	for i := range v.members {
		m := &v.members[i]
		if longer, ok := m.value.appendPath(appendName(path, m.name), to); ok {
			return longer, true
		}
	}
	for i := range v.items {
		longer := append(strconv.AppendInt(append(path, '['), int64(i), 10), ']')
		if longer, ok := v.items[i].appendPath(longer, to); ok {
			return longer, true
		}
	}
	return path, false
}

// maxPathName is how many bytes of a name a path shows.
const maxPathName = 64

// appendName appends a member to a path, in a form that is valid in a header.
func appendName(path []byte, name string) []byte {
	if len(name) > maxPathName {
		name = strings.ToValidUTF8(name[:maxPathName], "") + "..."
	}
	for i := range len(name) {
		if c := name[i]; !(c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return append(strconv.AppendQuoteToASCII(append(path, '['), name), ']')
		}
	}
	return append(append(path, '.'), name...)
}

// long reads a whole number, written as a number or as text. Fractions are cut off, as
// in KairosDB.
func (v *value) long() (int64, error) { return v.integer(64) }

// int32 reads a whole number of 32 bits.
func (v *value) int32() (int64, error) { return v.integer(32) }

func (v *value) integer(bits int) (int64, error) {
	if !v.kind.Scalar() || v.isNull() || v.kind == jsontext.True || v.kind == jsontext.False {
		return 0, v.fault("java.lang.IllegalStateException: Expected NUMBER but was " + v.kind.String())
	}
	n, err := strconv.ParseInt(v.text, 10, bits)
	if err == nil {
		return n, nil
	}
	if v.kind == jsontext.Number {
		if f, err := strconv.ParseFloat(v.text, 64); err == nil && f >= -1<<63 && f < 1<<63 {
			return int64(f), nil
		}
	}
	return 0, v.fault("java.lang.NumberFormatException: For input string: " + strconv.Quote(clipName(v.text)))
}

// double reads a number, written as a number or as text. The error has no
// context.
func (v *value) double() (float64, error) {
	if v.kind.Scalar() && !v.isNull() {
		if f, err := strconv.ParseFloat(strings.TrimSpace(v.text), 64); err == nil || isRange(err) {
			return f, nil
		}
	}
	return 0, v.fault("For input string: " + strconv.Quote(clipName(v.text)))
}

func isRange(err error) bool {
	n, ok := err.(*strconv.NumError)
	return ok && n.Err == strconv.ErrRange
}

// boolean reads true and "true" in any case; every other scalar is false, as
// KairosDB reads it.
func (v *value) boolean() bool { return v.kind.Scalar() && strings.EqualFold(v.text, "true") }

// scalarText reads a text. An array of one element is that element.
func (v *value) scalarText() (string, error) {
	switch {
	case v.kind == jsontext.Array && len(v.items) == 1:
		return v.items[0].scalarText()
	case v.isNull():
		return "", v.mustBe("JsonNull", "a text, not null")
	case v.kind == jsontext.Object:
		return "", v.mustBe("JsonObject", "a text, not an object")
	case v.kind == jsontext.Array:
		return "", v.mustBe("JsonArray", "a text, not an array")
	}
	return v.text, nil
}
