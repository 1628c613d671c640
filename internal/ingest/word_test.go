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
