package clip

import (
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc..."}, {"abc", 0, "..."},
		{"äöü", 6, "äöü"}, {"äöü", 5, "äö..."}, {"äöü", 4, "äö..."}, {"äöü", 1, "..."}, {"a𝄞", 4, "a..."},
		{"a\xffb", 9, "a\xffb"}, {"a\xffbc", 3, "a�b..."}, {"a\x80\x80\x80\x80\x80b", 6, "a�..."},
	} {
		if got := Text(tc.text, tc.n); got != tc.want {
			t.Errorf("%q to %d: %q, want %q", tc.text, tc.n, got, tc.want)
		}
		if got := Text([]byte(tc.text), tc.n); got != tc.want {
			t.Errorf("%q in bytes to %d: %q, want %q", tc.text, tc.n, got, tc.want)
		}
	}
}

// What is cut is a prefix of the text, valid, and at most three bytes shorter than it
// may be.
func TestCut(t *testing.T) {
	check := func(text string, n uint8) bool {
		got := Cut(text, int(n))
		return utf8.ValidString(got) && len(got) <= int(n) && strings.HasPrefix(text, got) && len(got) >= min(len(text), int(n)-3)
	}
	if err := quick.Check(check, nil); err != nil {
		t.Error(err)
	}
	bytes := func(text []byte, n uint8) bool { return utf8.ValidString(Cut(text, int(n))) }
	if err := quick.Check(bytes, nil); err != nil {
		t.Error(err)
	}
}
