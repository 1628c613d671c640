package rollup

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/store/storetest"
	"varve/internal/units"
	"varve/internal/units/unitstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A harness is a scheduler over a store in memory. In a synctest bubble its clock
// advances only while all goroutines wait.
type harness struct {
	*testing.T
	store     *reference.Store
	front     front // what all others take for the store; nil: store
	node      string
	lease     func(context.Context, string, time.Duration) (Lease, error) // of the node
	notes     vfs.FS                                                      // of the node; nil: notes are in the store
	log       *slog.Logger
	ingest    func(*ingest.Config) // nil: the defaults
	now       func() time.Time     // of the scheduler; nil: time.Now
	registry  *prometheus.Registry
	scheduler *Scheduler
	pipeline  *ingest.Pipeline
	mux       *http.ServeMux
	stop      func()
}

// A front is a store as the parts of a harness need it.
type front interface {
	Store
	kairos.Store
}

func newHarness(t *testing.T) *harness {
	h := &harness{T: t, store: reference.New(nil)}
	h.restart(nil)
	return h
}

// restart replaces the scheduler with a new one on the same store.
func (h *harness) restart(change func(*Config, *query.Config)) {
	if h.stop != nil {
		h.stop()
	}
	if o, ok := h.front.(*outage); ok {
		o.restart()
	}
	c, qc, ic := DefaultConfig(), query.DefaultConfig(), ingest.DefaultConfig()
	if h.ingest != nil {
		h.ingest(&ic)
	}
	if change != nil {
		change(&c, &qc)
	}
	var front front = h.store
	if h.front != nil {
		front = h.front
	}
	registry := prometheus.NewRegistry()
	h.registry = registry
	engine := agg.New(query.New(front, qc, registry, time.Now), nil)
	pipeline := ingest.New(front, ic, ingest.Options{Registerer: registry})
	api := kairos.New(front, engine, kairos.DefaultConfig(), "test", time.Now)
	notesDir := ""
	if h.notes != nil {
		notesDir = "data/rollups"
	}
	h.scheduler = New(Options{
		NotesFS: h.notes, NotesDir: notesDir,
		Store: front, Engine: engine, Pipeline: pipeline, Parser: api, Config: c, Registerer: registry, Host: "here",
		Now: h.now, Node: h.node, Lease: h.lease, Flush: func(context.Context, ...string) error { return nil }, Logger: h.log,
	})
	h.pipeline = pipeline
	h.mux = newMux(h.scheduler)
	h.stop = nil
}

func newMux(s *Scheduler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	return mux
}

// start runs the scheduler until stop.
func (h *harness) start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.scheduler.Load(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); h.scheduler.Run(ctx) }()
	h.stop = func() { cancel(); <-ended; h.stop = nil }
}

// do sends a request and expects a status.
func (h *harness) do(want int, method, path, body string) string {
	h.Helper()
	w := httptest.NewRecorder()
	h.mux.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if w.Code != want {
		h.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
	}
	if w.Code/100 == 2 && w.Header().Get("Cache-Control") != "no-cache" {
		h.Errorf("%s %s: the answer lacks KairosDB's headers", method, path)
	}
	return w.Body.String()
}

// put stores points of {host=host} at times in ms.
func (h *harness) put(metric, host string, v any, times ...int64) {
	h.Helper()
	s := model.Series{Metric: metric, Tags: model.MustTags("host", host), Type: model.TypeLong}
	if _, ok := v.(float64); ok {
		s.Type = model.TypeDouble
	}
	ref, err := h.store.Create(context.Background(), s)
	if err != nil {
		h.Fatal(err)
	}
	b := store.Batch{Epoch: h.store.Epoch()}
	for _, ms := range times {
		switch v := v.(type) {
		case float64:
			b.AddDouble(ref, ms, v, 0)
		case int:
			b.AddLong(ref, ms, int64(v), 0)
		}
	}
	if err := h.store.Append(context.Background(), &b); err != nil {
		h.Fatal(err)
	}
}

// send stores points as clients do.
func (h *harness) send(metric, host string, v int64, times ...int64) {
	h.Helper()
	w := h.pipeline.NewWriter(h.pipeline.Protocol("test"), "", 0)
	_, err := w.Ingest(context.Background(), len(times), func() error {
		ref, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: metric, Tags: []model.Tag{{Name: "host", Value: host}}})
		for _, ms := range times {
			w.Batch().AddLong(ref, ms, v, 0)
		}
		return err
	})
	if err != nil {
		h.Fatal(err)
	}
}

// points lists the stored points of a metric, one per line, in UTC.
func (h *harness) points(metric string) string {
	h.Helper()
	view, err := h.store.View(context.Background())
	if err != nil {
		h.Fatal(err)
	}
	defer view.Close()
	series, err := storetest.Select(context.Background(), view, store.Selection{Metric: metric, Range: model.AllTime})
	if err != nil {
		h.Fatal(err)
	}
	var out strings.Builder
	for _, s := range series {
		cursor := view.Read(context.Background(), s, store.ReadOptions{Range: model.AllTime})
		for {
			block, err := cursor.Next()
			if err != nil {
				h.Fatal(err)
			}
			if block == nil {
				break
			}
			for i, ms := range block.Times {
				fmt.Fprintf(&out, "%s %s ", s.Tags, time.UnixMilli(ms).UTC().Format("2006-01-02T15:04"))
				switch s.Type {
				case model.TypeLong:
					fmt.Fprintf(&out, "%d\n", int64(block.Values[i]))
				case model.TypeString:
					fmt.Fprintf(&out, "%s\n", block.Bytes(i))
				default:
					fmt.Fprintf(&out, "%v\n", math.Float64frombits(block.Values[i]))
				}
			}
		}
		cursor.Close()
	}
	return out.String()
}

func (h *harness) wantPoints(metric, want string) {
	h.Helper()
	if got := strings.TrimSpace(h.points(metric)); got != strings.TrimSpace(want) {
		h.Errorf("%s holds\n%s\nwant\n%s", metric, got, want)
	}
}

func (h *harness) status(id string) statusAnswer {
	h.Helper()
	var a statusAnswer
	if err := json.Unmarshal([]byte(h.do(200, "GET", "/api/v1/rollups/status/"+id, "")), &a); err != nil {
		h.Fatal(err)
	}
	return a
}

// valueOf reads a counter or a gauge.
func valueOf(t *testing.T, m prometheus.Metric) float64 {
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue() + out.GetGauge().GetValue()
}

// taskJSON is a task that sums src by host into dst.
func taskJSON(id string, every, sampling, more string) string {
	return fmt.Sprintf(`{"id":%q,"name":"n","execution_interval":%s,"rollups":[{"save_as":"dst"%s,"query":{"start_absolute":1,"metrics":[`+
		`{"name":"src","group_by":[{"name":"tag","tags":["host"]}],"aggregators":[{"name":"sum","sampling":%s}]}]}}]}`, id, every, more, sampling)
}

const minute, hour = `{"value":1,"unit":"minutes"}`, `{"value":1,"unit":"hours"}`

// start of every synctest bubble: 2000-01-01 in UTC
var bubble = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

func at(h, m, s int) int64 { return bubble + int64(h*3600+m*60+s)*1000 }

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		h.put("src", "a", 1, at(0, 0, 0), at(0, 0, 30), at(0, 1, 59))
		h.put("src", "b", 10, at(0, 1, 0))
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		h.do(404, "GET", "/api/v1/rollups/status/t", "")
		time.Sleep(time.Minute - time.Second)
		h.wantPoints("dst", "") // the first run is one interval later
		time.Sleep(2 * time.Second)
		h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 2
{host=a,saved_from=src} 2000-01-01T00:01 1
{host=b,saved_from=src} 2000-01-01T00:01 10`)
		st := h.status("t")
		if len(st.Statuses) != 1 || st.ExecutingHost != "here" || st.NextScheduled != "01 Jan 2000 00:02:00 AM" {
			t.Fatalf("%+v", st)
		}
		m := st.Statuses[0]
		if m.MetricName != "src" || m.SaveAs != "dst" || m.LastExecuted != "01 Jan 2000 00:01:00 AM" || m.DataPointCount != 3 ||
			m.LastExecution != at(0, 1, 0) || *m.Watermark != at(0, 1, 0) || *m.LagMS != 1000 || m.ErrorMessage != "" {
			t.Errorf("%+v", m)
		}
		h.put("src", "a", 5, at(0, 1, 58)) // into the current bucket
		time.Sleep(time.Minute)
		h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 2
{host=a,saved_from=src} 2000-01-01T00:01 6
{host=b,saved_from=src} 2000-01-01T00:01 10`)
		h.do(204, "DELETE", "/api/v1/rollups/t", "")
		h.do(404, "DELETE", "/api/v1/rollups/t", "") // it is gone
		h.put("src", "a", 5, at(0, 3, 0))
		time.Sleep(5 * time.Minute)
		if strings.Contains(h.points("dst"), "00:03") {
			t.Error("a deleted task still runs")
		}
		h.do(404, "GET", "/api/v1/rollups/status/t", "")
	})
}

// After five hours of downtime the first run fills all windows, in batches. If it is
// interrupted, the next one continues where it was.
func TestDowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(90 * time.Second)
		h.stop()
		before := h.status("t").Statuses[0].Watermark
		for m := range 302 {
			h.put("src", "a", m, at(0, m, 7))
		}
		time.Sleep(5 * time.Hour)
		h.restart(func(c *Config, q *query.Config) {
			c.BatchBuckets = 7
			q.MaxSamples = 3 // a batch has to be halved
		})
		h.start()
		time.Sleep(time.Second)
		got := strings.Split(strings.TrimSpace(h.points("dst")), "\n")
		if len(got) != 302 || got[301] != "{host=a,saved_from=src} 2000-01-01T05:01 301" {
			t.Errorf("%d points, the last %s", len(got), got[len(got)-1])
		}
		if m := h.status("t").Statuses[0]; *m.Watermark != at(5, 1, 0) || *before != at(0, 1, 0) || m.ErrorMessage != "" {
			t.Errorf("%+v", m)
		}
		h.stop()
	})
}

// TestDowntimeBeforeTheFirstRun: a task computes all buckets since it was stored, even if the server is down
// or restarted when the first run is due.
func TestDowntimeBeforeTheFirstRun(t *testing.T) {
	for name, down := range map[string][]time.Duration{
		"long": {5 * time.Hour}, "not yet due": {time.Minute, time.Minute}, "restarts": {50 * time.Minute, 50 * time.Minute, 50 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				h.start()
				h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
				h.put("src", "a", 7, at(0, 0, 7), at(0, 1, 0))
				time.Sleep(2 * time.Minute)
				for _, d := range down {
					h.stop()
					time.Sleep(d)
					h.restart(nil)
					h.start()
				}
				time.Sleep(time.Second)
				if name == "not yet due" {
					h.wantPoints("dst", "")
					time.Sleep(56 * time.Minute)
				}
				h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 7\n{host=a,saved_from=src} 2000-01-01T00:01 7")
				h.stop()
			})
		})
	}
}

func TestBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(90 * time.Second)
		h.stop()
		time.Sleep(5 * time.Hour)
		h.put("src", "a", 1, at(1, 0, 0), at(3, 0, 0), at(3, 0, 1))
		fail := func(c *Config, q *query.Config) { c.BatchBuckets, q.MaxSamples = 10, 1 }
		h.restart(fail)
		h.start()
		time.Sleep(time.Second)
		m := h.status("t").Statuses[0]
		if *m.Watermark != at(3, 0, 0) || !strings.Contains(m.ErrorMessage, "query.max_samples") {
			t.Errorf("%+v, watermark %s", m, time.UnixMilli(*m.Watermark).UTC())
		}
		if got := valueOf(t, h.scheduler.metrics.runs.WithLabelValues(runFailed)); got != 1 {
			t.Errorf("%v failed runs", got)
		}
		h.restart(nil)
		h.start()
		time.Sleep(time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T01:00 1\n{host=a,saved_from=src} 2000-01-01T03:00 2")
		h.stop()
	})
}

// A point that is late by less than the horizon is in the next run's results, and so is
// an older one if it arrived through the pipeline. Notes survive a restart.
func TestLatePoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(3*time.Hour + 30*time.Second)
		h.put("src", "a", 1, at(2, 1, 0), at(1, 30, 0))
		time.Sleep(time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T02:01 1")
		h.do(204, "GET", "/api/v1/rollups/backfill/t?startTime=2000-01-01-01-00-00-000&endTime=2000-01-01-01-30-00-000", "")
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T01:30 1\n{host=a,saved_from=src} 2000-01-01T02:01 1")

		h.send("src", "a", 5, at(-48, 0, 1), at(0, 10, 0), at(0, 10, 59), at(0, 11, 0))
		h.send("other", "a", 5, at(-48, 0, 1))
		if got := h.status("t").Statuses[0].Late; got != 2 {
			t.Errorf("%d stretches of time wait", got)
		}
		h.stop()
		h.restart(nil)
		h.start()
		defer func() { h.stop() }()
		time.Sleep(time.Minute)
		h.wantPoints("dst", `
{host=a,saved_from=src} 1999-12-30T00:00 5
{host=a,saved_from=src} 2000-01-01T00:10 10
{host=a,saved_from=src} 2000-01-01T00:11 5
{host=a,saved_from=src} 2000-01-01T01:30 1
{host=a,saved_from=src} 2000-01-01T02:01 1`)
		if got := valueOf(t, h.scheduler.metrics.late); got != 2 {
			t.Errorf("%v stretches were computed", got)
		}
		if _, err := h.store.Get(context.Background(), service, lateKey, "t"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("still noted: %v", err)
		}
		for path, want := range map[string]int{
			"nope?startTime=2000-01-01-01-00-00-000": 404,
			"t":                                      400,
			"t?startTime=2000-01-01":                 400,
			"t?startTime=2000-01-01-01-00-00-000&endTime=1999-01-01-01-00-00-000": 400,
			"t?startTime=2000-13-01-01-00-00-000":                                 400,
		} {
			h.do(want, "GET", "/api/v1/rollups/backfill/"+path, "")
		}
	})
}

// Late points make a run recompute their buckets, and no others, whose points may be
// gone by now.
func TestLatePointsLeaveOtherBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		for m := range 5 {
			h.put("src", "a", 1, at(0, m, 0), at(0, m, 30))
		}
		time.Sleep(3*time.Hour + 30*time.Second)
		if err := h.store.Delete(t.Context(), store.Deletion{Metric: "src", Range: model.TimeRange{StartMS: at(0, 0, 0), EndMS: at(0, 4, 29)}}); err != nil {
			t.Fatal(err)
		}
		h.put("src", "a", 1, at(0, 1, 0), at(0, 3, 0))
		h.send("src", "a", 5, at(0, 2, 7))
		time.Sleep(time.Minute)
		h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 2
{host=a,saved_from=src} 2000-01-01T00:01 2
{host=a,saved_from=src} 2000-01-01T00:02 5
{host=a,saved_from=src} 2000-01-01T00:03 2
{host=a,saved_from=src} 2000-01-01T00:04 2`)
	})
}

// TestGauges checks the metrics of the schedule.
func TestGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer func() { h.stop() }()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		h.do(200, "POST", "/api/v1/rollups", taskJSON("u", minute, minute, ""))
		h.send("src", "a", 1, at(-48, 0, 0), at(-24, 0, 0))
		h.stop()
		time.Sleep(10 * time.Minute)
		for name, want := range map[string]float64{
			"varve_rollup_tasks":           2,
			"varve_rollup_tasks_here":      2,
			"varve_rollup_late_spans":      4, // two of each task
			"varve_rollup_watched_series":  1,
			"varve_rollup_backfills":       0,
			"varve_rollup_active_runs":     0,
			"varve_rollup_overdue_seconds": 540,
		} {
			if got := ingesttest.Counters(t, h.registry, name)[""]; got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		h.start()
		time.Sleep(time.Second)
		synctest.Wait()
		late, overdue := ingesttest.Counters(t, h.registry, "varve_rollup_late_spans")[""], ingesttest.Counters(t, h.registry, "varve_rollup_overdue_seconds")[""]
		if late != 2 || overdue != 0 {
			t.Errorf("after the first run %v stretches of time wait, and a task is overdue for %v s", late, overdue)
		}
	})
}

// An import without a server records late points too.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(2 * time.Minute)
		h.stop()
		if err := (catalogue{h.store}).set(t.Context(), configKey, "broken", "{"); err != nil { // comes first, and keeps no other from being watched
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		h.pipeline = ingest.New(h.store, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
		if err := Watch(context.Background(), h.store, h.pipeline, h.scheduler.parser, DefaultConfig()); err != nil {
			t.Fatal(err)
		}
		h.send("src", "a", 1, at(-24, 0, 0), at(-23, 0, 0))
		h.restart(nil)
		h.start()
		time.Sleep(90 * time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 1\n{host=a,saved_from=src} 1999-12-31T01:00 1")
		h.stop()
	})
}

// A scheduler may have a much shorter horizon than a process that watches without its
// configuration.
func TestWatchWithAnotherHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short := func(c *Config, _ *query.Config) { c.LateHorizon = time.Minute }
		h := newHarness(t)
		h.restart(short)
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(20 * time.Minute)
		h.stop()
		h.pipeline = ingest.New(h.store, ingest.DefaultConfig(), ingest.Options{Registerer: prometheus.NewRegistry()})
		if err := Watch(context.Background(), h.store, h.pipeline, h.scheduler.parser, DefaultConfig()); err != nil {
			t.Fatal(err)
		}
		h.send("src", "a", 1, at(0, 15, 0))
		h.restart(short)
		h.start()
		time.Sleep(90 * time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:15 1")
		h.stop()
	})
}

// A stored task that cannot be parsed, or whose query has fewer metrics than its
// roll-up, does not run, and is logged.
func TestTasksThatCannotBeRun(t *testing.T) {
	h := newHarness(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	task, _ := h.scheduled("t")
	bad := task.rollups[0]
	bad.query = []byte("{")
	if p, err := h.scheduler.newPass(task, &bad, &source{}, h.scheduler.names(task)); err == nil || p != nil {
		t.Errorf("no query: %v", err)
	}
	if err := (catalogue{h.store}).set(t.Context(), configKey, "t", "{"); err != nil {
		t.Fatal(err)
	}
	const want = "stored roll-up task t cannot be run; replace it: "
	if err := h.scheduler.fill(t.Context(), "t", 0, 1); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a backfill of no task: %v", err)
	}
}

var lateRounds = flag.Int("rollup.rounds", 8, "histories of late points, restarts and changes that are tried")

// Points of any age arrive at any time, during runs, changes of the task and restarts:
// two intervals later all buckets are correct.
func TestLatePointsAtRandom(t *testing.T) {
	for seed := range uint64(*lateRounds) {
		synctest.Test(t, func(t *testing.T) { lateAtRandom(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func lateAtRandom(t *testing.T, random *rand.Rand) {
	h := newHarness(t)
	few := func(c *Config, q *query.Config) {
		c.BatchBuckets, c.MaxLateSpans = 1+random.IntN(50), 1+random.IntN(20)
	}
	h.restart(few)
	h.start()
	body := taskJSON("t", minute, minute, "")
	h.do(200, "POST", "/api/v1/rollups", body)
	time.Sleep(30 * time.Minute)
	sums := map[string]int64{} // by host and bucket
	taken := map[string]bool{}
	for range 300 {
		switch random.IntN(40) {
		case 0:
			h.stop()
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Hour))))
			h.restart(few)
			h.start()
		case 1:
			h.do(200, "PUT", "/api/v1/rollups/t", body[:len(body)-1]+strings.Repeat(" ", random.IntN(3))+"}")
		case 2:
			time.Sleep(time.Duration(random.Int64N(int64(2 * time.Hour))))
		default:
			time.Sleep(time.Duration(random.Int64N(int64(20 * time.Second))))
		}
		now := time.Now().UnixMilli()
		host := string(rune('a' + random.IntN(3)))
		var times []int64
		for range 1 + random.IntN(5) {
			age := random.Int64N([]int64{60_000, 3_600_000, 7_200_000, 200_000_000}[random.IntN(4)])
			ms := now - age
			if id := fmt.Sprint(host, ms); !taken[id] {
				taken[id] = true
				times = append(times, ms)
				sums[fmt.Sprintf("{host=%s,saved_from=src} %s", host, time.UnixMilli(ms-ms%60_000).UTC().Format("2006-01-02T15:04"))]++
			}
		}
		h.send("src", host, 1, times...)
	}
	time.Sleep(2*time.Minute + time.Second)
	h.stop()
	var want []string
	for bucket, n := range sums {
		want = append(want, fmt.Sprintf("%s %d", bucket, n))
	}
	got := strings.Split(strings.TrimSpace(h.points("dst")), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("buckets - want, + got\n%s", diff)
	}
}

// nearly compares texts that may be numbers.
var nearly = cmp.Comparer(func(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return a == b || errX == nil && errY == nil && math.Abs(x-y) <= 1e-9*(1+math.Abs(x))
})

// The results of aggregators that use neighbours do not depend on how the buckets are
// computed: by hour, by day, or all at once.
func TestNeighbours(t *testing.T) {
	for _, steps := range []string{
		`{"name":"sum","sampling":` + minute + `},{"name":"diff"}`,
		`{"name":"max","sampling":` + minute + `},{"name":"rate","unit":"minutes"}`,
		`{"name":"diff"},{"name":"sum","sampling":` + minute + `}`,
		`{"name":"avg","sampling":` + minute + `},{"name":"sma","size":90}`,
		`{"name":"sum","sampling":` + minute + `},{"name":"diff"},{"name":"sma","size":5},{"name":"diff"}`,
		`{"name":"avg","sampling":{"value":1,"unit":"days"}},{"name":"max","sampling":` + minute + `}`,
		`{"name":"sum","sampling":{"value":7,"unit":"minutes"}},{"name":"max","sampling":` + hour + `},{"name":"diff"}`,
		`{"name":"sum","sampling":` + minute + `,"align_end_time":true},{"name":"sampler","unit":"minutes"}`,
		`{"name":"sum","sampling":` + minute + `},{"name":"trim","trim":"both"}`,
	} {
		h := newHarness(t)
		for i := range int64(5000) {
			h.put("src", "a", int(i*i%97), at(0, 0, 0)+i*17_000)
		}
		body := fmt.Sprintf(`{"id":"t","name":"n","execution_interval":%s,"rollups":[{"save_as":"dst","time_zone":"Europe/Berlin","query":{"start_absolute":1,"metrics":[{"name":"src","aggregators":[%s]}]}}]}`, hour, steps)
		h.do(200, "POST", "/api/v1/rollups", body)
		fill := func(batch int, from, to string) {
			h.scheduler.config.BatchBuckets = batch
			h.do(204, "GET", "/api/v1/rollups/backfill/t?startTime="+from+"&endTime="+to, "")
		}
		fill(100_000, "2000-01-01-00-00-00-000", "2000-01-01-23-59-59-999")
		want := h.points("dst")
		if strings.Count(want, "\n") < 2 {
			t.Fatalf("%s: only\n%s", steps, want)
		}
		for _, batch := range []int{7, 60, 1000} {
			fill(batch, "2000-01-01-03-00-00-000", "2000-01-01-09-17-00-000")
			fill(batch, "2000-01-01-09-17-00-000", "2000-01-01-22-00-00-000")
			if diff := cmp.Diff(strings.Fields(want), strings.Fields(h.points("dst")), nearly); diff != "" {
				t.Errorf("%s, %d buckets at once: - at once, + in parts\n%.2000s", steps, batch, diff)
				break
			}
		}
	}
}

// A task without roll-ups is accepted, does nothing, and has an empty status.
func TestEmptyTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", `{"id":"t","name":"n","execution_interval":`+minute+`}`)
		h.do(200, "POST", "/api/v1/rollups", `{"id":"u","name":"n","execution_interval":`+minute+`,"rollups":[]}`)
		time.Sleep(61 * time.Second)
		if st := h.status("t"); len(st.Statuses) != 0 || st.NextScheduled != "01 Jan 2000 00:02:00 AM" {
			t.Errorf("%+v", st)
		}
	})
}

// When a sum of whole numbers becomes a fraction, the bucket still has one result.
func TestOneResultPerBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, ""))
		h.put("src", "a", 2, at(0, 0, 1), at(1, 0, 0))
		h.put("src", "b", 3, at(0, 0, 1))
		time.Sleep(90 * time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 2\n{host=b,saved_from=src} 2000-01-01T00:00 3")
		h.put("src", "a", 0.5, at(0, 0, 2))
		time.Sleep(time.Hour)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 2.5\n{host=a,saved_from=src} 2000-01-01T01:00 2\n{host=b,saved_from=src} 2000-01-01T00:00 3")
	})
}

// Buckets of every unit begin where the calendar says, whenever they are computed.
func TestUnits(t *testing.T) {
	for _, tc := range []struct{ sampling, zone, first, want string }{
		{`{"value":10,"unit":"seconds"}`, "UTC", "2024-03-31T00:00:17Z", "2024-03-31T00:00"},
		{`{"value":7,"unit":"minutes"}`, "UTC", "2024-03-31T00:00:17Z", "2024-03-30T23:59"},
		{hour, "Asia/Kolkata", "2024-03-31T12:00:00Z", "2024-03-31T11:30"},
		{`{"value":1,"unit":"days"}`, "Europe/Berlin", "2024-03-31T12:00:00Z", "2024-03-30T23:00"},
		{`{"value":1,"unit":"days"}`, "Europe/Berlin", "2024-03-31T22:00:00Z", "2024-03-31T22:00"},
		{`{"value":1,"unit":"weeks"}`, "Europe/Berlin", "2024-03-31T12:00:00Z", "2024-03-24T23:00"},
		{`{"value":1,"unit":"months"}`, "Europe/Berlin", "2024-03-31T12:00:00Z", "2024-02-29T23:00"},
		{`{"value":1,"unit":"months"}`, "", "2024-03-31T12:00:00Z", "2024-03-01T00:00"},
		{`{"value":1,"unit":"years"}`, "Australia/Lord_Howe", "2024-03-31T12:00:00Z", "2023-12-31T13:00"},
	} {
		first, err := time.Parse(time.RFC3339, tc.first)
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t)
		more := ""
		if tc.zone != "" {
			more = fmt.Sprintf(`,"time_zone":%q`, tc.zone)
		}
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, tc.sampling, more))
		h.put("src", "a", 1, first.UnixMilli())
		// Whatever the backfill begins and ends with.
		for _, days := range []int{0, 1, 40, 400} {
			from, to := first.AddDate(0, 0, -days), first.AddDate(0, 0, min(days, 1))
			h.do(204, "GET", "/api/v1/rollups/backfill/t?startTime="+from.Format(backfillForm)+"-000&endTime="+to.Format(backfillForm)+"-000", "")
			h.wantPoints("dst", "{host=a,saved_from=src} "+tc.want+" 1")
		}
	}
}

func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, `,"ttl":"7200"`))
		h.put("src", "a", 1, at(0, 0, 0))
		time.Sleep(time.Hour)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 1")
		time.Sleep(2*time.Hour + 2*time.Minute) // it counts from the last run that computed the bucket
		h.wantPoints("dst", "")
	})
}

// With ingest.ttl_from: timestamp a result lives from its bucket's time, however often
// it is computed. A result that has already expired is refused and counted, and the
// others are stored.
func TestTTLFromTimestamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.TTLFrom = ingest.FromTimestamp }
		h.restart(nil)
		h.start()
		defer h.stop()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, `,"ttl":7200`))
		h.put("src", "a", 1, at(0, 0, 0))
		time.Sleep(2*time.Hour - time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 1")
		time.Sleep(2 * time.Second)
		h.wantPoints("dst", "")
		h.put("src", "a", 2, at(0, 1, 0), at(0, 3, 0), at(0, 59, 0))
		h.send("src", "b", 3, at(0, 0, 0), at(0, 59, 0)) // late
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:59 2\n{host=b,saved_from=src} 2000-01-01T00:59 3")
		if m := h.status("t").Statuses[0]; m.ErrorMessage != "" || m.Late != 0 || *m.Watermark != at(2, 2, 0) {
			t.Errorf("%+v", m)
		}
		expired := func() float64 {
			return ingesttest.Counters(t, h.registry, "varve_ingest_rejected_total")["rollup,expired"]
		}
		before := expired()
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-00-30-00-000", "")
		if got := expired() - before; got != 3 { // a's at 00:00 and 00:01, b's at 00:00
			t.Errorf("%v results were refused", got)
		}
		h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:03 2
{host=a,saved_from=src} 2000-01-01T00:59 2
{host=b,saved_from=src} 2000-01-01T00:59 3`)
	})
}

// A run that finds the previous one active is skipped. Stopping ends waiting runs.
func TestSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		for range cap(h.scheduler.places) {
			h.scheduler.places <- struct{}{}
		}
		h.start()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(3*time.Minute + time.Second)
		if got := valueOf(t, h.scheduler.metrics.runs.WithLabelValues(runSkipped)); got != 2 {
			t.Errorf("%v skipped runs, want 2", got)
		}
		// Replacing and deleting the task do not wait for its run.
		h.do(200, "PUT", "/api/v1/rollups/t", taskJSON("other", hour, minute, ""))
		h.do(204, "DELETE", "/api/v1/rollups/t", "")
		h.do(200, "POST", "/api/v1/rollups", taskJSON("u", minute, minute, ""))
		time.Sleep(time.Minute + time.Second)
		h.stop()
		if got := valueOf(t, h.scheduler.metrics.runs.WithLabelValues(runCancelled)); got != 2 {
			t.Errorf("%v cancelled runs, want 2", got)
		}
	})
}

// Tasks that others store are noticed. A status that KairosDB has stored determines
// where to continue.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.put("src", "a", 1, at(-24, 0, 0), at(-3, 0, 0), at(-1, 0, 0))
		ctx := context.Background()
		old := fmt.Sprintf(`{"statuses":[{"metricName":"src","lastExecuted":"x","dataPointCount":1,"executionLength":1,"lastExecutionTime":%d}],"executingHost":"old","nextScheduled":"Never"}`, at(-4, 0, 0))
		for key, text := range map[string]string{statusKey: old, configKey: taskJSON("another-id", hour, hour, "")} {
			if err := h.store.Set(ctx, service, key, "t", text); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.store.Set(ctx, service, configKey, "bad", `{"name":"bad"}`); err != nil {
			t.Fatal(err)
		}
		h.start()
		time.Sleep(time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T21:00 1\n{host=a,saved_from=src} 1999-12-31T23:00 1")
		if got := valueOf(t, h.scheduler.metrics.invalid); got != 1 {
			t.Errorf("%v invalid tasks", got)
		}
		if err := h.store.Set(ctx, service, configKey, "v", strings.Replace(taskJSON("v", minute, minute, ""), "dst", "more", 1)); err != nil {
			t.Fatal(err)
		}
		if err := h.store.Unset(ctx, service, configKey, "t"); err != nil {
			t.Fatal(err)
		}
		h.put("src", "a", 1, at(0, 0, 5))
		time.Sleep(2 * time.Minute)
		h.wantPoints("more", "{host=a,saved_from=src} 2000-01-01T00:00 1")
		if n := h.scheduler.count(); n != 1 {
			t.Errorf("%d tasks", n)
		}
		h.stop()
	})
}

func TestStoredForm(t *testing.T) {
	h := newHarness(t)
	get := func(id string) string {
		v, err := h.store.Get(context.Background(), "_Rollups", "Config", id)
		if err != nil {
			t.Fatal(err)
		}
		return v.Text
	}
	body := "{ \"name\" : \"n\",\n \"execution_interval\":{\"value\":\"1\",\"unit\":\"HOURS\"},\"rollups\":[{\"save_as\":\"d\",\"query\":{\"start_absolute\":1.0,\"metrics\":[{\"name\":\"m<\",\"aggregators\":[{\"name\":\"max\",\"sampling\":{\"value\":1,\"unit\":\"weeks\"}}]}]}}]}"
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(h.do(200, "POST", "/api/v1/rollups", body)), &made); err != nil || len(made.ID) != 36 {
		t.Fatal(made, err)
	}
	rest := `"name":"n","execution_interval":{"value":"1","unit":"HOURS"},"rollups":[{"save_as":"d","query":{"start_absolute":1.0,"metrics":[{"name":"m<","aggregators":[{"name":"max","sampling":{"value":1,"unit":"weeks"}}]}]}}]}`
	if got, want := get(made.ID), `{"id":"`+made.ID+`",`+rest; got != want {
		t.Errorf("stored %s\n  want %s", got, want)
	}
	// PUT: the id of the path counts, whatever the body says (Q22).
	for _, own := range []string{``, `"id":"x",`} {
		h.do(200, "PUT", "/api/v1/rollups/"+made.ID, "{"+own+rest)
		if got, want := get(made.ID), `{"id":"`+made.ID+`",`+rest; got != want {
			t.Errorf("stored %s\n  want %s", got, want)
		}
	}
	if got, want := h.do(200, "GET", "/api/v1/rollups", ""), "["+get(made.ID)+"]"; got != want {
		t.Errorf("list %s, want %s", got, want)
	}
	s := &status{Statuses: []metricStatus{{MetricName: "m", LastExecuted: "Never", ErrorMessage: "a<b"}}, ExecutingHost: "h", NextScheduled: dateText(time.Date(2024, 2, 29, 12, 5, 6, 0, time.UTC))}
	want := `{"statuses":[{"metricName":"m","lastExecuted":"Never","dataPointCount":0,"executionLength":0,"errorMessage":"a\u003cb","lastExecutionTime":0}],"executingHost":"h","nextScheduled":"29 Feb 2024 00:05:06 PM"}`
	c := catalogue{h.store}
	if err := c.setJSON(t.Context(), statusKey, "s", s); err != nil {
		t.Fatal(err)
	}
	if got, _, err := c.get(t.Context(), statusKey, "s"); got != want || err != nil {
		t.Errorf("status %s, %v\n  want %s", got, err, want)
	}
}

func TestFaultyTasks(t *testing.T) {
	h := newHarness(t)
	h.restart(func(c *Config, _ *query.Config) { c.MaxTasks, c.MaxTaskSize = 1, 2000 })
	good := taskJSON("t", hour, hour, "")
	for _, tc := range []struct{ body, want string }{
		{"", "no body"},
		{"[]", "Not a JSON Object: []"},
		{`{"name":"n","execution_interval":{"value":0,"unit":"hours"}}`, "executionInterval.value must be"},
		{`{"name":null,"execution_interval":` + hour + `}`, "name may not be null"},
		{`{"name":"n","execution_interval":5}`, "executionInterval must be an object with value and unit"},
		{`{"name":"n","execution_interval":` + hour + `,"rollups":[{"save_as":"","query":{}}]}`, "rollup[0].saveAs may not be empty"},
		{taskJSON("t", hour, hour, `,"ttl":"x"`), "rollup[0].ttl must be a number of seconds"},
		{`{"name":"n","execution_interval":{"value":1,"unit":"eons"}}`, `executionInterval.unit \"eons\" must be one of`},
		{`{"name":"n","execution_interval":` + hour + `,"rollups":null}`, "rollups must be an array, not null"},
		{`{"name":"n","execution_interval":` + hour + `,"rollups":{}}`, "rollups must be an array, not {}"},
		{`{"name":"n","execution_interval":` + hour + `,"rollups":[5]}`, "rollup[0] must be an object"},
		{`{"name":"n","execution_interval":` + hour + `,"rollups":[{"save_as":"s"}]}`, "rollup[0].query may not be null"},
		{taskJSON("t", hour, hour, `,"time_zone":"Mars"`), `rollup[0].time_zone \"Mars\" is not a time zone`},
		{taskJSON("t", hour, hour, `,"ttl":-1`), "rollup[0].ttl of -1 seconds"},
		{taskJSON("t", hour, `{"value":0,"unit":"hours"}`, ""), "sampling.value must be greater than 0"},
		{taskJSON("t", hour, `{"value":1,"unit":"eons"}`, ""), "rollup[0].query.metric[0].aggregators[0].eons is not a valid time unit"},
		{taskJSON(strings.Repeat("i", 300), hour, hour, ""), "id may have at most 256 bytes"},
		{good + strings.Repeat(" ", 2000), "limit bytes of a roll-up task of 2000 reached"},
	} {
		if got := h.do(400, "POST", "/api/v1/rollups", tc.body); !strings.Contains(got, tc.want) {
			t.Errorf("%.80s: %s, want %s", tc.body, got, tc.want)
		}
	}
	h.do(200, "POST", "/api/v1/rollups", good)
	h.do(200, "POST", "/api/v1/rollups", good) // replaced
	if got := h.do(400, "POST", "/api/v1/rollups", taskJSON("u", hour, hour, "")); !strings.Contains(got, "roll-up tasks of 1") {
		t.Error(got)
	}
	h.do(404, "PUT", "/api/v1/rollups/u", good)
}

// TestTasksThatAreNotThere: the API's list, and its answers for unknown ids.
func TestTasksThatAreNotThere(t *testing.T) {
	h := newHarness(t)
	if got := h.do(200, "GET", "/api/v1/rollups", ""); got != "[]" {
		t.Errorf("no tasks are listed as %s", got)
	}
	for _, id := range []string{"a", "b", "c"} {
		h.do(200, "POST", "/api/v1/rollups", taskJSON(id, hour, minute, ""))
	}
	var all []struct{ ID string }
	if err := json.Unmarshal([]byte(h.do(200, "GET", "/api/v1/rollups", "")), &all); err != nil || len(all) != 3 || all[2].ID != "c" {
		t.Errorf("tasks are listed as %v, %v", all, err)
	}
	for method, paths := range map[string][]string{
		"GET":    {"/nope", "/status/nope", "/backfill/nope?startTime=2000-01-01-00-00-00-000"},
		"DELETE": {"/nope"},
	} {
		for _, path := range paths {
			if got := h.do(404, method, "/api/v1/rollups"+path, ""); !strings.Contains(got, "not found for id nope") {
				t.Errorf("%s %s: %s", method, path, got)
			}
		}
	}
}

// TestDamagedNotes: unreadable data about a task is not mistaken for none. The task
// fails, and the error says what is damaged.
func TestDamagedNotes(t *testing.T) {
	for key, want := range map[string]string{
		statusKey:    "read the status of a roll-up task",
		watermarkKey: "read the watermarks of a roll-up task",
	} {
		synctest.Test(t, func(t *testing.T) {
			h, _, log := brittleHarness(t, false)
			if err := h.store.Set(t.Context(), service, key, "t", "{"); err != nil {
				t.Fatal(err)
			}
			h.start()
			defer h.stop()
			time.Sleep(time.Hour + time.Minute)
			synctest.Wait()
			if failed := valueOf(t, h.scheduler.metrics.runs.WithLabelValues(runFailed)); failed == 0 || !strings.Contains(log.String(), want) {
				t.Errorf("a damaged %s: %v runs failed, and the log has\n%s", key, failed, log)
			}
			if v, err := h.store.Get(t.Context(), service, key, "t"); err != nil || v.Text != "{" {
				t.Errorf("a damaged %s became %s, %v", key, v.Text, err)
			}
			if got := h.do(500, "GET", "/api/v1/rollups/status/t", ""); !strings.Contains(got, want) {
				t.Errorf("a damaged %s: the status is %s", key, got)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h, _, log := brittleHarness(t, false)
		if err := h.store.Set(t.Context(), service, lateKey, "t", "["); err != nil {
			t.Fatal(err)
		}
		h.restart(nil)
		h.scheduler.Load(t.Context())
		if !strings.Contains(log.String(), "read the late points of roll-up task t") {
			t.Errorf("damaged late points: the log has\n%s", log)
		}
	})
}

// TestResultsWaitForNewSeries: results whose series exceed the rate of new series
// are stored later, not lost.
func TestResultsWaitForNewSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 }
		h.restart(nil)
		for _, host := range []string{"a", "b", "c"} {
			h.put("src", host, 1, at(0, 0, 0))
		}
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		time.Sleep(time.Hour)
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-00-01-00-000", "")
		h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 1
{host=b,saved_from=src} 2000-01-01T00:00 1
{host=c,saved_from=src} 2000-01-01T00:00 1`)
	})
}

// TestEndWhileResultsWait: a run that ends while its results wait for the rate of new
// series has not stored them, and reports that. Earlier results stay.
func TestEndWhileResultsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 }
		h.restart(nil)
		gone := errors.New("the run was stopped")
		o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
		for _, host := range []string{"a", "b"} {
			ctx, stop := context.WithCancelCause(t.Context())
			o.begin(model.AllTime)
			by := &agg.TagGroupBy{Tags: []string{"host"}}
			if err := o.add(ctx, &agg.Group{Points: &onePoint{}, Labels: []agg.Label{{By: by, Tags: []string{host}}}}); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- o.flush(ctx) }()
			synctest.Wait()
			stop(gone)
			if err := <-done; host == "a" && err != nil || host == "b" && !errors.Is(err, gone) && !errors.Is(err, context.Canceled) {
				t.Errorf("host %s: %v", host, err)
			}
		}
		if o.stored != 1 || h.store.SeriesCount() != 1 {
			t.Errorf("%d results of %d series are stored, want one", o.stored, h.store.SeriesCount())
		}
	})
}

func TestConfigBounds(t *testing.T) {
	check := unitstest.Bounds(t, DefaultConfig)
	check("max_tasks", func(c *Config, v int64) { c.MaxTasks = int(v) }, []int64{1}, []int64{0, -1})
	check("max_task_size", func(c *Config, v int64) { c.MaxTaskSize = units.Bytes(v) }, []int64{1}, []int64{0, -1})
	check("max_task_memory", func(c *Config, v int64) { c.MaxTaskMemory = units.Bytes(v) }, []int64{1}, []int64{0, -1})
	check("max_concurrent", func(c *Config, v int64) { c.MaxConcurrent = int(v) }, []int64{1}, []int64{0, -1})
	check("retry_interval", func(c *Config, v int64) { c.RetryInterval = time.Duration(v) }, []int64{1}, []int64{0, -1})
	check("poll_interval", func(c *Config, v int64) { c.PollInterval = time.Duration(v) }, []int64{1}, []int64{0, -1})
	check("batch_buckets", func(c *Config, v int64) { c.BatchBuckets = int(v) }, []int64{1}, []int64{0, -1})
	check("max_late_spans", func(c *Config, v int64) { c.MaxLateSpans = int(v) }, []int64{1}, []int64{0, -1})
	check("late_horizon", func(c *Config, v int64) { c.LateHorizon = time.Duration(v) },
		[]int64{int64(time.Minute), int64(31 * 24 * time.Hour)}, []int64{int64(time.Minute) - 1, int64(31*24*time.Hour) + 1})
}

func FuzzTask(f *testing.F) {
	f.Add([]byte(taskJSON("t", hour, minute, `,"ttl":5,"time_zone":"UTC"`)))
	f.Add([]byte(`{"name":"n","execution_interval":null,"rollups":[{}]}`))
	f.Add([]byte(`{"id":{},"id":"a","name":["x"]}`))
	s := reference.New(nil)
	registry := prometheus.NewRegistry()
	api := kairos.New(s, agg.New(query.New(s, query.DefaultConfig(), registry, time.Now), nil), kairos.DefaultConfig(), "test", time.Now)
	f.Fuzz(func(t *testing.T, body []byte) {
		task, err := parseTask(api, body, "", func() string { return "fresh" })
		if err != nil {
			return
		}
		again, err := parseTask(api, []byte(task.json), task.id, nil)
		if err != nil || again.json != task.json || again.id != task.id {
			t.Fatalf("stored %s (%s), read back as %v, %v", task.json, task.id, again, err)
		}
	})
}

// TestClockIsPutBack: after a clock was a day ahead for some minutes, in which the task
// ran, the task still runs and computes later points, even if the server was stopped
// meanwhile. Points that arrive while the clock is ahead are late by its time.
func TestClockIsPutBack(t *testing.T) {
	for _, every := range []string{minute, `{"value":3,"unit":"hours"}`} {
		for _, restart := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				ahead := atomic.Int64{}
				h := newHarness(t)
				h.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				h.restart(nil)
				h.start()
				h.do(200, "POST", "/api/v1/rollups", taskJSON("t", every, hour, ""))
				sendAt := func(hour, minute int) {
					time.Sleep(time.Until(time.UnixMilli(at(hour, minute, 0))))
					h.send("src", "a", 1, at(hour, minute, 0))
				}
				sendAt(1, 30)
				sendAt(2, 10)
				ahead.Store(int64(24 * time.Hour))
				sendAt(2, 12)
				time.Sleep(5 * time.Minute)
				if restart {
					h.stop()
				}
				ahead.Store(0)
				if restart {
					h.restart(nil)
					h.start()
				}
				for hour := 2; hour < 9; hour++ {
					sendAt(hour, 40)
				}
				time.Sleep(4 * time.Hour)
				h.stop()
				h.wantPoints("dst", `{host=a,saved_from=src} 2000-01-01T01:00 1
{host=a,saved_from=src} 2000-01-01T02:00 3
{host=a,saved_from=src} 2000-01-01T03:00 1
{host=a,saved_from=src} 2000-01-01T04:00 1
{host=a,saved_from=src} 2000-01-01T05:00 1
{host=a,saved_from=src} 2000-01-01T06:00 1
{host=a,saved_from=src} 2000-01-01T07:00 1
{host=a,saved_from=src} 2000-01-01T08:00 1`)
			})
		}
	}
}
