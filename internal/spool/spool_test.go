package spool

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
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
	if ids, _ := later.Select("load", nil, model.AllTime); len(ids) != 0 {
		t.Errorf("%d series are left in the spool", len(ids))
	}
	if h := s.Health(); h.Samples != 0 || h.Generations != 0 || !h.Oldest.IsZero() || h.SinkError != nil {
		t.Errorf("health after draining: %+v", h)
	}
	if stamp <= sink.last {
		t.Errorf("flush returns %d, not above %d", stamp, sink.last)
	}
	put(t, s, a, 3, 4000)
	again, err := s.Flush(within(t))
	if err != nil || sink.last <= stamp || again <= sink.last {
		t.Errorf("stamps %d < %d < %d, %v", stamp, sink.last, again, err)
	}
	sink.check(t)
}
