package ini

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	sections, err := Parse("\ufeff# comment\n; comment\r\n[a b]\r\nPattern = ^x\\.=y\nlong: one\n  two\n\n\tthree\n[c]\nodd%%key = 100%%\n")
	if err != nil || len(sections) != 2 {
		t.Fatalf("%v, %v", sections, err)
	}
	for key, want := range map[string]string{"pattern": `^x\.=y`, "long": "one\ntwo\nthree"} {
		if got := sections[0].Values[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := sections[1].Values["odd%%key"]; got != "100%" {
		t.Errorf("the escaped value is %q", got)
	}
	for text, want := range map[string]string{
		"a = b":              "line 1",
		"[a]\nb":             "line 2",
		"[a]\n= b":           "line 2",
		"[a]\n[a]":           "line 2",
		"[]":                 "line 1",
		"[a":                 "line 1",
		"[a]\nb = 1\nB = 2":  "line 3",
		"[a]\n\nb = %(c)s\n": "single %",
	} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, got, err, want)
		}
	}
	if _, err := Parse(strings.Repeat("#", MaxFile+1)); err == nil {
		t.Error("a file of more than MaxFile is read")
	}
}
