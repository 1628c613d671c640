package jsontext

import (
	"strings"
	"testing"
)

// The words of JSON are recognized in any case, as Gson does; other words are words.
func TestLiteralKind(t *testing.T) {
	for text, want := range map[string]Kind{
		"true": True, "TRUE": True, "false": False, "False": False, "null": Null, "nULL": Null, "1": Number, "-1.5e3": Number,
		"nul": Word, "truee": Word, "01": Word, "1x": Word, "NaN": Word, "+1": Word,
	} {
		if got := literalKind([]byte(text)); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}

func TestHex4(t *testing.T) {
	for text, want := range map[string]rune{
		"0000": 0, "0019": 0x19, "00af": 0xaf, "FfFf": 0xffff, "12345": 0x1234, "9aA0": 0x9aa0,
		"": -1, "123": -1, "00g0": -1, "00G0": -1, "/000": -1, ":000": -1, "`000": -1, "@000": -1, "000 ": -1,
	} {
		r, ok := hex4([]byte(text))
		if ok != (want >= 0) || ok && r != want || !ok && r != 0 {
			t.Errorf("%q: %x, %t, want %x", text, r, ok, want)
		}
	}
}

// A pair of escapes is one character, a half of one is the replacement of it.
func TestUnescapeRune(t *testing.T) {
	for text, want := range map[string]struct {
		r rune
		n int
	}{
		`0041`: {'A', 4}, `d83d\ude00`: {0x1f600, 10}, `d83d\u0041`: {0xd83d, 4}, `d83d`: {0xd83d, 4}, `d83d\ude0`: {0xd83d, 4}, `d83dxude00`: {0xd83d, 4}, `d83d\xde00`: {0xd83d, 4},
		`de00\ud83d`: {0xde00, 4}, `00g1`: {0, 0}, `d83d\uzzzz`: {0xd83d, 4},
	} {
		if r, n := unescapeRune([]byte(text)); r != want.r || n != want.n {
			t.Errorf("%s: %x, %d, want %+v", text, r, n, want)
		}
	}
}

// What is skipped has to be whole: nesting, texts and comments end.
func TestSkipOfWhatHasNoEnd(t *testing.T) {
	for text, whole := range map[string]bool{
		`{}`: true, `{"a":[1,{"b":"]}"}]}`: true, `{"a\"}":1}`: true, `{/* } */}`: true, "{// }\n}": true, "{# }\n}": true,
		`{`: false, `{"a":1`: false, `{[}`: false, `{"a`: false, `{"a\"}`: false, `{"a\`: false, `{/* }`: false, "{// }": false, "{# }": false, `{/x}`: false,
	} {
		s := New([]byte(text))
		tok, err := s.Next()
		if err == nil {
			err = s.Skip(tok.Kind)
		}
		if (err == nil) != whole {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A member has a name and a colon, with blanks between them or without.
func TestName(t *testing.T) {
	for text, want := range map[string]string{
		`"a":1`: "a", `"a" : 1`: "a", `a:1`: "a", `a : 1`: "a", `'a':1`: "a", `"a"/**/:1`: "a", `1:1`: "1",
		`"a"`: "error", `"a" 1`: "Expected ':'", `a 1`: "Expected ':'", `{`: "Expected name", `[`: "Expected name", `}`: "Expected name", `]`: "Expected name", `,`: "Expected name", `:`: "Expected name", `=`: "Expected name",
		`"a`: "Unterminated string", ``: "error", `"a" /*`: "error",
	} {
		s := New([]byte(text))
		name, err := s.Name()
		switch {
		case err == nil && string(name.Text) != want, err != nil && want == "a", err != nil && want == "1":
			t.Errorf("%s: %q, %v, want %s", text, name.Text, err, want)
		case err != nil && want != "error" && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
