package pytext

import (
	"math"
	"regexp/syntax"
	"strings"
	"testing"
)

func TestFormatFloat(t *testing.T) {
	for _, c := range []struct {
		v                float64
		shortest, digits string
	}{
		{2, "2.0", "2"}, {0.1, "0.1", "0.1"}, {1e16, "1e+16", "1e+16"}, {123456789, "123456789.0", "1.23457e+08"},
		{1e-5, "1e-05", "1e-05"}, {0.0001, "0.0001", "0.0001"}, {100000, "100000.0", "100000"}, {1e6, "1000000.0", "1e+06"},
		{math.Inf(-1), "-inf", "-inf"}, {1.0 / 3, "0.3333333333333333", "0.333333"}, {-0.5, "-0.5", "-0.5"},
	} {
		if got := FormatFloat(c.v); got != c.shortest {
			t.Errorf("FormatFloat(%g) = %s; want %s", c.v, got, c.shortest)
		}
		if got := General(c.v); got != c.digits {
			t.Errorf("General(%g) = %s; want %s", c.v, got, c.digits)
		}
	}
}

// TestReplace: regular expressions replace text as in Python.
func TestReplace(t *testing.T) {
	for _, c := range []struct{ expression, with, in, want string }{
		{"(^.*$)", `\1 A`, "a.b", "a.b A"},
		{".*", "x", "abc", "xx"},
		{"x*", "-", "abxd", "-a-b--d-"},
		{`web(\d)`, `W\1W`, "srv.web1.cpu", "srv.W1W.cpu"},
		{"(?P<n>web)", `<\g<n>>`, "a.web", "a.<web>"},
		{"e", `\\`, "e.e", `\.\`},
		{"(a)|b", `[\1]`, "ab", "[a][]"},
		{"^a", "x", "aaa", "xaa"},
		{`\.`, `\n`, "a.b", "a\nb"},
		{"é", "e", "éé", "ee"},
	} {
		p, err := NewPattern(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.NewReplacement(c.with)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Replace(c.in, r); got != c.want || err != nil {
			t.Errorf("%s by %s in %s: %q, %v; want %q", c.expression, c.with, c.in, got, err, c.want)
		}
	}
	p, err := NewPattern("(a)")
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range []string{`\2`, `\g<x>`, `\q`, `\`} {
		if _, err := p.NewReplacement(with); err == nil {
			t.Errorf("the replacement %s is not refused", with)
		}
	}
	for _, expression := range []string{"[", "*", "(?=a)", `(a)\1`} {
		if _, err := NewPattern(expression); err == nil {
			t.Errorf("the expression %s is not refused", expression)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		layout string
		v      float64
		want   string
	}{
		{"now %d", 82.9, "now 82"}, {"%g%%", 0.5, "0.5%"}, {"%.2f x", 1.005, "1.00 x"}, {"%s", 2, "2.0"}, {"%5d|", 7, "    7|"}, {"%g", 1e6, "1e+06"},
	} {
		if got, err := Format(c.layout, c.v); got != c.want || err != nil {
			t.Errorf("Format(%q, %g) = %q, %v; want %q", c.layout, c.v, got, err, c.want)
		}
	}
	for _, layout := range []string{"no value", "%d %d", "%", "%x", "%1000d"} {
		if got, err := Format(layout, 1); err == nil {
			t.Errorf("Format(%q) = %q; want an error", layout, got)
		}
	}
}

// TestCostlyPatterns: an expression that may take long on a name is refused before it is matched.
func TestCostlyPatterns(t *testing.T) {
	for _, expression := range []string{strings.Repeat("x{1000}", 40), strings.Repeat("[ab]+c|", 30_000) + "z", "((a{30}b?){30}|c*){30}"} {
		if _, err := NewPattern(expression); err == nil || len(err.Error()) > 500 {
			t.Errorf("the expression %.40s is not refused: %v", expression, err)
		}
	}
	for _, c := range []struct {
		expression, name string
		may              bool // be matched, but not replaced
	}{
		{"(x?){1000}y", strings.Repeat("x", 5000), false},
		{"(" + strings.Repeat("a[ab]*|", 5000) + "c)z", strings.Repeat("ab", 500), false},
		{"(a.*b)|a", strings.Repeat("a", 20_000), true},
	} {
		p, err := NewPattern(c.expression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Matches(c.name); (err == nil) != c.may {
			t.Errorf("%.40s is matched: %v", c.expression, err)
		}
		if _, err := p.Replace(c.name, nil); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.40s is replaced: %v", c.expression, err)
		}
	}
}

// TestSizeOf: the size of an expression is not underestimated.
func TestSizeOf(t *testing.T) {
	for _, expression := range []string{"", "a", "abc|abd", "(a|b)*c+", "x{3,}", "x{0,1000}y", "((a|b)*c?){300}z", "^$", `(?i)\bweb\d{2}`, ".*(" + strings.Repeat("a[ab]*|", 100) + "c)"} {
		tree, err := syntax.Parse(expression, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		got := sizeOf(tree)
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if least := len(program.Inst) - 2; got < least-1 || got > 3*least+3 { // beside the begin and the end
			t.Errorf("%.40s: %d, the program has %d", expression, got, least)
		}
	}
}
