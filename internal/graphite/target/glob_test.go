package target

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGlob(t *testing.T) {
	all := []string{"a", "a.h0", "a.h0.cpu", "a.h0.mem", "a.h0.mem.used", "a.h1.cpu", "a.h2.cpu"}
	for _, c := range []struct {
		glob string
		want string
	}{
		{"a.h{0,2}.{cpu,mem}", "a.h0.cpu a.h0.mem a.h2.cpu"},
		{"a.h[0-1].c?u", "a.h0.cpu a.h1.cpu"},
		{"a.h[!0].cpu", "a.h1.cpu a.h2.cpu"},
		{"a.h{0,{1,2}}.cpu", "a.h0.cpu a.h1.cpu a.h2.cpu"},
		{"a.h{0*,[12]}.cpu", "a.h0.cpu a.h1.cpu a.h2.cpu"},
		{"a.**", "a.h0 a.h0.cpu a.h0.mem a.h0.mem.used a.h1.cpu a.h2.cpu"},
		{"a.**.used", "a.h0.mem.used"},
		{"**.cpu", "a.h0.cpu a.h1.cpu a.h2.cpu"},
		{"a.**.cpu", "a.h0.cpu a.h1.cpu a.h2.cpu"},
		{"**", strings.Join(all, " ")},
		{"a.*", "a.h0"},
		{"a.*.cpu", "a.h0.cpu a.h1.cpu a.h2.cpu"},
		{"A.h0.cpu", ""},
		{"a.h0.cpu", "a.h0.cpu"},
		{"a.h0.{cpu", ""},
	} {
		g, err := ParseGlob(c.glob)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range all {
			if g.Match(path) {
				got = append(got, path)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s matches %v; want %s", c.glob, got, c.want)
		}
	}
}

func TestNode(t *testing.T) {
	for _, c := range []struct {
		text, prefix string
		literals     []string
		fits, not    string
	}{
		{"cpu", "cpu", []string{"cpu"}, "cpu", "cpu0"},
		{"cpu*", "cpu", nil, "cpu cpu0", "xcpu"},
		{"m0[0-4]", "m0", nil, "m00 m04", "m05 m0"},
		{"{ab,ac,ab}", "a", []string{"ab", "ac"}, "ab ac", "a"},
		{"x{1,2}y{3,4}", "x", []string{"x1y3", "x1y4", "x2y3", "x2y4"}, "x2y3", "x2y5"},
		{"[^a]", "", nil, "^ a", "b"},
		{"[]a]", "", nil, "] a", "b"},
		{"[a-]", "", nil, "a -", "b"},
		{"[z-a]", "", nil, "", "z a -"},
		{"a[b", "a", nil, "a[b", "ab"},
		{"a{b", "a{b", []string{"a{b"}, "a{b", "ab"},
		{"a}b*", "a", nil, "a}b a}bc", "ab"},
		{"a+b*", "a+b", nil, "a+b a+bc", "aab"},
	} {
		g, err := ParseGlob(c.text)
		if err != nil {
			t.Fatal(err)
		}
		n := g.Nodes[0]
		if n.Prefix() != c.prefix {
			t.Errorf("%s: prefix %q; want %q", c.text, n.Prefix(), c.prefix)
		}
		if c.literals != nil && !slices.Equal(n.Literals(), c.literals) {
			t.Errorf("%s: literals %q; want %q", c.text, n.Literals(), c.literals)
		}
		for _, name := range strings.Fields(c.fits) {
			if !n.Match(name) {
				t.Errorf("%s does not match %s", c.text, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if n.Match(name) {
				t.Errorf("%s matches %s", c.text, name)
			}
		}
	}
}

func TestGlobBounds(t *testing.T) {
	for _, text := range []string{strings.Repeat("{a,b}", 5000), strings.Repeat("{", 100_000), strings.Repeat("*a", 5000), strings.Repeat("[", 100_000)} {
		start := time.Now()
		g, err := ParseGlob(text)
		if err == nil {
			g.Match(strings.Repeat("a", 1000))
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%.10s... took %v", text, d)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"a.*.b", "{a,b{c,d}}", "[a-z!]", "**.x", "[]", "{}", "a{b,c"} {
		f.Add(s, "a.b.c")
	}
	f.Fuzz(func(t *testing.T, glob, path string) {
		g, err := ParseGlob(glob)
		if err != nil {
			return
		}
		for _, n := range g.Nodes {
			for _, l := range n.Literals() {
				if !n.Match(l) || !strings.HasPrefix(l, n.Prefix()) {
					t.Errorf("%q: literal %q", glob, l)
				}
			}
			if n.Match(path) && !strings.HasPrefix(path, n.Prefix()) {
				t.Errorf("%q matches %q without its prefix %q", glob, path, n.Prefix())
			}
		}
		if IsLiteral(glob) && !g.Match(glob) {
			t.Errorf("%q does not match itself", glob)
		}
	})
}

// TestExpandedLists: the lists of a path take memory in bounds, and those that are not expanded
// match the same.
func TestExpandedLists(t *testing.T) {
	long := strings.Repeat("x", 15_000)
	for name, node := range map[string]string{
		"a long text":  long + strings.Repeat("{a,b}", 10),
		"short texts":  strings.Repeat("x", 500) + strings.Repeat("{a,b}", 10),
		"single items": strings.Repeat("{a,b}", 10) + strings.Repeat("{c}", 5000),
	} {
		count := MaxLength / (len(node) + 1)
		g, err := ParseGlob(strings.TrimSuffix(strings.Repeat(node+".", count), "."))
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, n := range g.Nodes {
			for _, text := range n.Literals() {
				size += len(text)
			}
		}
		if size > 4<<20 {
			t.Errorf("%s: %d MiB of texts", name, size>>20)
		}
		text := strings.NewReplacer("{a,b}", "b", "{c}", "c").Replace(node)
		if last := g.Nodes[count-1]; !last.Match(text) || last.Match(text+"a") {
			t.Errorf("%s: the last node does not match what it describes", name)
		}
	}
}
