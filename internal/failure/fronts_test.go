package failure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/failure"
	"varve/internal/graphite"
	"varve/internal/graphite/event"
	"varve/internal/httpapi"
	"varve/internal/ingest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/ingest/opentsdb"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/rollup"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/timeline"
	"varve/internal/timeline/api"
	"varve/internal/timeline/local"
	"varve/internal/transfer"
	"varve/internal/work"
)

// A failing is a store in which everything fails with an error.
type failing struct {
	*reference.Store
	err error
}

func (f *failing) View(context.Context) (store.View, error) { return nil, f.err }

func (f *failing) Append(context.Context, *store.Batch) error { return f.err }

func (f *failing) Delete(context.Context, ...store.Deletion) error { return f.err }

func (f *failing) Get(context.Context, string, string, string) (store.Value, error) {
	return store.Value{}, f.err
}

func (f *failing) Set(context.Context, string, string, string, string) error { return f.err }

func (f *failing) Keys(context.Context, string, string, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", f.err) }
}

// A shelf is one on which all that requests do first fails.
type shelf struct {
	timeline.Shelf
	timeline.Whole
	store *failing
}

func (s *shelf) History(context.Context, string) (timeline.History, error) {
	return timeline.History{}, s.store.err
}

func (s *shelf) Names(context.Context, string, string, int) ([]string, error) {
	return nil, s.store.err
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A site has all front ends over one failing store.
type site struct {
	store *failing
	mux   *http.ServeMux
	log   *bytes.Buffer
}

func (s *site) send(ctx context.Context, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return w
}

// level returns the level of the log line about the failed request, "" if there is none.
func (s *site) level() string {
	for line := range strings.Lines(s.log.String()) {
		if before, _, ok := strings.Cut(line, ` msg="request failed"`); ok {
			_, level, _ := strings.Cut(before, "level=")
			return level
		}
	}
	return ""
}

func open(t *testing.T) *site {
	s := &site{store: &failing{Store: reference.New(nil)}, mux: http.NewServeMux(), log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	registry := prometheus.NewRegistry()
	pipeline := ingest.New(s.store, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
	t.Cleanup(pipeline.Close)
	queries := query.New(s.store, query.DefaultConfig(), registry, time.Now)
	engine := agg.New(queries, kairos.NewSaver(pipeline))
	queriesAPI := kairos.New(s.store, engine, kairos.DefaultConfig(), "", time.Now)
	queriesAPI.Log = log
	inner := must[*local.Shelf](t)(local.Open(vfs.NewMem(), "timelines", local.Options{}))
	t.Cleanup(func() { inner.Close() })
	timelines := must[*timeline.Engine](t)(timeline.Open(&shelf{inner, inner, s.store}, timeline.Options{Own: event.Own(), Upkeep: -1}))
	t.Cleanup(func() { timelines.Close() })
	config := graphite.DefaultConfig()
	book := must[*retention.Book](t)(config.Book(log))
	scheduler := rollup.New(rollup.Options{Store: s.store, Engine: engine, Pipeline: pipeline, Parser: queriesAPI, Config: rollup.DefaultConfig(), Registerer: registry, Logger: log})
	for _, routes := range [][]httpapi.Route{
		queriesAPI.Routes(), kairosjson.New(pipeline, log).Routes(), opentsdb.New(pipeline, log).Routes(), scheduler.Routes(),
		graphite.New(queries, s.store, timelines, config, retention.NewShelf(book), time.Now, log).Routes(),
		api.New(api.Options{Engine: timelines, Config: timeline.DefaultConfig(), Pipeline: pipeline, Queries: queries, Metric: prometheus.NewRegistry(), Log: log}).Routes(),
		transfer.NewAPI(s.store, pipeline, transfer.DefaultConfig(), registry, log).Routes(),
	} {
		for _, r := range routes {
			s.mux.Handle(r.Method+" "+r.Path, r.Checked())
		}
	}
	return s
}

// requests has a request for each way in which a front end fails. form is how the body of its
// errors begins.
var requests = []struct{ name, method, path, body, form string }{
	{"query", "POST", "/api/v1/datapoints/query", `{"start_absolute":1,"metrics":[{"name":"m"}]}`, kairosDB},
	{"names", "GET", "/api/v1/metricnames", "", kairosDB},
	{"delete", "DELETE", "/api/v1/metric/m", "", kairosDB},
	{"metadata", "GET", "/api/v1/metadata/a/b/c", "", kairosDB},
	{"roll-ups", "GET", "/api/v1/rollups", "", kairosDB},
	{"export", "GET", "/api/v1/export?metric=m", "", kairosDB},
	{"timelines", "GET", "/api/v1/timelines", "", kairosDB},
	{"events of a timeline", "GET", "/api/v1/timelines/m/events", "", kairosDB},
	{"about a timeline", "GET", "/api/v1/timelines/m/stats", "", kairosDB},
	{"render", "GET", "/render?target=m&format=json", "", plainText},
	{"find", "GET", "/metrics/find?query=m", "", plainText},
	{"tags", "GET", "/tags", "", `{"error":"`},
	{"delete of Graphite's series", "POST", "/tags/delSeries?path=m", "", `{"error":"`},
	{"Graphite's event", "GET", "/events/7", "", `{"error":"`},
	{"points", "POST", "/api/v1/datapoints", `[{"name":"m","timestamp":1,"value":1,"tags":{"a":"b"}}]`, kairosDB},
	{"OpenTSDB's points", "POST", "/api/put", `[{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}}]`, `{"error":{"code":`},
	{"import", "POST", "/api/v1/import", `{"name":"m","timestamp":1,"value":1,"tags":{"a":"b"}}`, `{"offset":`},
	{"append of events", "POST", "/api/v1/timelines/m/events", `{"time":1700000000000,"data":1}`, `{"accepted":`},
}

const (
	kairosDB  = `{"errors":["`
	plainText = ""
)

var (
	limit  = &store.LimitError{Limit: "l", Max: 1, Need: 2}
	busy   = &store.LimitError{Limit: "l", Max: 1, Need: 2, Busy: true}
	passes = &store.LimitError{Limit: "l", Max: 1, Need: 2, Wait: 7 * time.Second}
)

// kinds has an error of each kind, and how all front ends answer it.
var kinds = []struct {
	err    error
	status int
	after  string // Retry-After
	level  string // of the log line; "" for none
}{
	{&store.InputError{Reason: "why"}, 400, "", ""},
	{limit, 400, "", ""},
	{passes, 503, "7", "WARN"},
	{busy, 503, "1", "WARN"},
	{fmt.Errorf("read: %w", busy), 503, "1", "WARN"},
	{&store.UnavailableError{Reason: "why"}, 503, "1", "WARN"},
	{&store.UnavailableError{Reason: "why", Err: limit}, 503, "1", "WARN"},
	{store.ErrClosed, 503, "1", "WARN"},
	{ingest.ErrBusy, 503, "1", "WARN"},
	{context.DeadlineExceeded, 503, "1", "WARN"},
	{context.Canceled, 503, "1", ""},
	{query.ErrCancelled, 400, "", ""},
	{&principal.ForbiddenError{Metric: "m"}, 403, "", ""},
	{&query.ComputeError{Reason: "why"}, 500, "", "WARN"},
	{&store.CorruptionError{File: "f", Reason: "why"}, 500, "", "ERROR"},
	{&work.PanicError{Doing: "read", Value: "why"}, 500, "", "ERROR"},
	{errors.New("why"), 500, "", "ERROR"},
}

// TestFrontEnds: an error has the same status, Retry-After and log line whatever the front end;
// only the form of the body differs.
func TestFrontEnds(t *testing.T) {
	for _, q := range requests {
		t.Run(q.name, func(t *testing.T) {
			s := open(t)
			for _, k := range kinds {
				s.store.err = k.err
				s.log.Reset()
				w := s.send(t.Context(), q.method, q.path, q.body)
				if after := w.Header().Get("Retry-After"); w.Code != k.status || after != k.after {
					t.Errorf("%T %v: %d, Retry-After %q; want %d, %q", k.err, k.err, w.Code, after, k.status, k.after)
				}
				form := q.form
				if w.Code == 503 && q.path == "/api/v1/datapoints" { // KairosDB's Java client loses a connection otherwise
					form = ""
				}
				if body := w.Body.String(); !strings.HasPrefix(body, form) || form == plainText && strings.HasPrefix(body, "{") {
					t.Errorf("%T %v: %d %s, want the form %s", k.err, k.err, w.Code, body, form)
				}
				if q.name == "import" { // logs how far it came
					continue
				}
				if level := s.level(); level != k.level {
					t.Errorf("%T %v: log level %q, want %q: %s", k.err, k.err, level, k.level, s.log)
				}
			}
		})
	}
}

// TestLeft: a request whose client has left is not counted as one that succeeded, and not logged.
func TestLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	for _, q := range requests {
		s := open(t)
		s.store.err = context.Canceled
		if w := s.send(ctx, q.method, q.path, q.body); w.Code != 503 || s.level() != "" {
			t.Errorf("%s: %d %s, log %s", q.name, w.Code, w.Body, s.log)
		}
	}
}

// TestLeakingClient: KairosDB's Java client gets a body with a 400 only, whatever it asks for that
// KairosDB has. Other programs with the same HTTP client get the bodies of all other answers.
var ownPath = regexp.MustCompile(`^/(api/v1/(timelines|import|export)|admin/)`)

func TestLeakingClient(t *testing.T) {
	for _, q := range requests {
		s := open(t)
		for _, k := range kinds {
			s.store.err = k.err
			r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
			r.Header.Set("User-Agent", "Apache-HttpClient/4.5.2 (Java/1.8.0_252)")
			w := httptest.NewRecorder()
			if s.mux.ServeHTTP(w, r); w.Code != k.status || (w.Body.Len() > 0) != (k.status == 400 || ownPath.MatchString(q.path)) || w.Header().Get("Retry-After") != k.after {
				t.Errorf("%s, %T %v: %d, Retry-After %q, %s", q.name, k.err, k.err, w.Code, w.Header().Get("Retry-After"), w.Body)
			}
		}
	}
}

// TestLongTexts: neither an answer nor the log repeats a long text of a client.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	s := open(t)
	s.store.err = errors.New("why")
	for _, q := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/api/v1/export?metric=" + long, "", 500},
		{"GET", "/api/v1/rollups/" + long, "", 500},
		{"POST", "/api/v1/rollups", `{"name":"n","execution_interval":{"value":1,"unit":"` + long[:100_000] + `"}}`, 400},
	} {
		s.log.Reset()
		w := s.send(t.Context(), q.method, q.path, q.body)
		if w.Code != q.status || w.Body.Len() == 0 || w.Body.Len() > 3000 || s.log.Len() > 4000 {
			t.Errorf("%s %.30s: %d, %d bytes, %d bytes of log", q.method, q.path, w.Code, w.Body.Len(), s.log.Len())
		}
	}
}

// TestSent: after the beginning of an answer, a failure cuts the connection and is logged, also if
// the request was cancelled because the server stops.
func TestSent(t *testing.T) {
	for _, tc := range []struct {
		err  error
		line string
	}{{errors.New("why"), `level=WARN msg="answer aborted" path=/render`}, {context.Canceled, ""}} {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", "/render", nil)
		cut := func() (v any) {
			defer func() { v = recover() }()
			failure.Answer(httptest.NewRecorder(), r, log, fmt.Errorf("render: %w", failure.Sent(tc.err)), httpapi.WriteErrors)
			return nil
		}()
		if cut != http.ErrAbortHandler || !strings.Contains(lines.String(), tc.line) || tc.line == "" && lines.Len() > 0 {
			t.Errorf("%v: %v, log %s", tc.err, cut, &lines)
		}
	}
	if failure.Sent(nil) != nil {
		t.Error("no error became one")
	}
}

// TestOf: kinds of errors that only one front end has, and texts.
func TestOf(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		text   string
		wait   time.Duration
	}{
		{timeline.ErrNotFound, 404, "not found", 0},
		{timeline.ErrConflict, 409, "changed meanwhile", 0},
		{timeline.ErrBehind, 410, "the cursor is older", 0},
		{&store.UnavailableError{Reason: "other servers", Err: timeline.ErrConflict}, 503, "other servers", 0},
		{&ingest.Fault{Reason: ingest.TooSlow, Text: "slow"}, 408, "slow", 0},
		{&ingest.Fault{Reason: ingest.MaxSeries, Text: "many", Err: passes}, 400, "many", 0},
		{failure.New(404, "none"), 404, "none", 0},
		{failure.Later(3*time.Second, "soon"), 503, "soon", 3 * time.Second},
		{context.Canceled, 503, "the client has left, or the server is stopping", 0},
		{&store.UnavailableError{Reason: "nodes are down", Err: context.DeadlineExceeded}, 503, "nodes are down", 0},
		{context.DeadlineExceeded, 503, "the store did not answer in time", 0},
		{errors.New(strings.Repeat("x", 1<<20)), 500, "xxx", 0},
	} {
		f := failure.Of(fmt.Errorf("read: %w", tc.err))
		if f.Status != tc.status || !strings.Contains(f.Texts[0], tc.text) || len(f.Texts[0]) > 3000 || tc.status == 503 && f.Wait != tc.wait {
			t.Errorf("%.100v: %d %.100q in %v", tc.err, f.Status, f.Texts, f.Wait)
		}
	}
}
