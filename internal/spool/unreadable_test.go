package spool

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/head"
	"varve/internal/model"
)

// spillActive cuts the active generation, writes it to files, and returns it.
func spillActive(t *testing.T, s *Spool) *Generation {
	t.Helper()
	s.order.Lock()
	g := s.active.Load()
	err := s.cutLocked()
	s.order.Unlock()
	if err = errors.Join(err, s.spill(within(t), g)); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestUnreadableFiles: while a file of spilled samples, or of their write timestamps, cannot be
// read, neither a query nor the sink takes them for absent. They are there as soon as it can be.
func TestUnreadableFiles(t *testing.T) {
	for name, fails := range map[string]func(path string) bool{
		"samples":          func(path string) bool { return strings.HasSuffix(path, ".blk") },
		"write timestamps": func(path string) bool { return strings.HasSuffix(path, stampsSuffix) },
	} {
		var broken atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsRead && strings.Contains(op.Path, spillName+"/") && fails(op.Path) {
				return errorfs.ErrInjected
			}
			return nil
		}))
		s := mustOpen(t, fs, patient(tinyConfig()), Options{})
		series := testSeries("load", 1)
		put(t, s, series, 7, 1000, 2000)
		g := spillActive(t, s)
		put(t, s, series, 8, 2000, 3000)
		ref, _ := s.Lookup(series.AppendKey(nil))
		id := model.SeriesNumber(ref)
		v := s.View()
		broken.Store(true)
		if counts, err := runsOf(v, id, model.AllTime, nil); (name == "samples") != errors.Is(err, errorfs.ErrInjected) || err != nil && counts != nil {
			t.Errorf("%s cannot be read: a query gets %d, %v", name, counts, err)
		}
		if counts, err := runsOf(v, id, model.TimeRange{StartMS: 2500, EndMS: 3000}, nil); err != nil || len(counts) != 1 {
			t.Errorf("%s cannot be read: a query of later samples gets %d, %v", name, counts, err)
		}
		run := head.Run{Stamps: true}
		if _, err := g.Snapshot(id, model.AllTime, &run); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("%s cannot be read: the sink gets %v", name, err)
		}
		broken.Store(false)
		if counts, err := runsOf(v, id, model.AllTime, nil); err != nil || !slices.Equal(counts, []int{2, 2}) {
			t.Errorf("%s can be read again: a query gets %d, %v", name, counts, err)
		}
		v.Close()
		sink := newRemote()
		s.Start(sink)
		flushed(t, s)
		for ms, want := range map[int64]int64{1000: 7, 2000: 8, 3000: 8} {
			if got := sink.at(1, ms).value; got != longText(want) {
				t.Errorf("%s can be read again: at %d the sink gets %q, want %d", name, ms, got, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunsAreFilledAnew: what a run had before is gone when it is filled from a file, also if the
// file has no samples of the series.
func TestRunsAreFilledAnew(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), Options{})
	defer s.Close()
	long := testSeries("load", 1)
	putText(t, s, "text", "value", 1, 2)
	var times []int64
	for ms := range int64(200) { // more than is kept unencoded in memory
		times = append(times, ms)
	}
	put(t, s, long, 7, times...)
	ref, _ := s.Lookup(long.AppendKey(nil))
	textRef, _ := s.Lookup(model.Series{Metric: "text", Type: model.TypeString, Tags: model.MustTags("a", "b")}.AppendKey(nil))
	var run head.Run
	if ok, err := s.active.Load().Snapshot(model.SeriesNumber(ref), model.AllTime, &run); !ok || err != nil || len(run.Fragments) == 0 {
		t.Fatalf("in memory: %t, %v, %d fragments", ok, err, len(run.Fragments))
	}
	g := spillActive(t, s)
	if ok, err := g.Snapshot(model.SeriesNumber(textRef), model.AllTime, &run); !ok || err != nil || run.Kind != model.String || len(run.Fragments) != 0 || run.Open.Len() != 2 {
		t.Errorf("texts in a file: %t, %v, kind %s, %d fragments, %d samples", ok, err, run.Kind, len(run.Fragments), run.Open.Len())
	}
	if ok, err := g.Snapshot(1000, model.AllTime, &run); ok || err != nil || run.Kind != 0 || len(run.Fragments) != 0 || run.Open.Len() != 0 {
		t.Errorf("a series that is not in the file: %t, %v, kind %s, %d fragments, %d samples", ok, err, run.Kind, len(run.Fragments), run.Open.Len())
	}
}

// TestClockIsSetBackWithoutALog: while no segment of the log can be begun the active generation
// is not cut, so write timestamps do not follow a clock that was set back, and nothing says that they do.
func TestClockIsSetBackWithoutALog(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	clock := newClock()
	o := clock.options(nil)
	var logged strings.Builder
	o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	s := mustOpen(t, fs, patient(tinyConfig()), o)
	clock.add(24 * time.Hour)
	putText(t, s, "text", strings.Repeat("x", int(s.rotateBytes())), 1) // a cut begins a segment
	broken.Store(true)
	if err := tryPut(s, testSeries("load", 1), 2, 2); err == nil {
		t.Fatal("a sample is taken without a log")
	}
	clock.add(-12 * time.Hour)
	s.FollowClock()
	s.order.Lock()
	stamp, active := s.nextStampLocked(), s.active.Load()
	s.order.Unlock()
	if stamp < active.lastMS {
		t.Errorf("the next write timestamp is %d, in the active generation there are some up to %d", stamp, active.lastMS)
	}
	_ = s.Close() // the spool looks at its clock and its disk each second, and may log
	if strings.Contains(logged.String(), "the clock was set back") {
		t.Errorf("logged:\n%s", &logged)
	}
}
