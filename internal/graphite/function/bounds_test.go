package function

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/graphite/target"
	"varve/internal/work"
)

// A ramp is a Source of series a.0 to a.n on a step of a minute. A path that
// does not begin with a has no series.
type ramp struct {
	n       int
	fetches atomic.Int64
	broken  bool
}

func (r *ramp) Fetch(ctx context.Context, queries []Query, within Range) ([][]Fetched, error) {
	r.fetches.Add(1)
	if r.broken {
		panic("the source is broken")
	}
	out := make([][]Fetched, len(queries))
	for i, q := range queries {
		if !strings.HasPrefix(q.Text, "a") {
			continue
		}
		for k := range r.n {
			start := within.From - within.From%60 + 60
			f := Fetched{Name: fmt.Sprintf("a.%d", k), Start: start, Step: 60, Values: make([]float64, max((within.Until-start)/60+1, 0))}
			for j := range f.Values {
				f.Values[j] = float64(j + k)
			}
			out[i] = append(out[i], f)
		}
	}
	return out, ctx.Err()
}

func (r *ramp) Events(context.Context, []string, int64, int64) ([]int64, error) { return nil, nil }

func (r *ramp) Yield() error { return nil }

// limited is a budget of some bytes.
type limited struct{ left atomic.Int64 }

var errBudget = errors.New("the memory of the request is used up")

func (l *limited) Reserve(bytes int64) error {
	if bytes < 0 {
		panic("a negative number of bytes")
	}
	if l.left.Add(-bytes) < 0 {
		return errBudget
	}
	return nil
}

func evaluate(ctx context.Context, r *ramp, bytes int64, span time.Duration, texts ...string) ([]*Series, error) {
	var targets []target.Expr
	for _, text := range texts {
		e, err := target.Parse(text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, e)
	}
	until := time.Unix(1710072000, 0).UTC()
	budget := &limited{}
	budget.left.Store(bytes)
	return Evaluate(ctx, r, budget, &Request{From: until.Add(-span), Until: until, Now: until}, targets)
}

// TestBounds: what a client asks for costs it an error, and the server neither
// memory nor time.
func TestBounds(t *testing.T) {
	nested := func(f string, n int) string { return strings.Repeat(f+"(", n) + "a" + strings.Repeat(",5)", n) }
	long := strings.Repeat("%", 100_000)
	for name, text := range map[string]string{
		"nested windows":     nested("movingAverage", 60),
		"nested shifts":      strings.Repeat("timeShift(", 60) + "a" + strings.Repeat(",'1h')", 60),
		"a stack":            "timeStack(a,'1s',0,2000000000)",
		"a fine grid":        "time('x',1)",
		"events":             "events('*')",
		"a fine sum":         "summarize(a,'1s')",
		"fine hits":          "hitcount(a,'1s')",
		"many copies":        "sumSeries(" + strings.Repeat("a,", 20_000) + "a)",
		"growing names":      strings.Repeat("aliasSub(", 60) + "a" + strings.Repeat(`,'(.*)','\1\1')`, 60),
		"a wide replacement": `aliasSub(alias(a,'` + strings.Repeat("a", 1000) + `'),'.*','` + strings.Repeat(`\g<0>`, 40_000) + `')`,
		"a wide template":    "applyByNode(alias(a,'" + strings.Repeat("a", 100_000) + "'),0,'" + long + "')",
		"a wide variable":    "template(" + strings.Repeat("$1", 50_000) + ",'" + strings.Repeat("a", 100_000) + "')",
		"a wide format":      "aliasQuery(a,'x','a','%100000000d')",
		"a huge window":      "movingAverage(a,1000000000000)",
		"a long window":      "movingSum(a,'900000000d')",
		"a zero interval":    "smartSummarize(a,'0min')",
		"a negative one":     "hitcount(a,'-5min')",
		"a step of zero":     "randomWalk('x',0)",
		"a negative window":  "movingAverage(a,-60000000000)",
		"one more list":      "mapSeries(a,1)",
		"a value":            "5",
		"an unknown one":     "nosuch(a)",
	} {
		start := time.Now()
		_, err := evaluate(t.Context(), &ramp{n: 3}, 64<<20, 365*24*time.Hour, text)
		var param *ParamError
		if err == nil && name != "a value" || err != nil && !errors.As(err, &param) && !errors.Is(err, errBudget) {
			t.Errorf("%s: got error %v", name, err)
		} else if err != nil && len(err.Error()) > 1000 {
			t.Errorf("%s: a message of %d bytes", name, len(err.Error()))
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
}

// TestLongNames: names that repeat a long one for each series are memory of the request.
func TestLongNames(t *testing.T) {
	many, long := "group("+strings.Repeat("a,", 400)+"a)", "alias(time('x',60),'"+strings.Repeat("x", 100_000)+"')"
	for _, text := range []string{"asPercent(" + many + "," + long + ")", "divideSeries(" + many + "," + long + ")"} {
		if _, err := evaluate(t.Context(), &ramp{n: 3}, 32<<20, time.Hour, text); !errors.Is(err, errBudget) {
			t.Errorf("%.30s...: got error %v", text, err)
		}
	}
}

// TestRepetitions: a call may name the same long text, node or matcher many times for each
// series. What it makes of them is charged before it is made.
func TestRepetitions(t *testing.T) {
	repeat := strings.Repeat
	long, x := repeat("x", 20_000), repeat("x", 200_000)
	for text, want := range map[string]error{
		"aliasByNode(alias(limit(a,1),'" + long + "')" + repeat(",0", 20_000) + ")":                                 errBudget,
		"groupByNodes(alias(limit(a,1),'" + long + "'),'sum'" + repeat(",0", 20_000) + ")":                          errBudget,
		"aliasByNode(alias(limit(a,1),'" + repeat(".", 100_000) + "')" + repeat(",0", 2000) + ")":                   nil,
		"groupByTags(consolidateBy(limit(a,1),'" + long + "'),'sum'" + repeat(",'consolidateBy'", 10_000) + ")":     errBudget,
		"legendValue(limit(a,1)" + repeat(",'sum'", 10_000) + ",'si')":                                              errBudget,
		"reduceSeries(mapSeries(aliasSub(a,'a[.](.*)','\\1.a'),0),'sumSeries',1,'a'" + repeat(",'b'", 20_000) + ")": errBudget,
		"reduceSeries(mapSeries(aliasSub(a,'a[.](.*)','\\1.a'),0),'" + x + "',1,'b'" + repeat(",'a'", 2) + ")":      errBudget,
		"template(group(" + repeat("$1b,", 10_000) + "$1b),'" + long + "')":                                         errBudget,
		"applyByNode(a,1,'b.%." + x + "')":                                                                          errBudget,
		"applyByNode(a,1,'b','%" + x + "')":                                                                         errBudget,
		"useSeriesAbove(a,-1,'^.*$','group(" + repeat("a,", 10_000) + "a)')":                                        errBudget,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := evaluate(t.Context(), &ramp{n: 200}, 16<<20, time.Hour, text)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, want) {
			t.Errorf("%.70s...: got error %v, want %v", text, err, want)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 128<<20 {
			t.Errorf("%.70s...: %d MiB were allocated", text, made>>20)
		}
	}
}

// TestNothingToMap: mapSeries of no series is none, whether it is reduced or not.
func TestNothingToMap(t *testing.T) {
	for _, text := range []string{"mapSeries(b,0)", "reduceSeries(mapSeries(b,0),'asPercent',1,'x','y')", "scale(removeBetweenPercentile(b,5),2)"} {
		if list, err := evaluate(t.Context(), &ramp{n: 3}, 1<<20, time.Hour, text); err != nil || len(list) > 0 {
			t.Errorf("%s: %d series, %v", text, len(list), err)
		}
	}
}

// TestAllOfThem: a count of None is all series.
func TestAllOfThem(t *testing.T) {
	for _, text := range []string{"limit(a,None)", "mostDeviant(a,None)"} {
		if list, err := evaluate(t.Context(), &ramp{n: 3}, 1<<20, time.Hour, text); err != nil || len(list) != 3 {
			t.Errorf("%s: %d series, %v", text, len(list), err)
		}
	}
}

// TestCancel: the work ends when the client is gone.
func TestCancel(t *testing.T) {
	for _, text := range []string{"movingMedian(a,100000)", "sumSeries(" + strings.Repeat("a,", 1000) + "a)", "timeStack(a,'1h',0,100000)"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		start := time.Now()
		_, err := evaluate(ctx, &ramp{n: 20}, 1<<40, 180*24*time.Hour, text)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%.40s: got %v", text, err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%.40s: took %v after its end", text, d)
		}
	}
}

func TestPanicOfASourceIsAnError(t *testing.T) {
	_, err := evaluate(t.Context(), &ramp{broken: true}, 1<<20, time.Hour, "sumSeries(a,b)")
	var fault *work.PanicError
	if !errors.As(err, &fault) {
		t.Errorf("got %v", err)
	}
}

// TestOneFetch: all targets are fetched at once, and again only for another
// range.
func TestOneFetch(t *testing.T) {
	r := &ramp{n: 2}
	if _, err := evaluate(t.Context(), r, 1<<30, time.Hour, "sumSeries(a.x,b)", "scale(a.x,2)", "a.y", "seriesByTag('a=b')"); err != nil || r.fetches.Load() != 1 {
		t.Errorf("%d fetches, %v; want 1", r.fetches.Load(), err)
	}
	if _, err := evaluate(t.Context(), r, 1<<30, time.Hour, "movingAverage(a,5)", "movingSum(a,5)"); err != nil || r.fetches.Load() != 3 {
		t.Errorf("%d fetches, %v; want 2 more", r.fetches.Load(), err)
	}
}

// TestOrder: setXFilesFactor and stacked change later evaluations, so
// their targets are not evaluated in parallel.
func TestOrder(t *testing.T) {
	for range 20 {
		list, err := evaluate(t.Context(), &ramp{n: 1}, 1<<30, time.Hour, "stacked(a)", "stacked(a)", "stacked(a)")
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range list {
			if want := float64(10 * (i + 1)); s.Values[10] != want {
				t.Fatalf("series %d: %v; want %v", i, s.Values[10], want)
			}
		}
	}
}

func BenchmarkSumSeries(b *testing.B) {
	r := &ramp{n: 1000}
	for b.Loop() {
		if _, err := evaluate(b.Context(), r, 1<<40, 24*time.Hour, "sumSeries(a)"); err != nil {
			b.Fatal(err)
		}
	}
}

// A yielding source counts how often it is asked to let others have their turn.
type yielding struct {
	ramp
	yields atomic.Int64
}

func (y *yielding) Yield() error {
	y.yields.Add(1)
	return nil
}

// TestLongSeries: functions let others have their turn also within a long series.
func TestLongSeries(t *testing.T) {
	const points = 300_000
	for text, least := range map[string]int64{
		"round(a,300)":                  points / valuesPerLook,
		"scaleToSeconds(a,1)":           points / valuesPerLook,
		"pow(a,0.5)":                    points / valuesPerLook,
		"perSecond(a)":                  points / valuesPerLook,
		"exponentialMovingAverage(a,5)": points / (1 << 14),
		"holtWintersForecast(a)":        points / (1 << 14),
		"movingMedian(a,100)":           4 * points / (1 << 14), // sorting, merging, ranks, windows

		"legendValue(a" + strings.Repeat(",'sum'", 50) + ")": 50,
	} {
		y := &yielding{ramp: ramp{n: 1}}
		e, err := target.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		budget := &limited{}
		budget.left.Store(1 << 30)
		until := time.Unix(1710072000, 0).UTC()
		request := &Request{From: until.Add(-points * time.Minute), Until: until, Now: until}
		if _, err := Evaluate(t.Context(), y, budget, request, []target.Expr{e}); err != nil {
			t.Fatal(err)
		}
		if n := y.yields.Load(); n < least {
			t.Errorf("%s: others had their turn %d times, want %d at least", text, n, least)
		}
	}
}

// TestVariables: those of a request come after those of a template, and replace them in their
// place. A template without its own has the list of the request, however long that is.
func TestVariables(t *testing.T) {
	sc := &scope{evaluation: &evaluation{request: &Request{Variables: []Variable{{"a", "1"}, {"c", "2"}, {"d", "3"}}}}}
	literals := func(names ...string) (out []target.Named) {
		for _, name := range names {
			out = append(out, target.Named{Name: name, Value: target.String("own")})
		}
		return out
	}
	got := fmt.Sprint(sc.variables(&target.Template{Named: literals("c", "b", "c")}))
	if want := "[{c 2} {b own} {a 1} {d 3}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if plain := sc.variables(&target.Template{}); len(plain) != 3 || &plain[0] != &sc.request.Variables[0] {
		t.Errorf("%v is a copy", plain)
	}
}

// TestManyVariablesInAPath: replacing them ends with the request, and gives others a turn.
func TestManyVariablesInAPath(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	turns := 0
	budget := &limited{}
	budget.left.Store(1 << 20)
	sc := &scope{evaluation: &evaluation{ctx: ctx, budget: budget, source: yields(func() {
		if turns++; turns == 10 {
			cancel()
		}
	})}}
	if _, _, err := sc.substitute("a", make([]Variable, 10_000)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d turns", err, turns)
	}
}

// yields is a Source that only tells of turns.
type yields func()

func (yields) Fetch(context.Context, []Query, Range) ([][]Fetched, error) { return nil, nil }

func (yields) Events(context.Context, []string, int64, int64) ([]int64, error) { return nil, nil }

func (y yields) Yield() error {
	y()
	return nil
}
