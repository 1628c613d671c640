package admin

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/config"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// A reload applies the settings that it can and names those that need a restart. The
// log says what the reload did, even if nothing has changed.
func TestReload(t *testing.T) {
	load := func(change func(*config.Config), err error) func() (*config.Loaded, error) {
		return func() (*config.Loaded, error) {
			loaded := &config.Loaded{Config: config.Default()}
			if change != nil {
				change(&loaded.Config)
			}
			return loaded, err
		}
	}
	raise := func(c *config.Config) { c.Log.Level = slog.LevelError }
	both := func(c *config.Config) { raise(c); c.Query.MaxSeries++; c.Server.AllowedOrigins = []string{"*"} }
	for _, test := range []struct {
		name   string
		load   func() (*config.Loaded, error)
		fault  error
		status int
		want   string
		log    string
	}{
		{"done", load(raise, nil), nil, 200, `{"applied":["log.level"],"needs_restart":[]}`, `configuration reloaded" applied=log.level`},
		{"a part", load(both, nil), nil, 200, `{"applied":["log.level"],"needs_restart":["server.allowed_origins","query.max_series"]}`, `needs_restart="server.allowed_origins query.max_series"`},
		{"nothing", load(nil, nil), nil, 200, `{"applied":[],"needs_restart":[]}`, "no setting has changed"},
		{"a file with a fault", load(raise, errors.New("line 3")), nil, 400, "line 3", "reload failed"},
		{"not now", load(raise, nil), errors.New("busy"), 500, "apply log.level: busy", "cannot apply a setting"},
	} {
		var log bytes.Buffer
		applied := 0
		r := &Reloader{
			load: test.load, running: config.Default(), log: slog.New(slog.NewTextHandler(&log, nil)),
			settings: []Reloadable{{"log.level", func(c config.Config) error { applied++; return test.fault }}},
		}
		for i := range 2 {
			w := httptest.NewRecorder()
			r.Routes()[0].Handler.ServeHTTP(w, httptest.NewRequest("POST", "/admin/reload", nil))
			if i == 0 && (w.Code != test.status || !strings.Contains(w.Body.String(), test.want)) {
				t.Errorf("%s: %d %s", test.name, w.Code, w.Body)
			}
			if i == 1 && test.fault == nil && applied > 1 {
				t.Errorf("%s: applied twice", test.name)
			}
		}
		if !strings.Contains(log.String(), test.log) {
			t.Errorf("%s: the log says %s", test.name, log.String())
		}
	}
}

// A reload applies the limits that an operator adjusts in an incident. Other settings
// need a restart, and are named.
func TestReloadOfLimits(t *testing.T) {
	s := reference.New(nil)
	defer s.Close()
	c := config.Default()
	queries := query.New(s, c.Query, prometheus.NewRegistry(), time.Now)
	pipeline := ingest.New(s, c.Ingest, ingest.Options{Registerer: prometheus.NewRegistry()})
	defer pipeline.Close()
	api := kairos.New(s, agg.New(queries, nil), c.Kairos, "test", time.Now)
	r := &Reloader{
		running: c, log: slog.New(slog.DiscardHandler), settings: ReloadableLimits(queries, pipeline),
		load: func() (*config.Loaded, error) {
			loaded := &config.Loaded{Config: config.Default()}
			q, in := &loaded.Config.Query, &loaded.Config.Ingest
			q.MaxSeries, q.MaxSamples, q.MaxMemory, q.Timeout, q.MaxConcurrent, q.MaxQueued, q.MaxWait = 1, 2, 3, 4, 5, 6, 7
			q.Workers, q.TotalMemory, q.Slow = 8, 9, time.Second
			in.MaxSeries, in.MaxSeriesMemory, in.NewSeriesPerSecond, in.NewSeriesBurst, in.MaxTags = 1, 2, 3, 4, 5
			return loaded, nil
		},
	}
	done, err := r.reload()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("query.max_series query.max_samples query.max_memory query.timeout query.max_concurrent query.max_wait query.slow " +
		"ingest.max_series ingest.max_series_memory ingest.new_series_per_second"); !slices.Equal(done.Applied, want) {
		t.Errorf("applied %q, want %q", done.Applied, want)
	}
	if got := strings.Join(done.NeedsRestart, " "); got != "ingest.max_tags query.total_memory" {
		t.Errorf("a restart is needed for %q", got)
	}
	slow := httptest.NewRecorder()
	for _, route := range api.Routes() {
		if route.Path == "/admin/slowqueries" {
			route.Handler.ServeHTTP(slow, httptest.NewRequest("GET", route.Path, nil))
		}
	}
	if !strings.Contains(slow.Body.String(), `"threshold_ms":1000,`) && !strings.Contains(slow.Body.String(), `"threshold_ms":1000}`) {
		t.Error(slow.Body)
	}
	_, err = s.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	w := pipeline.NewWriter(pipeline.Protocol("test"), "", 0)
	_, err = w.Ingest(t.Context(), 1, func() error {
		_, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "other", Tags: []model.Tag{{Name: "h", Value: "a"}}})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "limit ingest.max_series of 1 reached") {
		t.Errorf("a second series: %v", err)
	}
}
