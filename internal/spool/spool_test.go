package spool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/wal"
)

func TestAppendFlush(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	sink := newRemote()
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	a := testSeries("load", 1)
	put(t, s, a, 1, 1000, 2000)
	put(t, s, a, 2, 2000, 3000)

	v := s.View()
	want := content{}
	key := string(a.AppendKey(nil))
	want.set(key, 1000, "1/0")
	want.set(key, 2000, "2/0")
	want.set(key, 3000, "2/0")
	got := content{}
	got.overlay(t, v, "load")
	if err := got.diff(want); err != nil {
		t.Error("before it is drained:", err)
	}

	stamp, err := s.Flush(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error("in the remote store:", err)
	}
	got = content{}
	got.overlay(t, v, "load")
	if err := got.diff(want); err != nil {
		t.Error("in a view that was open while it was drained:", err)
	}
	v.Close()
	later := s.View()
	defer later.Close()
	if ids, _ := idsOf(later.Select(context.Background(), "load", nil, model.AllTime, nil)); len(ids) != 0 {
		t.Errorf("%d series are left in the spool", len(ids))
	}
	if h := s.Health(); h.Samples != 0 || h.Generations != 0 || !h.Oldest.IsZero() || h.SinkError != nil {
		t.Errorf("health after draining: %+v", h)
	}
	if stamp <= sink.lastStamp() {
		t.Errorf("flush returns %d, not above %d", stamp, sink.lastStamp())
	}
	put(t, s, a, 3, 4000)
	again, err := s.Flush(within(t))
	if err != nil || sink.lastStamp() <= stamp || again <= sink.lastStamp() {
		t.Errorf("stamps %d < %d < %d, %v", stamp, sink.lastStamp(), again, err)
	}
	sink.check(t)
}

// TestMarksOnly: a spool that is only flushed does not grow.
func TestMarksOnly(t *testing.T) {
	cfg := tinyConfig()
	fs := vfs.NewMem()
	sink := newRemote()
	s := mustOpen(t, fs, cfg, Options{Sink: sink})
	var last int64
	for range 500 {
		stamp, err := s.Flush(within(t))
		if err != nil || stamp <= last {
			t.Fatalf("flush: %d after %d, %v", stamp, last, err)
		}
		last = stamp
		s.tidyLog()
	}
	if h := s.Health(); h.LogBytes > 4<<10 {
		t.Errorf("%d bytes of log", h.LogBytes)
	}
	put(t, s, testSeries("load", 1), 1, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fs, cfg, Options{Sink: sink, Now: func() time.Time { return time.UnixMilli(last).Add(-clockLead / 2) }})
	defer s.Close()
	if h := s.Health(); h.Samples+int64(len(sink.content())) < 1 {
		t.Errorf("health: %+v", h)
	}
	if stamp, err := s.Flush(within(t)); err != nil || stamp <= last {
		t.Errorf("flush with a clock that went back: %d after %d, %v", stamp, last, err)
	}
}

// TestMarksAreTidiedInTime: the log of a spool that was only flushed is given up although nothing more
// arrives.
func TestMarksAreTidiedInTime(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{Sink: newRemote()})
	defer s.Close()
	for range 500 {
		if _, err := s.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the log is small", func() bool { return s.Health().LogBytes <= 4<<10 })
}

// TestNamesBesideHeldViews: what a view still holds of a drained generation is
// listed by that view, and not by one that was opened later.
func TestNamesBesideHeldViews(t *testing.T) {
	r := newRemote()
	r.gate = make(chan struct{}, 1)
	cfg := tinyConfig()
	cfg.Linger = time.Hour // nothing is cut or drained but by the flushes
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: r})
	defer s.Close()
	put(t, s, testSeries("drained", 1), 1, 1)
	before := s.View()
	defer before.Close()
	r.gate <- struct{}{}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	put(t, s, testSeries("pending", 1), 1, 1)
	after := s.View()
	defer after.Close()
	for _, tc := range []struct {
		who  string
		view *View
		want string
	}{{"the view before the drain", before, "drained"}, {"the view after it", after, "pending"}} {
		names, _, err := tc.view.Names(context.Background(), store.NamesQuery{Kind: store.MetricNames})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%s lists %q, want %q", tc.who, got, tc.want)
		}
	}
}

// TestViewOfALaterGeneration: what a view holds of any generation, not of the
// first alone, it finds after that generation was drained and another view has
// listed names.
func TestViewOfALaterGeneration(t *testing.T) {
	r := newRemote()
	r.gate = make(chan struct{}, 1)
	cfg := tinyConfig()
	cfg.Linger = time.Hour // nothing is cut or drained but by the flushes
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: r})
	defer s.Close()
	put(t, s, testSeries("first", 1), 1, 1)
	r.gate <- struct{}{}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	put(t, s, testSeries("second", 1), 1, 1)
	before := s.View()
	defer before.Close()
	r.gate <- struct{}{}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	after := s.View()
	defer after.Close()
	if names, _, err := after.Names(context.Background(), store.NamesQuery{Kind: store.MetricNames}); err != nil || len(names) != 0 {
		t.Errorf("a view of a spool that is drained lists %q, %v", names, err)
	}
	if ids, err := idsOf(before.Select(context.Background(), "second", nil, model.AllTime, nil)); err != nil || len(ids) != 1 {
		t.Errorf("the view before the drain finds %d series, %v", len(ids), err)
	}
}

// TestNamesOfADrainedSeriesThatGoesOn: a series of a drained generation stays findable as long as
// the active one has samples of it.
func TestNamesOfADrainedSeriesThatGoesOn(t *testing.T) {
	sink := newRemote()
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), Options{Sink: sink})
	defer s.Close()
	series := testSeries("load", 1)
	put(t, s, series, 1, 1)
	flushed(t, s)
	put(t, s, series, 2, 2)
	for range 2 {
		v := s.View()
		names, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames}) // looks for idle series
		if err != nil || !slices.Equal(names, []string{"load"}) {
			t.Errorf("names %v, %v", names, err)
		}
		if ids, err := idsOf(v.Select(t.Context(), "load", nil, model.AllTime, nil)); err != nil || len(ids) != 1 {
			t.Errorf("series %v are found, %v", ids, err)
		}
		v.Close()
	}
}

// TestSeriesMetrics: of every n-th series, the metric is told, until the caller has enough.
func TestSeriesMetrics(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{})
	defer s.Close()
	const series = 1000
	for n := range series {
		put(t, s, testSeries(fmt.Sprintf("metric%d", n), n), 1, 1)
	}
	for every, bounds := range map[int][2]int{0: {series, series}, 1: {series, series}, 10: {20, 300}} {
		metrics := map[string]bool{}
		for metric := range s.SeriesMetrics(every) {
			metrics[metric] = true
		}
		if n := len(metrics); n < bounds[0] || n > bounds[1] {
			t.Errorf("of one in %d: %d metrics of %d", every, n, series)
		}
	}
	for metric := range s.SeriesMetrics(1) {
		if !strings.HasPrefix(metric, "metric") {
			t.Errorf("metric %q", metric)
		}
		break
	}
}

// TestSync: what was acknowledged before Sync survives a power cut, also while the log is synced by
// time alone.
func TestSync(t *testing.T) {
	cfg := patient(tinyConfig())
	cfg.Log.Durability, cfg.Log.SyncInterval = wal.Interval, time.Minute
	disk := crashfs.New()
	s := mustOpen(t, disk, cfg, Options{})
	defer s.Close()
	series := testSeries("load", 1)
	put(t, s, series, 7, 1)
	lost := disk.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := disk.CrashClone(vfs.CrashCloneCfg{})
	want := content{}
	checkWaiting(t, lost, want)
	want.set(string(series.AppendKey(nil)), 1, longText(7))
	checkWaiting(t, kept, want)
}
