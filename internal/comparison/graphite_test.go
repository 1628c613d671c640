package comparison

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"varve/internal/graphite/target"
)

// A tree is a server with Graphite's API that knows paths but no functions. Its points
// are a minute apart; answer may replace its answer for a target.
type tree struct {
	paths  map[string]float64 // the value of all points
	answer func(target string) (status int, text string)
}

func (s *tree) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/version":
		fmt.Fprint(w, `"1.1.10"`)
	case "/metrics/find":
		s.find(w, r.FormValue("query"))
	case "/metrics/expand":
		glob, _ := target.ParseGlob(r.FormValue("query"))
		var found []string
		for _, path := range slices.Sorted(maps.Keys(s.paths)) {
			if glob.Match(path) {
				found = append(found, fmt.Sprintf("%q", path))
			}
		}
		fmt.Fprintf(w, `{"results":[%s]}`, strings.Join(found, ","))
	case "/render":
		s.render(w, r.FormValue("target"))
	default:
		http.NotFound(w, r)
	}
}

func (s *tree) find(w http.ResponseWriter, query string) {
	prefix := strings.TrimSuffix(query, "*")
	leaf := map[string]int{}
	for path := range s.paths {
		rest, ok := strings.CutPrefix(path, prefix)
		if name, _, branch := strings.Cut(rest, "."); ok && branch {
			leaf[name] = 0
		} else if _, known := leaf[name]; ok && !known {
			leaf[name] = 1
		}
	}
	var nodes []string
	for name, n := range leaf {
		nodes = append(nodes, fmt.Sprintf(`{"text":%q,"id":%q,"leaf":%d,"expandable":%d,"allowChildren":%d}`, name, prefix+name, n, 1-n, 1-n))
	}
	fmt.Fprintf(w, "[%s]", strings.Join(nodes, ","))
}

func (s *tree) render(w http.ResponseWriter, text string) {
	if s.answer != nil {
		if status, said := s.answer(text); status != 0 {
			w.WriteHeader(status)
			fmt.Fprint(w, said)
			return
		}
	}
	glob, _ := target.ParseGlob(text)
	var series []string
	for _, path := range slices.Sorted(maps.Keys(s.paths)) {
		if glob.Match(path) {
			series = append(series, fmt.Sprintf(`{"target":%q,"tags":{},"datapoints":[[null,1700000000],[%v,1700000060],[-0.25,1700000120]]}`, path, s.paths[path]))
		}
	}
	fmt.Fprintf(w, "[%s]", strings.Join(series, ","))
}

// plain answers functions with no series, since a tree has no functions.
func plain(text string) (int, string) {
	if strings.Contains(text, "(") {
		return 200, "[]"
	}
	return 0, ""
}

func compareTrees(t *testing.T, a, b *tree, change func(*Options)) *Report {
	t.Helper()
	sideA, sideB := httptest.NewServer(a), httptest.NewServer(b)
	defer sideA.Close()
	defer sideB.Close()
	o := options(sideA.URL, sideB.URL)
	o.Graphite, o.Tolerance, o.Queries = true, 1e-9, 60
	if change != nil {
		change(&o)
	}
	return compare(t, o)
}

func grown() map[string]float64 {
	paths := map[string]float64{"top": 1, "a.b": 2, "carbon.own": 3}
	for i := range 20 {
		paths[fmt.Sprintf("a.b.c%d", i)] = float64(i)
		paths[fmt.Sprintf("d.%d.e.f", i)] = 1 / float64(i+3)
	}
	return paths
}

func TestEqualTrees(t *testing.T) {
	a, b := &tree{paths: grown(), answer: plain}, &tree{paths: grown(), answer: plain}
	b.paths["top"] = 1 + 1e-12 // within the tolerance
	b.paths["carbon.other"] = 5
	r := compareTrees(t, a, b, nil)
	if !r.Equal() || r.Metrics != 42 || r.Queries != 60 || r.Points < 60 || len(r.Skipped)+len(r.Cut)+r.Settled+r.Listed > 0 || r.Nothing() != "" {
		t.Errorf("%s", text(t, r))
	}
	if got := text(t, r); !strings.Contains(got, "Graphite 1.1.10\n") || !strings.Contains(got, "compared   42 paths, 60 queries") {
		t.Error(got)
	}
	if r := compareTrees(t, a, b, func(o *Options) { o.Metrics = regexp.MustCompile("^carbon.own") }); r.Metrics != 1 || !r.Equal() {
		t.Errorf("carbon's own, asked for by name:\n%s", text(t, r))
	}
}

func TestTreesThatDiffer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(b *tree)
		want   []string
	}{
		{"a value", func(b *tree) { b.paths["top"] = 1.5 }, []string{`"target":"top"`, "points    a 2, b 2; 1 differ", `{"time":1700000060000,"a":1,"b":1.5}`}},
		{"a path is missing", func(b *tree) { delete(b.paths, "d.7.e.f") }, []string{`path "d.7.e.f" is listed by one side only; points differ`, "a 2, b 0; 2 differ"}},
		{"a leaf beside a branch", func(b *tree) { delete(b.paths, "a.b") }, []string{`path "a.b" is listed by one side only`}},
		{"a refusal", func(b *tree) {
			b.answer = func(text string) (int, string) {
				if strings.HasPrefix(text, "d.") {
					return 400, "no such thing"
				}
				return plain(text)
			}
		}, []string{"b answers 400 no such thing"}},
		{"a step", func(b *tree) {
			b.answer = func(text string) (int, string) {
				if text == "top" {
					return 200, `[{"target":"top","datapoints":[[1,1700000000],[2,1700000010]]}]`
				}
				return plain(text)
			}
		}, []string{"a has one every 60 s, b every 10 s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &tree{paths: grown(), answer: plain}
			tc.change(b)
			r := compareTrees(t, &tree{paths: grown(), answer: plain}, b, func(o *Options) { o.Queries = 400 })
			for _, want := range tc.want {
				if got := text(t, r); !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
		})
	}
}

// A path that only one side lists is no difference if its points are the same.
func TestListedByOneTree(t *testing.T) {
	a, b := &tree{paths: grown()}, &tree{paths: grown()}
	a.answer = func(text string) (int, string) {
		if strings.HasPrefix(text, "empty") {
			return 200, `[{"target":"empty.one","datapoints":[[null,1700000000]]}]`
		}
		return plain(text)
	}
	a.paths["empty.one"], b.answer = 1, plain
	if r := compareTrees(t, a, b, nil); !r.Equal() || r.Listed != 1 {
		t.Errorf("%s", text(t, r))
	}
}

func TestTreesAtTheirLimits(t *testing.T) {
	limited := func(text string) (int, string) { return 400, "limit query.max_samples of 5 reached" }
	r := compareTrees(t, &tree{paths: grown(), answer: plain}, &tree{paths: grown(), answer: limited}, nil)
	if !r.Equal() || r.Skipped["queries whose answer is too large even for a short time range"] == 0 || r.Nothing() == "" {
		t.Errorf("%s", text(t, r))
	}
	odd := map[string]float64{"a b.c": 1, "x{y}": 2, "plain": 3}
	r = compareTrees(t, &tree{paths: odd, answer: plain}, &tree{paths: odd, answer: plain}, nil)
	if !r.Equal() || r.Metrics != 1 || len(r.Skipped) != 2 {
		t.Errorf("%s", text(t, r))
	}
}

func TestNoGraphite(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") }))
	defer other.Close()
	o := options(other.URL, other.URL)
	o.Graphite = true
	_, err := Run(context.Background(), o)
	if side := (*SideError)(nil); !errors.As(err, &side) || !strings.Contains(err.Error(), "not Graphite's") {
		t.Errorf("%v", err)
	}
}

// Every target that is drawn can be parsed, and its time range is within the limits.
func TestDrawnTargets(t *testing.T) {
	m := &targetMaker{maker: maker{Rand: rand.New(rand.NewPCG(1, 0)), start: 1000, end: 500_000}, paths: []string{"a.b", "top", "x-y.z:1.%"}}
	seen := map[string]bool{}
	for range 2000 {
		q := m.draw()
		if _, err := target.Parse(q.Target); err != nil || q.From < 1000 || q.Until > 500_000 || q.From >= q.Until {
			t.Fatalf("%+v: %v", q, err)
		}
		seen[q.Target] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d targets", len(seen))
	}
}

// Each reason why a comparison is incomplete is reported once: thousands of branches may have it.
func TestReasonsAreReportedOnce(t *testing.T) {
	a, b := &tree{paths: grown(), answer: plain}, &tree{paths: grown(), answer: plain}
	for i := range maxMissing + 1 {
		a.paths[fmt.Sprintf("x.p%d", i)] = 1
	}
	for i := range 20 {
		a.paths[fmt.Sprintf("y%d.p", i)] = 1
	}
	a.answer = func(text string) (int, string) {
		if text[0] == 'x' || text[0] == 'y' {
			return 200, "[]"
		}
		return plain(text)
	}
	r := compareTrees(t, a, b, func(o *Options) { o.Queries = 1 })
	if len(r.Cut) != 1 {
		t.Errorf("%d reasons: %q", len(r.Cut), r.Cut)
	}
}
