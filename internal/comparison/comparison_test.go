package comparison

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"varve/internal/embedded"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/originals"
	varvequery "varve/internal/query"
	"varve/internal/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startVarve serves an empty embedded store.
func startVarve(t *testing.T) string {
	st, err := embedded.Open(vfs.NewMem(), "store", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	engine := agg.New(varvequery.New(st, varvequery.DefaultConfig(), registry, time.Now), nil)
	pipeline := ingest.New(st, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	api := kairos.New(st, engine, kairos.DefaultConfig(), "Varve of this test", time.Now)
	c := server.DefaultConfig()
	c.HTTPAddr, c.CloseGrace = "127.0.0.1:0", 0
	srv := server.New(server.Options{
		Config: c, Log: slog.New(slog.DiscardHandler), Registry: registry,
		Front: server.Front{
			Routes: slices.Concat(api.Routes(), kairosjson.New(pipeline, nil).Routes()),
			Checks: []server.Check{server.AliveCheck(), server.QueryCheck(st)},
		},
	})
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, st.Close()); err != nil {
			t.Error(err)
		}
	})
	return "http://" + srv.Addr("http")
}

// A sent is points of one series in the form in which clients send them.
type sent struct {
	Name   string            `json:"name"`
	Tags   map[string]string `json:"tags"`
	Points [][2]any          `json:"datapoints"`
}

func put(t *testing.T, to string, list ...sent) {
	t.Helper()
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(to+"/api/v1/datapoints", "application/json", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatal(response.Status)
	}
}

const (
	start = int64(1_700_000_000_000)
	end   = start + 7*86_400_000
)

// world returns points of a few metrics over a week.
func world(seed uint64) (list []sent) {
	random := rand.New(rand.NewPCG(seed, 0))
	for m := range 4 {
		for s := range 6 {
			of := sent{Name: fmt.Sprint("m", m), Tags: map[string]string{"host": fmt.Sprint("h", s), "dc": fmt.Sprint("d", s%2)}}
			for range 200 {
				var v any = random.IntN(1000)
				switch {
				case m == 1:
					v = random.NormFloat64() * 1e6
				case m == 2:
					v = "text" + fmt.Sprint(random.IntN(3)) + "é\""
				}
				of.Points = append(of.Points, [2]any{start + random.Int64N(end-start), v})
			}
			list = append(list, of)
		}
	}
	return list
}

func options(a, b string) Options {
	return Options{
		A: a, B: b, StartMS: start, EndMS: end, Queries: 150, Seed: 1,
		Timeout: 30 * time.Second, Limit: 2 * time.Minute, Settle: time.Millisecond,
	}
}

func compare(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEqualServers(t *testing.T) {
	a, b := startVarve(t), startVarve(t)
	put(t, a, world(1)...)
	put(t, b, world(1)...)
	put(t, a, sent{"kairosdb.own", map[string]string{"host": "a"}, [][2]any{{start, 1}}})
	parts := map[string]bool{}
	o := options(a, b)
	o.Progress = func(part string, done, total int) { parts[part] = true }
	r := compare(t, o)
	if !r.Equal() || r.Metrics != 4 || r.Tags != 4 || r.Queries != 150 || r.Points < 10_000 || len(r.Skipped)+len(r.Cut)+r.Settled > 0 {
		t.Errorf("%s", text(t, r))
	}
	if len(parts) != 3 {
		t.Errorf("progress of %v", parts)
	}
	if got := text(t, r); !strings.Contains(got, "Varve of this test") || !strings.HasSuffix(got, "no differences\n") {
		t.Error(got)
	}
	o.Metrics = regexp.MustCompile("^m1$")
	if r := compare(t, o); r.Metrics != 1 {
		t.Errorf("%d metrics match", r.Metrics)
	}
	o.Metrics = regexp.MustCompile("own")
	if r := compare(t, o); r.Count != 1 {
		t.Errorf("KairosDB's own metrics, asked for by name:\n%s", text(t, r))
	}
}

// Each kind of difference is reported with numbers and with a query that can be sent
// again.
func TestDifferences(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(list []sent) []sent
		want   []string
	}{
		{"a metric is missing", func(l []sent) []sent { return l[:18] },
			[]string{`metric "m3" is listed by one side only; points differ`, `"name":"m3"`, "b 0;"}},
		{"a series is missing", func(l []sent) []sent { return l[1:] },
			[]string{`tag host of metric "m0": 1 values, such as "h0" is listed by one side only`, "a 1, b 0; 1 differ"}},
		{"a point is missing", func(l []sent) []sent { l[0].Points = l[0].Points[1:]; return l }, []string{"points differ", `"b":null`}},
		{"a point is more", func(l []sent) []sent { l[0].Points = append(l[0].Points, [2]any{end - 1, 5}); return l }, []string{"points differ"}},
		{"a value differs", func(l []sent) []sent { l[0].Points[3][1] = -5000; return l }, []string{"points differ", "-5000"}},
		{"a text differs", func(l []sent) []sent { l[13].Points[3][1] = "other"; return l }, []string{`"b":"other"`}},
		{"a type differs", func(l []sent) []sent { l[0].Points[3][1] = json.Number("5.0"); return l }, []string{"points differ"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := startVarve(t), startVarve(t)
			put(t, a, world(1)...)
			put(t, b, tc.change(world(1))...)
			r := compare(t, options(a, b))
			got := text(t, r)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if r.Equal() || len(r.Differences) > maxDifferences {
				t.Errorf("%d differences, %d told", r.Count, len(r.Differences))
			}
			for _, d := range r.Differences {
				if !json.Valid(d.Query) {
					t.Errorf("the query cannot be pasted: %s", d.Query)
				}
			}
		})
	}
}

// front forwards requests to a server, unless answers replaces the answer.
func front(t *testing.T, to string, answers func(w http.ResponseWriter, r *http.Request) bool) string {
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	transport := &http.Transport{}
	proxy.Transport = transport
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	return s.URL
}

func write(w http.ResponseWriter, status int, text string) bool {
	w.WriteHeader(status)
	_, err := w.Write([]byte(text))
	return err == nil
}

// A difference that has disappeared at a later check is not reported.
func TestSettled(t *testing.T) {
	a := startVarve(t)
	put(t, a, world(1)...)
	var seen sync.Map
	b := front(t, a, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/query") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		_, again := seen.LoadOrStore(string(body), true)
		return !again && write(w, 200, `{"queries":[{"results":[]}]}`)
	})
	if r := compare(t, options(a, b)); !r.Equal() || r.Settled < 50 {
		t.Errorf("%s", text(t, r))
	}
}

// A name that only one side lists is no difference if it has no points.
func TestNamesOfDeletedPoints(t *testing.T) {
	b := startVarve(t)
	put(t, b, world(1)...)
	a := front(t, b, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/metricnames"):
			return write(w, 200, `{"results":["m0","m1","m2","m3","deleted"]}`)
		case strings.HasSuffix(r.URL.Path, "/tags"):
			return write(w, 200, `{"queries":[{"results":[{"name":"m0","tags":{"host":["h0","h1","h2","h3","h4","h5","gone"],"dc":["d0","d1"]}}]}]}`)
		}
		return false
	})
	if r := compare(t, options(a, b)); !r.Equal() || r.Listed != 5 {
		t.Errorf("%s", text(t, r))
	}
}

// A query that a server cannot answer is distinguished from a difference.
func TestSideFails(t *testing.T) {
	b := startVarve(t)
	put(t, b, world(1)...)
	all := func(status int, text string) string {
		return front(t, b, func(w http.ResponseWriter, r *http.Request) bool { return write(w, status, text) })
	}
	later := func(status int, text string) string {
		return front(t, b, func(w http.ResponseWriter, r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/query") && write(w, status, text)
		})
	}
	for name, a := range map[string]string{
		"nobody listens": "http://127.0.0.1:1",
		"a web page":     all(200, "<html>"),
		"not found":      all(404, "no"),
		"503":            later(503, `{"errors":["no place"]}`),
		"text":           later(200, "oops"),
	} {
		o := options(a, b)
		o.Queries, o.Timeout = 20, time.Minute
		_, err := Run(t.Context(), o)
		if side := (*SideError)(nil); !errors.As(err, &side) || side.Side != "a" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := compare(t, options(later(500, `{"errors":["broken"]}`), b)); r.Equal() || !strings.Contains(text(t, r), "a answers 500 broken") {
		t.Errorf("%s", text(t, r))
	}
	// Values that KairosDB stores but cannot return.
	if r := compare(t, options(later(500, `{"errors":["NaN or Infinity:NaN"]}`), b)); !r.Equal() || len(r.Skipped) != 1 {
		t.Errorf("%s", text(t, r))
	}
	for _, o := range []Options{options("ftp://a", b), options("http://u:secret@:x", b), {A: b, B: b, StartMS: -1}, {A: b, B: b, StartMS: 2, EndMS: 1}} {
		_, err := Run(t.Context(), o)
		if side := (*SideError)(nil); err == nil || errors.As(err, &side) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", o, err)
		}
	}
}

// A query whose answer is too large or too slow is sent with a shorter time range.
func TestLargeAnswers(t *testing.T) {
	b := startVarve(t)
	put(t, b, world(1)...)
	long := func(body []byte) bool {
		var q query
		return json.Unmarshal(body, &q) == nil && q.End-q.Start > 3_600_000
	}
	for name, say := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"limit": func(w http.ResponseWriter, r *http.Request) bool {
			return write(w, 400, `{"errors":["limit query.max_samples of 5 reached"]}`)
		},
		"large": func(w http.ResponseWriter, r *http.Request) bool {
			return write(w, 200, strings.Repeat(" ", maxAnswer+1))
		},
		"slow": func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
	} {
		a := front(t, b, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/query") {
				return false
			}
			body := make([]byte, r.ContentLength)
			n, _ := r.Body.Read(body)
			r.Body = http.NoBody
			if long(body[:n]) {
				return say(w, r)
			}
			return write(w, 200, `{"queries":[{"results":[]}]}`)
		})
		o := options(a, b)
		o.Queries, o.Metrics = 3, regexp.MustCompile("^m0$")
		if name == "slow" {
			o.Timeout = 200 * time.Millisecond
		}
		r, err := Run(t.Context(), o)
		if err != nil && name == "slow" { // so may others be on a busy machine
			o.Timeout = 20 * time.Second
			r, err = Run(t.Context(), o)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Queries != 3 {
			t.Errorf("%s: %s", name, text(t, r))
		}
	}
	o := options(b, b)
	o.Limit = time.Nanosecond
	if r := compare(t, o); len(r.Cut) == 0 || !strings.Contains(text(t, r), "cut short") {
		t.Errorf("%s", text(t, r))
	}
}

// Sums may differ by rounding, because they are added up in different orders. Raw values
// must be equal.
func TestEqualValues(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		raw  bool
		want bool
	}{
		{"1.5", "1.50", true, true},
		{"1", "1.0", true, false},
		{"1", "1.0", false, true},
		{"9007199254740993", "9007199254740992", true, false},
		{"0.30000000000000004", "0.3", true, false},
		{"0.30000000000000004", "0.3", false, true},
		{`"aé"`, `"a\u00e9"`, true, true},
		{`"a"`, `"b"`, false, false},
		{`"1"`, "1", false, false},
		{"null", "null", true, true},
		{"1E10", "1.0E10", true, true},
	} {
		differ, _ := compareValues([]point{{1, tc.a}}, []point{{1, tc.b}}, tc.raw, rounding)
		if (differ == 0) != tc.want {
			t.Errorf("%s and %s (raw %t): %d differ", tc.a, tc.b, tc.raw, differ)
		}
	}
	for _, other := range [][]point{{{1, "1"}, {2, "2"}}, {{2, "2"}, {1, "1"}}} {
		for _, one := range [][]point{{{1, "1"}, {2, "2"}}, {{2, "2"}, {1, "1"}}} {
			if differ, pairs := compareValues(slices.Clone(one), slices.Clone(other), true, rounding); differ != 0 {
				t.Errorf("%v and %v differ in %v", one, other, pairs)
			}
		}
	}
	differ, pairs := compareValues([]point{{1, "2"}, {1, "1"}, {3, "3"}}, []point{{1, "1"}, {1, "2"}, {4, "3"}}, true, rounding)
	if got, _ := json.Marshal(pairs); differ != 2 || string(got) != `[{"time":3,"a":3,"b":null},{"time":4,"a":null,"b":3}]` {
		t.Errorf("%d differ: %s", differ, got)
	}
}

// Queries stay within the time range, and both servers answer them alike.
func TestQueries(t *testing.T) {
	few := known{"m", map[string][]string{"host": {"a", "b"}, "dc": {"x"}}}
	m := &maker{Rand: rand.New(rand.NewPCG(1, 1)), metrics: []known{few, {name: "bare"}}, start: start, end: end}
	kinds := map[string]int{}
	for range 2000 {
		q := m.draw()
		if q.Start < start || q.End > end || q.End < q.Start || q.Zone != "UTC" {
			t.Fatalf("%+v", q)
		}
		kind := "raw"
		if !q.raw() {
			kind = q.Metrics[0].Aggregators[0].Name
		}
		kinds[kind]++
		if slices.Contains(inOrder, kind) && q.Metrics[0].Name == "m" && len(q.Metrics[0].GroupBy[0].Tags) != 2 {
			t.Fatalf("%s of several series: %+v", kind, q)
		}
	}
	if len(kinds) != 1+len(anyOrder)+len(inOrder) {
		t.Errorf("%v", slices.Sorted(maps.Keys(kinds)))
	}
	(&maker{Rand: m.Rand, metrics: m.metrics, start: 5, end: 5}).draw()
}

// KairosDB and Varve with the same points have no differences. One more point in one of
// them is found.
func TestKairosDB(t *testing.T) {
	k := originals.StartKairosDB(t, originals.KairosDBOptions{Cassandra: []string{originals.Cassandra(t)}})
	v := startVarve(t)
	for _, one := range world(3) {
		put(t, k.URL, one)
		put(t, v, one)
	}
	o := options(k.URL, v)
	o.Settle = time.Second
	if r := compare(t, o); !r.Equal() || r.Metrics != 4 || r.Points < 10_000 {
		t.Errorf("%s", text(t, r))
	}
	put(t, k.URL, sent{"m0", map[string]string{"host": "h0", "dc": "d0"}, [][2]any{{start + 1000, 1}}})
	o.Settle = 100 * time.Millisecond
	if r := compare(t, o); r.Equal() {
		t.Error("a point that only KairosDB has is not found")
	}
}

// The last line of a report says what was found, or that an error left nothing to compare.
func TestLastLine(t *testing.T) {
	for want, r := range map[string]*Report{
		"\n1 difference\n":         {Count: 1},
		"\n2 differences\n":        {Count: 2},
		"\nno differences\n":       {Metrics: 1},
		"\nnothing was compared\n": {broken: true},
		"\nno differences before an error ended the comparison\n": {broken: true, Metrics: 1},
	} {
		if got := text(t, r); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q at its end", got, want)
		}
	}
}

// The metrics that queries may select are limited, even if the tags of all metrics differ.
func TestKnownMetricsAreLimited(t *testing.T) {
	serve := func(name string) *side {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"queries":[{"results":[{"tags":{"host":[%q]},"values":[]}]}]}`, name)
		}))
		t.Cleanup(s.Close)
		one, err := newSide(name, s.URL, 30*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.close)
		return one
	}
	o := options("", "")
	o.Progress = func(string, int, int) {}
	c := &comparison{Options: o, a: serve("a"), b: serve("b"), random: rand.New(rand.NewPCG(1, 0)), report: &Report{}}
	var names []string
	for i := range maxKnown + 50 {
		names = append(names, fmt.Sprint("m", i))
	}
	metrics, err := c.compareAllTags(t.Context(), names)
	if err != nil || len(metrics) != maxKnown {
		t.Errorf("%d metrics, %v; want %d", len(metrics), err, maxKnown)
	}
}
