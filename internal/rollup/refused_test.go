package rollup

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/query"
)

// A group whose names are refused costs its own results only, and the status says so.
func TestGroupWithRefusedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.start()
		defer func() { h.stop() }()
		long := strings.Repeat("x", int(ingest.DefaultConfig().MaxTagValueBytes)+1) // as a KairosDB node stores it
		for _, host := range []string{"a", long, "z"} {
			h.put("src", host, 1, at(0, 0, 10), at(0, 1, 10))
		}
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(150 * time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 1\n{host=a,saved_from=src} 2000-01-01T00:01 1\n{host=z,saved_from=src} 2000-01-01T00:00 1\n{host=z,saved_from=src} 2000-01-01T00:01 1")
		st := h.status("t")
		if len(st.Statuses) != 1 || !strings.Contains(st.Statuses[0].ErrorMessage, "names of their series are refused: ") || st.Statuses[0].Watermark == nil || *st.Statuses[0].Watermark != at(0, 2, 0) {
			t.Errorf("%+v", st.Statuses)
		}
		m := h.scheduler.metrics
		if n := valueOf(t, m.refused); n < 2 {
			t.Errorf("%v refused results", n)
		}
		if n := valueOf(t, m.runs.WithLabelValues(runFailed)); n != 0 {
			t.Errorf("%v failed runs", n)
		}
		h.put("src", "a", 1, at(-24, 0, 30))
		h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=1999-12-31-00-00-00-000&endTime=1999-12-31-00-02-59-999", "")
		if got := h.points("dst"); !strings.Contains(got, "{host=a,saved_from=src} 1999-12-31T00:00 1") {
			t.Errorf("after a backfill:\n%s", got)
		}
	})
}

// At the limit of series, results of series that exist are stored. Those of new ones follow when
// the limit is raised.
func TestGroupBeyondTheLimitOfSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		long := strings.Repeat("x", int(ingest.DefaultConfig().MaxTagValueBytes)+1)
		for _, host := range []string{"a", "b", "c", long} {
			h.put("src", host, 1, at(0, 0, 10), at(0, 1, 10))
		}
		log := &bytes.Buffer{}
		h.log = slog.New(slog.NewTextHandler(log, nil))
		limit := 6
		h.ingest = func(c *ingest.Config) { c.MaxSeries = limit }
		restart := func() {
			h.restart(func(c *Config, _ *query.Config) { c.RetryInterval = time.Minute })
			h.start()
		}
		restart()
		defer func() { h.stop() }()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(150 * time.Second)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 1\n{host=a,saved_from=src} 2000-01-01T00:01 1\n{host=b,saved_from=src} 2000-01-01T00:00 1\n{host=b,saved_from=src} 2000-01-01T00:01 1")
		if m := h.status("t").Statuses[0].ErrorMessage; !strings.Contains(m, "ingest.max_series") || !strings.Contains(m, "all others are stored") {
			t.Error(m)
		}
		limit = 100
		h.stop()
		if !strings.Contains(log.String(), `"2 results were not stored in dst, because the names`) { // not those at the limit
			t.Errorf("%s", log)
		}
		restart()
		time.Sleep(150 * time.Second)
		if got := h.points("dst"); !strings.Contains(got, "{host=c,saved_from=src} 2000-01-01T00:00 1\n{host=c,saved_from=src} 2000-01-01T00:01 1") {
			t.Errorf("with a higher limit:\n%s", got)
		}
	})
}

// A failures saver counts how often points could not be stored.
type failures struct {
	agg.Saver
	n int
}

func (f *failures) Save(ctx context.Context, to agg.Target, points []agg.Point) error {
	err := f.Saver.Save(ctx, to, points)
	if err != nil {
		f.n++
	}
	return err
}

// TestSaveAsAtRateOfNewSeriesIsNotHalved: if the query of a task has a step save_as whose series exceed the
// rate of new series, fewer buckets would exceed it too. The query runs once, and again at the next run.
func TestSaveAsAtRateOfNewSeriesIsNotHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.NewSeriesBurst, c.NewSeriesPerSecond = 1, 1 }
		h.restart(nil)
		saver := &failures{Saver: kairos.NewSaver(h.pipeline)}
		h.scheduler.engine = agg.New(h.scheduler.engine.Engine, saver)
		for _, host := range []string{"a", "b"} {
			h.put("src", host, 1, at(0, 0, 0), at(0, 7, 0))
		}
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, minute, ""), `"sampling":`+minute+`}`, `"sampling":`+minute+`},{"name":"save_as","metric_name":"copy"}`, 1))
		time.Sleep(time.Hour)
		const backfill = "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-00-08-00-000"
		h.do(503, "POST", backfill, "")
		if saver.n != 1 {
			t.Errorf("save_as failed %d times in a run", saver.n)
		}
		time.Sleep(time.Second)
		h.do(204, "POST", backfill, "")
	})
}
