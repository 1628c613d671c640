package rollup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
)

// sendFor stores points of value 1 as clients do, with a time-to-live.
func (h *harness) sendFor(ttl time.Duration, times ...int64) {
	h.Helper()
	w := h.pipeline.NewWriter(h.pipeline.Protocol("test"), "", 0)
	_, err := w.Ingest(context.Background(), len(times), func() error {
		ref, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "src", Tags: []model.Tag{{Name: "host", Value: "a"}}})
		if err != nil {
			return err
		}
		for _, ms := range times {
			if f := w.AddLong(ref, ms, 1, uint32(ttl/time.Second)); f != nil {
				return f.Err
			}
		}
		return nil
	})
	if err != nil {
		h.Fatal(err)
	}
}

// Results outlive their points: if a point arrives so late that others of its bucket
// have expired, the result is not recomputed from the remaining ones.
func TestLatePointAfterOthersExpired(t *testing.T) {
	for _, from := range []ingest.TTLFrom{ingest.FromWrite, ingest.FromTimestamp} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			h.ingest = func(c *ingest.Config) { c.TTLFrom = from }
			h.restart(nil)
			h.start()
			defer func() { h.stop() }()
			h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, ""))
			for range 3 { // to 03:00, of which each hour has 60 points
				for range 60 {
					h.sendFor(4*time.Hour, time.Now().UnixMilli())
					time.Sleep(time.Minute)
				}
			}
			want := "{host=a,saved_from=src} 2000-01-01T00:00 60\n{host=a,saved_from=src} 2000-01-01T01:00 60\n{host=a,saved_from=src} 2000-01-01T02:00 60"
			time.Sleep(90 * time.Minute)
			h.wantPoints("dst", want) // 04:30: of the first hour half is left
			h.sendFor(4*time.Hour, at(0, 59, 30))
			time.Sleep(2 * time.Minute)
			h.wantPoints("dst", want)
			if got := ingesttest.Counters(t, h.registry, "varve_rollup_late_outlived_total")[""]; got != 1 {
				t.Errorf("%v points have a bucket that was left alone", got)
			}
			h.sendFor(4*time.Hour, at(1, 59, 30)) // of this hour nothing has expired
			time.Sleep(2 * time.Minute)
			h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 60\n{host=a,saved_from=src} 2000-01-01T01:00 61\n{host=a,saved_from=src} 2000-01-01T02:00 60")
		})
	}
}

// Runs go back by the horizon, but not to results that have outlived points with the
// default time-to-live.
func TestHorizonBeyondDefaultTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.DefaultTTL = 80 * time.Minute }
		h.restart(nil)
		h.start()
		defer func() { h.stop() }()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, `,"ttl":864000`))
		for range 60 {
			h.sendFor(0, time.Now().UnixMilli())
			time.Sleep(time.Minute)
		}
		for range 120 { // the horizon of the last run has the first hour until 02:00
			time.Sleep(time.Minute)
			h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 60")
		}
	})
}

// Points that live longer than the default are in the results although they arrive
// after the run that has completed their bucket, and no run goes back to it.
func TestLongLivedPointsWithShortDefaultTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.DefaultTTL = 30 * time.Minute }
		h.restart(nil)
		h.start()
		defer func() { h.stop() }()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, `,"ttl":864000`))
		for range 60 {
			h.sendFor(30*24*time.Hour, time.Now().UnixMilli())
			time.Sleep(time.Minute)
		}
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 60")
		h.sendFor(30*24*time.Hour, at(0, 59, 30))
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 61")
		h.sendFor(0, at(0, 59, 40)) // which lives as long as the default says
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 61")
		if got := ingesttest.Counters(t, h.registry, "varve_rollup_late_outlived_total")[""]; got != 0 {
			t.Errorf("%v points count as late", got)
		}
	})
}
