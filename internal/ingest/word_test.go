package ingest

import "testing"

func TestIsWord(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, " ": false, "a": true, " a": false, "a ": false, "a b": false, "a\tb": false,
		"a.b;c=d": true, `"a`: false, `a"`: true, `"a b"`: false, "\x00": false, "ä": true,
	} {
		if got := isWord([]byte(text)); got != want {
			t.Errorf("isWord(%q) = %v", text, got)
		}
	}
}

func TestCutWord(t *testing.T) {
	for text, want := range map[string][2]string{
		"": {"", ""}, " \t\r": {"", ""}, "a": {"a", ""}, " a": {"a", ""}, "ab c": {"ab", " c"}, "\x00a\x01b": {"a", "\x01b"}, "!a ": {"!a", " "},
	} {
		if word, rest := CutWord([]byte(text)); string(word) != want[0] || string(rest) != want[1] {
			t.Errorf("%q: %q and %q", text, word, rest)
		}
	}
}

func TestCutText(t *testing.T) {
	for _, c := range []struct {
		b, text, rest string
		ok            bool
	}{
		{"", "", "", true}, {"put m", "put ", "m", true}, {"put ", "put ", "", true}, {"put", "put ", "put", false},
		{"pet m", "put ", "pet m", false}, {"m", "", "m", true}, {"", "a", "", false},
	} {
		if rest, ok := CutText([]byte(c.b), c.text); string(rest) != c.rest || ok != c.ok {
			t.Errorf("%q without %q: %q, %t", c.b, c.text, rest, ok)
		}
	}
}
