package kairos

import (
	"strconv"
	"strings"

	"varve/internal/ingest/jsontext"
)

// A value is a node of a request's JSON. Texts and literals keep what was
// written, since KairosDB converts late: "5" is a number where one is expected.
type value struct {
	kind    jsontext.Kind
	text    string   // scalars
	members []member // objects, each name once: the last one counts
	items   []value  // arrays

	repeated *string        // objects: a name that was given more than once
	places   map[string]int // objects of many members: indexes in members, by name
}

type member struct {
	name  string
	value value
}

// maxDepth bounds nesting; queries need 6.
const maxDepth = 64

// parseValue reads lenient JSON. Text after the value is an error, as it is for
// KairosDB's queries.
func parseValue(data []byte) (*value, error) {
	s := jsontext.New(data)
	if _, err := s.Peek(); err != nil && err.AtEnd {
		return nil, badRequest("Not a JSON Object: null")
	}
	var v value
	if err := v.read(&s, maxDepth); err != nil {
		return nil, syntaxFault(err)
	}
	if _, err := s.Peek(); err == nil {
		line, column := s.Position(s.Offset() + 1)
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

func (v *value) read(s *jsontext.Scanner, depth int) *jsontext.SyntaxError {
	if depth == 0 {
		return s.Errorf("Nested too deeply")
	}
	t, err := s.Next()
	if err != nil {
		return err
	}
	v.kind = t.Kind
	switch t.Kind {
	case jsontext.Object:
		return v.readMembers(s, depth)
	case jsontext.Array:
		return v.readItems(s, depth)
	}
	v.text, err = tokenText(s, t)
	return err
}

func (v *value) readMembers(s *jsontext.Scanner, depth int) *jsontext.SyntaxError {
	for first := true; ; first = false {
		more, err := s.More('}', first)
		if err != nil || !more {
			return err
		}
		t, err := s.Name()
		if err != nil {
			return err
		}
		var m member
		if m.name, err = tokenText(s, t); err != nil {
			return err
		}
		if err := m.value.read(s, depth-1); err != nil {
			return err
		}
		if v.members == nil {
			v.members = make([]member, 0, 4)
		}
		if known := v.member(m.name); known != nil {
			*known = m.value
			v.repeated = &m.name
			continue
		}
		v.addMember(m)
	}
}

// fewMembers is how many members are as fast to look through as a map.
const fewMembers = 16

func (v *value) addMember(m member) {
	v.members = append(v.members, m)
	switch n := len(v.members); {
	case n == fewMembers:
		v.places = make(map[string]int, 2*fewMembers)
		for i := range v.members {
			v.places[v.members[i].name] = i
		}
	case n > fewMembers:
		v.places[m.name] = n - 1
	}
}

func (v *value) readItems(s *jsontext.Scanner, depth int) *jsontext.SyntaxError {
	for first := true; ; first = false {
		more, err := s.More(']', first)
		if err != nil || !more {
			return err
		}
		var item value
		if err := item.read(s, depth-1); err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
}

func tokenText(s *jsontext.Scanner, t jsontext.Token) (string, *jsontext.SyntaxError) {
	text := t.Text
	if t.Escaped {
		var ok bool
		if text, ok = jsontext.Unescape(nil, t.Text); !ok {
			return "", s.Errorf("Invalid escape sequence")
		}
	}
	return strings.ToValidUTF8(string(text), "\uFFFD"), nil
}

// member returns the value of a member, nil if there is none.
func (v *value) member(name string) *value {
	if v.places != nil {
		if i, ok := v.places[name]; ok {
			return &v.members[i].value
		}
		return nil
	}
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value
		}
	}
	return nil
}

func (v *value) isNull() bool { return v.kind == jsontext.Null }

// absent reports a member that is not there or null.
func absent(v *value) bool { return v == nil || v.isNull() }

// String renders v for messages.
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

// appendName adds a member to a path that can stand in a header.
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

// long reads a whole number, written as a number or as text. Fractions of
// numbers are cut off, as KairosDB does.
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
