package model

import (
	"regexp"
	"testing"
	"time"
)

func TestPatternsStandAlone(t *testing.T) {
	for _, expr := range []string{"x)|(?:.*", "(", "a)(b", `\`, "[a", "a**", "(?<=a)b", `(a)\1`} {
		if p, err := NewPattern(expr); err == nil {
			t.Errorf("%s was taken, and matches y: %v", expr, p.MatchString("y"))
		}
	}
	for expr, texts := range map[string][2]string{
		"a|b": {"b", "ab"}, "(?i)A+": {"aA", "aab"}, "a.c": {"abc", "a\nc"}, "^a$": {"a", "a\n"}, "(?m)^a$": {"a", "a\nb"}, "": {"", "x"},
	} {
		p, err := NewPattern(expr)
		if err != nil || !p.MatchString(texts[0]) || p.MatchString(texts[1]) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// A pattern matches a text if the longest match of its expression is the whole of
// it, and never takes long.
func FuzzPattern(f *testing.F) {
	f.Add("(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!")
	f.Add("(a|aa)*(b|bb)*", "aabb")
	f.Add("x)|(?:.*", "y")
	f.Add(`(?i)host-\d{1,3}\.(dc1|dc2)`, "HOST-12.dc1")
	f.Fuzz(func(t *testing.T, expr, text string) {
		began := time.Now()
		p, err := NewPattern(expr)
		if err != nil {
			return
		}
		got := p.MatchString(text)
		if took := time.Since(began); took > 30*time.Second {
			t.Fatalf("%v", took)
		}
		alone, err := regexp.Compile(expr)
		if err != nil {
			t.Fatalf("does not stand alone: %v", err)
		}
		alone.Longest()
		at := alone.FindStringIndex(text)
		if whole := at != nil && at[0] == 0 && at[1] == len(text); got != whole {
			t.Fatalf("matches %v, its longest match is %v of %d bytes", got, at, len(text))
		}
	})
}
