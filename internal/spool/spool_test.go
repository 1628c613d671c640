package spool

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
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
