package target

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// show prints a tree in one line.
func show(e Expr) string {
	switch x := e.(type) {
	case *Path:
		return x.Text
	case *Call:
		return x.Name + showArgs("(", x.Args, x.Named) + ")"
	case *Template:
		return "TEMPLATE(" + show(x.Body) + showArgs(";", x.Args, x.Named) + ")"
	case String:
		return fmt.Sprintf("%q", string(x))
	case Number:
		return fmt.Sprintf("i%d", int64(x))
	case Float:
		return fmt.Sprintf("f%v", float64(x))
	case Bool:
		return fmt.Sprint(bool(x))
	case None:
		return "none"
	}
	return "inf"
}

func showArgs(open string, args []Expr, named []Named) string {
	var all []string
	for _, a := range args {
		all = append(all, show(a))
	}
	for _, n := range named {
		all = append(all, n.Name+"="+show(n.Value))
	}
	return open + strings.Join(all, ",")
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a.b.c", "a.b.c"},
		{"a.*.{b,c*}.d?[0-9]", "a.*.{b,c*}.d?[0-9]"},
		{"a.h{0,{1,2}}.cpu", "a.h{0,{1,2}}.cpu"},
		{`a.b\=c\{x\}`, "a.b=c{x}"},
		{"a;b=c", "a;b=c"},
		{"a:b/c-d+e@f%g^h&i~j#k<l>m?n!o`p", "a:b/c-d+e@f%g^h&i~j#k<l>m?n!o`p"},
		{"größe.ß", "größe.ß"},
		{"sumSeries(a.*)", "sumSeries(a.*"},
		{" sum ( a , b ) ", "sum(a,b"},
		{"f()", "f("},
		{"f(1,-2,1.5,-1.5e-3,1e5)", "f(i1,i-2,f1.5,f-0.0015,f100000"},
		{"f(10a,1.a,1e5x)", "f(10a,1.a,1e5x"},
		{"f(true,FALSE,None,inf)", "f(true,false,none,inf"},
		{"f(truely,inf2,nonesuch)", "f(truely,inf2,nonesuch"},
		{`f("a'b",'c"d',"e\"f",'')`, `f("a'b","c\"d","e\\\"f",""`},
		{`f("a""b")`, `f("a\"\"b"`},
		{"f(a,b=1,c='x')", `f(a,b=i1,c="x"`},
		{`f(a\=b)`, "f(a=b"},
		{"a|f()|g(1)", "g(f(a),i1"},
		{"a | f( 2 )", "f(a,i2"},
		{"f(a|g(),b)", "f(g(a),b"},
		{"template(a.$x.b,x='1')", `TEMPLATE(a.$x.b;x="1")`},
		{"template(f(a.$1),3)", "TEMPLATE(f(a.$1);i3)"},
		{"template(a,f(b))", "template(a,f(b))"},
		{"template(a,1,x=2)", "template(a,i1,x=i2)"},
		{"templates.a", "templates.a"},
		{"99999999999999999999", "99999999999999999999"},
		{"f(99999999999999999999)", "f(f1e+20"},
		// Text that Graphite ignores after a complete expression.
		{"a b", "a"}, {"a.b.", "a.b"}, {"a.b )", "a.b"}, {"f(a))", "f(a"},
	} {
		e, err := Parse(c.text)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.text, err)
			continue
		}
		if got := show(e); strings.TrimSuffix(got, ")") != strings.TrimSuffix(c.want, ")") {
			t.Errorf("Parse(%q) = %s; want %s", c.text, got, c.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
	}{
		{"", 0}, {"'text'", 0}, {".a", 0}, {"f(a", 3}, {"f(a,", 4}, {"f(a b)", 3}, {"a..b", 2}, {"a.{b.x,c}", 4}, {"a.{b,}", 5}, {"a.{}", 3},
		{"a|b", 1}, {"f(.5)", 2}, {"f(5.)", 4}, {"f('a)", 2}, {"f(a,b=1,2)", 8}, {"scale (a,2", 10}, {"f(true.x", 8},
	} {
		e, err := Parse(c.text)
		fault, ok := err.(*Error)
		if !ok {
			t.Errorf("Parse(%q) = %v, %v; want an error", c.text, e, err)
			continue
		}
		if fault.At != c.at || fault.Reason == "" {
			t.Errorf("Parse(%q): %v (at %d); want it at %d", c.text, err, fault.At, c.at)
		}
	}
}

func TestRaw(t *testing.T) {
	e, err := Parse("sum( seriesByTag('name=a', \"b!=c\") )")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.(*Call).Args[0].(*Call).Raw, "seriesByTag('name=a', \"b!=c\")"; got != want {
		t.Errorf("raw text %q; want %q", got, want)
	}
}

func TestFirstPath(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"scale(srv.web1.cpu,2)", "srv.web1.cpu"},
		{"sumSeries(scale(a.b,2),c)", "a.b"},
		{"a.b (avg: 49.2) (max: 1)", "a.b"},
		{"scale(a.b", "scale"},
		{"constantLine(5)", ""},
	} {
		if got, _ := FirstPath(c.name); got != c.want {
			t.Errorf("FirstPath(%q) = %q; want %q", c.name, got, c.want)
		}
	}
}

// TestBounds: limits end the parsing of costly targets.
func TestBounds(t *testing.T) {
	for name, text := range map[string]string{
		"length":         strings.Repeat("a", MaxLength+1),
		"depth":          strings.Repeat("f(", MaxDepth+1) + "a" + strings.Repeat(")", MaxDepth+1),
		"pipes":          "a" + strings.Repeat("|f()", MaxDepth+1),
		"nodes":          "f(" + strings.Repeat("a,", MaxNodes) + "a)",
		"lists":          strings.Repeat("{", MaxDepth+2) + "a" + strings.Repeat("}", MaxDepth+2),
		"going back":     strings.Repeat("template(f(", MaxDepth/2-2),
		"going back far": strings.Repeat("template(", 30) + strings.Repeat("a", MaxLength-1000) + " x",
		"unclosed":       strings.Repeat("f(", 100_000),
		"unclosed list":  strings.Repeat("{a", 100_000),
	} {
		start := time.Now()
		if _, err := Parse(text); err == nil {
			t.Errorf("%s: no error", name)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
}

// TestTemplatesWithinTemplates: the attempts to parse what templates hold do not multiply with
// each level, or the long path within them would be parsed a million times.
func TestTemplatesWithinTemplates(t *testing.T) {
	const levels = 30
	for _, text := range []string{"a x", "a", "", "f(a)", "a,1)"} {
		p := &parser{text: strings.Repeat("template(", levels) + text}
		if _, ok := p.expression(); ok && p.complete() {
			t.Errorf("%q is parsed", text)
		}
		if p.limit != nil || p.nodes > 10*levels {
			t.Errorf("%q: %d attempts for %d levels, %v", text, p.nodes, levels, p.limit)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.b", "f(a,1,'x',k=2)|g()", "template(a.$1,'b')", `a.{b,c{d,e}}\=`, "f(a|g(true),none)", "f(1e5,-2.5)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			_ = err.Error()
			return
		}
		if c, ok := e.(*Call); ok && !strings.Contains(text, c.Raw) {
			t.Errorf("Parse(%q): raw text %q", text, c.Raw)
		}
		FirstPath(text)
	})
}
