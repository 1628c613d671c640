package jsontext

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// walk reads one value whole and returns it as strict JSON, and what is left.
func walk(s *Scanner, depth int) (string, *SyntaxError) {
	t, err := s.Next()
	if err != nil {
		return "", err
	}
	switch {
	case t.Kind.Scalar():
		return scalar(t), nil
	case depth == 0:
		return "...", s.Skip(t.Kind)
	}
	var parts []string
	closing := byte(']')
	if t.Kind == Object {
		closing = '}'
	}
	for first := true; ; first = false {
		more, err := s.More(closing, first)
		if err != nil {
			return "", err
		}
		if !more {
			break
		}
		name := ""
		if t.Kind == Object {
			n, err := s.Name()
			if err != nil {
				return "", err
			}
			name = scalar(n) + ":"
		}
		value, err := walk(s, depth-1)
		if err != nil {
			return "", err
		}
		parts = append(parts, name+value)
	}
	if t.Kind == Object {
		return "{" + strings.Join(parts, ",") + "}", nil
	}
	return "[" + strings.Join(parts, ",") + "]", nil
}

func scalar(t Token) string {
	switch t.Kind {
	case Number, True, False, Null:
		return string(t.Text)
	}
	text, ok := Unescape(nil, t.Text)
	if !ok {
		return "?" + string(t.Text)
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

func TestWalk(t *testing.T) {
	for _, c := range []struct{ in, want, rest string }{
		{`[1, -2.5e3,true ,null]`, `[1,-2.5e3,true,null]`, ""},
		{`{"a":{"b":[]},"c":{}} tail`, `{"a":{"b":[]},"c":{}}`, " tail"},
		{"\ufeff[ ]", `[]`, ""},
		{`[{name:'k', tags:{h:a}, /* c */ p:[[1, 4]] // end` + "\n}]", `[{"name":"k","tags":{"h":"a"},"p":[[1,4]]}]`, ""},
		{`[1] // end`, `[1]`, " // end"},
		{`[1, // end`, "End of input at line 1 column 11", ""},
		{`# end`, "End of input at line 1 column 6", ""},
		{"# first\n[a b]", "Unterminated array at line 2 column 5", "b]"},
		{`["a\"b\\","\u00e9\ud83d\ude00\n\/"]`, `["a\"b\\","é😀\n/"]`, ""},
		{`['it"s',"it's"]`, `["it\"s","it's"]`, ""},
		{`[01,1.,.5,+1,NaN]`, `["01","1.",".5","+1","NaN"]`, ""},
		{`["a\q"]`, `["aq"]`, ""},
		{`["\b\f\n\r\t"]`, `["\b\f\n\r\t"]`, ""},
		{`{"a":1`, "End of input at line 1 column 7", ""},
		{`{"a":1 "b":2}`, "Unterminated object at line 1 column 9", `"b":2}`},
		{`["a\u12"]`, `[?a\u12]`, ""},
		{`[1;2]`, `[1,2]`, ""},
		{`[1,]`, "Expected value at line 1 column 4", "]"},
		{`{"a" 1}`, "Expected ':' at line 1 column 7", "1}"},
		{`{[:1}`, "Expected name at line 1 column 3", "[:1}"},
		{`["abc`, "Unterminated string at line 1 column 6", ""},
		{"[1,\n 2", "End of input at line 2 column 3", ""},
		{`[/* x`, "Unterminated comment at line 1 column 2", "/* x"},
		{`[1 / 2]`, "Expected value at line 1 column 4", "/ 2]"},
	} {
		s := New([]byte(c.in))
		got, err := walk(&s, 100)
		if err != nil {
			got = err.Error()
		}
		if got != c.want || string(s.Rest()) != c.rest {
			t.Errorf("%s\n got %s, rest %q\nwant %s, rest %q", c.in, got, s.Rest(), c.want, c.rest)
		}
	}
}

// TestUnescapeAtTheEnd: an escape that the text cuts off is none, and nothing
// behind the text is read.
func TestUnescapeAtTheEnd(t *testing.T) {
	const text = `\ud83d\ude00`
	for n := range len(text) + 1 {
		cut := []byte(text)[:n:n]
		got, ok := Unescape(nil, cut)
		want := "" // half a pair is no character
		switch {
		case n == len(text):
			want = "😀"
		case n == 6:
			want = "\xff"
		}
		if ok != (n == 0 || want != "") || ok && string(got) != want {
			t.Errorf("%s: %q, %v", cut, got, ok)
		}
	}
}

func TestSkip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`[1,[2,{"a":"]"}],'}',it's] rest`, " rest"},
		{`{"a":"\"}" /* ] */ } rest`, " rest"},
		{"[ // ]\n] rest", " rest"},
		{`[}`, "Unterminated array at line 1 column 3"},
		{`[[1]`, "End of input at line 1 column 5"},
		{strings.Repeat("[", 300), "Nested deeper than 256 at line 1 column 257"},
	} {
		s := New([]byte(c.in))
		first, err := s.Next()
		if err == nil {
			err = s.Skip(first.Kind)
		}
		got := string(s.Rest())
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestPosition(t *testing.T) {
	s := New([]byte("\ufeffab\né😀x\n"))
	for _, c := range []struct{ offset, line, column int }{
		{3, 1, 1}, {5, 1, 3}, {6, 2, 1}, {8, 2, 2}, {12, 2, 4}, {14, 3, 1}, {3, 1, 1}, {12, 2, 4},
	} {
		if line, column := s.Position(c.offset); line != c.line || column != c.column {
			t.Errorf("offset %d is line %d column %d, want %d, %d", c.offset, line, column, c.line, c.column)
		}
	}
}

// FuzzScanner holds the scanner against encoding/json: it reads all that is
// strict JSON, and the same of it; and skipping a value ends where reading it
// does.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{`[1,{"a":[true,"x\u0041"]}]`, `{"name":"m","tags":{"h":"a"},"datapoints":[[1,2.5]]}`, `[{name:'k', /* c */ p:[[1, 4]] // end` + "\n}]", `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := New(data)
		got, err := walk(&s, 200)
		if json.Valid(data) && bytes.Count(data, []byte{'['})+bytes.Count(data, []byte{'{'}) < 200 {
			if err != nil {
				t.Fatalf("%q is JSON, but: %v", data, err)
			}
			var want, have any
			if json.Unmarshal(data, &want) != nil {
				return // numbers out of range
			}
			if bytes.Contains(data, []byte(`\u`)) || !json.Valid([]byte(got)) {
				return // half surrogates and bytes that are not UTF-8
			}
			json.Unmarshal([]byte(got), &have)
			a, _ := json.Marshal(want)
			b, _ := json.Marshal(have)
			if !bytes.Equal(a, b) && !bytes.ContainsRune(a, '\ufffd') {
				t.Fatalf("%q read as %s, want %s", data, b, a)
			}
		}
		if err != nil {
			return
		}
		skip := New(data)
		if first, err := skip.Next(); err != nil || (!first.Kind.Scalar() && skip.Skip(first.Kind) != nil) || skip.Offset() != s.Offset() {
			t.Fatalf("%q: read to %d, skipped to %d (%v)", data, s.Offset(), skip.Offset(), err)
		}
	})
}

// Plain texts are quoted as they are, others as encoding/json does.
func TestAppendText(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "a<b> &c/\x7f": "\"a<b> &c/\x7f\"", `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, "a\nb<": `"a\nb\u003c"`, "ü": `"ü"`, "\xff": `"\ufffd"`,
	} {
		if got := string(AppendText([]byte("x"), text)); got != "x"+want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
