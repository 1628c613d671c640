package graphite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/graphite/event"
	"varve/internal/graphite/graphitetest"
	"varve/internal/ingest"
	"varve/internal/ingest/carbon"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
)

// different are the cases in which Varve's answer differs, and why.
var different = map[string]string{
	"render-errors-041": "the call does not end; Graphite fetches a series called scale",
}

// A site is an API over an embedded store in memory.
type site struct {
	*testing.T
	store    *embedded.Store
	mux      *http.ServeMux
	pipeline *ingest.Pipeline
	queries  *query.Engine
	registry *prometheus.Registry
}

func open(t *testing.T, config Config, limits query.Config) *site {
	t.Helper()
	return openSite(t, config, limits, false)
}

// openSite is open over a store that downsamples or not.
func openSite(t *testing.T, config Config, limits query.Config, enforce bool) *site {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	clock := func() time.Time { return graphitetest.Clock }
	book, err := config.Book(log)
	if err != nil {
		t.Fatal(err)
	}
	book.Enforced = enforce
	shelf := retention.NewShelf(book)
	options, c := embedded.Options{Registerer: registry, Logger: log, Now: clock}, embedded.DefaultConfig()
	if enforce {
		options.Book = shelf
		c.LateHold = 0 // folds do not wait after the start
	}
	store, err := embedded.Open(vfs.NewMem(), "data", c, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &site{T: t, store: store, mux: http.NewServeMux(), registry: registry}
	s.pipeline = ingest.New(store, ingest.DefaultConfig(), ingest.Options{Registerer: registry, Logger: log})
	t.Cleanup(s.pipeline.Close)
	s.queries = query.New(store, limits, registry, clock)
	for _, r := range New(s.queries, store, openTimelines(t), config, shelf, clock, log).Routes() {
		s.mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	return s
}

func openTimelines(t *testing.T) *timeline.Engine {
	t.Helper()
	shelf, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shelf.Close() })
	e, err := timeline.Open(shelf, timeline.Options{Own: event.Own(), Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// send stores lines of carbon's protocol.
func (s *site) send(lines string) {
	s.Helper()
	server := carbon.NewLineServer(s.pipeline, carbon.DefaultConfig(), carbon.Options{Registerer: prometheus.NewRegistry()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, lines); err != nil {
		s.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	io.ReadAll(c) // ends once all lines are stored
	if err := errors.Join(server.Shutdown(context.Background()), <-served); err != nil {
		s.Fatal(err)
	}
}

// ask sends a request. It removes a trailing slash from the path, as the server does.
func (s *site) ask(method, path string, form url.Values) *httptest.ResponseRecorder {
	path = strings.TrimSuffix(path, "/")
	r := httptest.NewRequest(method, path+"?"+form.Encode(), nil)
	if method == http.MethodPost {
		r = httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w
}

// openRecorded returns a site with the recorded data.
func openRecorded(t *testing.T, enforce bool) *site {
	dir := t.TempDir()
	files := map[string]string{}
	for _, name := range []string{graphitetest.Schemas, graphitetest.Aggregation} {
		var text bytes.Buffer
		graphitetest.Lines(t, name, func(line string) { text.WriteString(line + "\n") })
		files[name] = filepath.Join(dir, name)
		if err := os.WriteFile(files[name], text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := DefaultConfig()
	config.StorageSchemas, config.StorageAggregation = files[graphitetest.Schemas], files[graphitetest.Aggregation]
	s := openSite(t, config, query.DefaultConfig(), enforce)
	var lines strings.Builder
	for _, name := range graphitetest.Data {
		graphitetest.Lines(t, name, func(line string) { lines.WriteString(line + "\n") })
	}
	s.send(lines.String())
	graphitetest.Lines(t, graphitetest.Events, func(line string) { s.addEvent(line, 200) })
	return s
}

// addEvent adds an event by POST.
func (s *site) addEvent(text string, status int) *httptest.ResponseRecorder {
	s.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/events", strings.NewReader(text)))
	if w.Code != status {
		s.Fatalf("event %.200s: %d %s; want %d", text, w.Code, w.Body, status)
	}
	return w
}

// TestRecordedCases sends the recorded requests to the API over a store with the
// recorded data: rendering, archives, and finding paths.
func TestRecordedCases(t *testing.T) {
	s := openRecorded(t, false)
	s.run(t, different, "render-", "archives", "find", "expand", "index", "tags", "events")
}

// thinned are the cases in which the answer differs if the store has downsampled: the
// average of an hour is that of its samples, not of five-minute averages.
var thinned = map[string]string{
	"archives-024": "the average of an hour with gaps",
}

// TestThinnedCases sends the requests to a store that keeps only what the rules say.
func TestThinnedCases(t *testing.T) {
	s := openRecorded(t, true)
	if err := s.store.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.run(t, thinned, "archives", "render-paths", "find", "index")
}

func (s *site) run(t *testing.T, different map[string]string, topics ...string) {
	for _, topic := range topics {
		for _, file := range graphitetest.Topics(t, topic) {
			graphitetest.Each(t, file, func(c *graphitetest.Case) {
				t.Run(c.ID, func(t *testing.T) {
					if why := different[c.ID]; why != "" {
						t.Skip(why)
					}
					w := s.ask(c.Request.Method, c.Request.Path, c.Form())
					if fault := c.Fault(w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); fault != "" {
						t.Errorf("%s %v: %s", c.Request.Path, c.Request.Params, fault)
					}
				})
			})
		}
	}
}

// TestDelSeries deletes series with their samples, and keeps others.
func TestDelSeries(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	s.send("a;x=1 1 1710071000\na;x=2 1 1710071000\na;x=1;y=1 1 1710071000\nb 1 1710071000\n")
	if w := s.ask("POST", "/tags/delSeries", url.Values{"path": {"a;x=1", "b"}}); w.Code != 200 || w.Body.String() != "true" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := s.ask("GET", "/tags/findSeries", url.Values{"expr": {"name=a"}}); w.Body.String() != `["a;x=1;y=1","a;x=2"]` {
		t.Errorf("series left: %s", w.Body)
	}
	if w := s.ask("GET", "/metrics/index.json", nil); w.Body.String() != "[]" {
		t.Errorf("paths left: %s", w.Body)
	}
	for _, path := range []string{"", "a;x", ";x=1"} {
		if w := s.ask("POST", "/tags/delSeries", url.Values{"path": {path}}); w.Code != 400 {
			t.Errorf("path %q: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestLimits: the limits of queries apply to every request, and the answer names the
// limit.
func TestLimits(t *testing.T) {
	limits := query.DefaultConfig()
	limits.MaxSeries, limits.MaxMemory = 5, 1<<20
	s := open(t, DefaultConfig(), limits)
	var lines strings.Builder
	for _, host := range strings.Split("a b c d e f g h", " ") {
		lines.WriteString("many;host=" + host + " 1 1710071000\n" + "few." + host + " 1 1710071000\n" + "each." + host + ";of=each 1 1710071000\n")
	}
	for i := range 60 {
		fmt.Fprintf(&lines, "below.%d 1 1710071000\n", i)
	}
	s.send(lines.String())
	for _, c := range []struct {
		path, key, value string
		status           int
		want             string
	}{
		{"/render", "target", "seriesByTag('name=many')", 400, "query.max_series"},
		{"/render", "target", "seriesByTag('of=each')", 400, "query.max_series"}, // all metrics together
		{"/render", "target", "seriesByTag('host=~.*')", 400, "must not match the empty string"},
		{"/render", "target", "constantLine(1)&format=json", 200, ""},
		{"/render", "target", "nosuch(few.a)", 400, "nosuch"},
		{"/render", "target", "few.*", 400, "query.max_memory"},
		{"/render", "target", "few." + strings.Repeat("x", 16<<10) + "*", 400, "longer than"},
		{"/tags/of", "filter", "", 400, "query.max_series"},
		{"/metrics/find", "query", "", 400, "query is missing"},
		{"/metrics/find", "query", strings.Repeat("*", maxQuery+1), 400, "longer than"},
		{"/metrics/expand", "query", strings.Repeat("*", maxQuery+1), 400, "longer than"},
		{"/metrics/find", "query", "{below," + strings.Repeat("x", 16_000) + "}.*", 400, "query.max_memory"}, // each ID repeats it
		{"/metrics/find", "query", "few.*", 200, `"few.a"`},
		{"/metrics/find", "query", "man*", 200, "[]"}, // all of its series have tags
	} {
		form := url.Values{c.key: {strings.TrimSuffix(c.value, "&format=json")}, "format": {"json"}, "from": {"0"}}
		if c.path != "/render" {
			form = url.Values{c.key: {c.value}}
		}
		if c.status == 200 && c.path == "/render" {
			form.Set("from", "-1h")
		}
		if c.value == "nosuch(few.a)" || strings.HasPrefix(c.value, "seriesByTag") {
			form.Set("from", "-1h")
		}
		w := s.ask("GET", c.path, form)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %.40s: %d %.300s; want %d and %q", c.path, c.value, w.Code, w.Body, c.status, c.want)
		}
	}
	unknown := url.Values{"target": {"consolidateBy(few.a,'nosuch')"}, "format": {"json"}, "from": {"-1h"}, "maxDataPoints": {"2"}}
	if w := s.ask("GET", "/render", unknown); w.Code != 400 || !strings.Contains(w.Body.String(), "nosuch") {
		t.Errorf("consolidateBy: %d %s", w.Code, w.Body) // found only when the answer is written
	}
	for _, format := range []string{"pdf", "nosuch"} {
		if w := s.ask("GET", "/render", url.Values{"target": {"few.a"}, "format": {format}}); w.Code != 400 || !strings.Contains(w.Body.String(), "use png, svg, json") {
			t.Errorf("format %q: %d %s", format, w.Code, w.Body)
		}
	}
}

// TestMetricsIsScraped: /metrics serves both Prometheus and searches for paths.
func TestMetricsIsScraped(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	if w := s.ask("GET", "/metrics", nil); w.Code != 307 || w.Header().Get("Location") != "/internal/metrics" {
		t.Errorf("without parameters: %d to %q", w.Code, w.Header().Get("Location"))
	}
	if w := s.ask("GET", "/metrics", url.Values{"query": {"*"}}); w.Code != 200 || w.Body.String() != "[]" {
		t.Errorf("with a query: %d %s", w.Code, w.Body)
	}
	if w := s.ask("GET", "/metrics", url.Values{"format": {"json"}}); w.Code != 400 {
		t.Errorf("without a query: %d %s", w.Code, w.Body)
	}
}

func TestConfig(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	bad := filepath.Join(t.TempDir(), "bad.conf")
	if err := os.WriteFile(bad, []byte("[a]\npattern = (\nretentions = 60s:1d\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{{StorageSchemas: bad}, {StorageAggregation: bad}, {StorageSchemas: "nosuch"}} {
		if _, err := c.Book(log); err == nil || !strings.HasPrefix(err.Error(), "graphite.storage_") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
