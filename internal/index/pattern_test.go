package index

import (
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
)

func TestPlan(t *testing.T) {
	exact := func(texts ...string) plan { return plan{exact: texts} }
	one := func(b branch) plan { return plan{branches: []branch{b}} }
	for _, test := range []struct {
		expr string
		want plan // without full
	}{
		{"lga", exact("lga")},
		{"dub|lga|dub", exact("dub", "lga")},
		{"", exact("")},
		{"host-[1-3]", exact("host-1", "host-2", "host-3")},
		{"a(b(c)?)?", exact("a", "ab", "abc")},
		{"x{2,3}", exact("xx", "xxx")},
		{"(?i)dc", exact("DC", "Dc", "dC", "dc")},
		{`a\.b`, exact("a.b")},
		{".*", one(branch{whole: true, gaps: []gap{{}}})},
		{".+", one(branch{whole: true, gaps: []gap{{min: 1}}})},
		{".+.+", one(branch{whole: false, gaps: []gap{{min: 2}}})},
		{"host-12.*", one(branch{whole: true, prefix: "host-12", gaps: []gap{{}}})},
		{".*99.*", one(branch{whole: true, gaps: []gap{{literal: "99"}, {}}})},
		{"a.*b.+c", one(branch{whole: true, prefix: "a", gaps: []gap{{literal: "b"}, {1, "c"}}})},
		{"(a.*)(b)", one(branch{whole: true, prefix: "a", gaps: []gap{{literal: "b"}}})},
		{"a[^b]*.c", one(branch{whole: false, prefix: "a", gaps: []gap{{literal: "c"}}})},
		{"x|foo-.*", plan{exact: []string{"x"}, branches: []branch{{whole: true, prefix: "foo-", gaps: []gap{{}}}}}},
		{"[^a]", one(branch{whole: false, gaps: []gap{{}}})},
		{"a{0,1000}", one(branch{whole: false, gaps: []gap{{}}})},
	} {
		p, err := model.NewPattern(test.expr)
		if err != nil {
			t.Fatal(err)
		}
		got := newPlan(p)
		if !slices.Equal(got.exact, test.want.exact) || !slices.EqualFunc(got.branches, test.want.branches, func(a, b branch) bool {
			return a.prefix == b.prefix && slices.Equal(a.gaps, b.gaps) && a.whole == b.whole
		}) {
			t.Errorf("newPlan(%q) = %+v, want %+v", test.expr, got, test.want)
		}
	}
}

// FuzzPlan checks that a plan matches what its pattern matches, and that each
// text that matches begins with the plan's prefix.
func FuzzPlan(f *testing.F) {
	for _, expr := range []string{"a|b", "a.*b", ".+.+", "(?i)sk.*", "[^a]*b", "(?s).*a", "x{2,5}y?", "\ufffd.*", "^a.*$", "(?:a|b.*)|c", "é.+é", `\Qa.b\E.*`} {
		for _, text := range []string{"", "a", "b", "a\nb", "ab", "ſK", "éé", "\xff", "xxxy", "a.bc"} {
			f.Add(expr, text)
		}
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		p, err := model.NewPattern(expr)
		if err != nil {
			t.Skip()
		}
		pl := newPlan(p)
		want := p.MatchString(text)
		if got := pl.matches(text); got != want {
			t.Fatalf("pattern %q, text %q: plan says %v, pattern %v: %+v", expr, text, got, want, pl)
		}
		if want && !strings.HasPrefix(text, pl.prefix()) {
			t.Fatalf("pattern %q matches %q, which lacks the prefix %q", expr, text, pl.prefix())
		}
	})
}
