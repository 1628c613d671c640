package spool

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
)

// fakeClock is set by a test.
type fakeClock struct{ ms atomic.Int64 }

func newClock() *fakeClock {
	c := &fakeClock{}
	c.ms.Store(1_700_000_000_000)
	return c
}

func (c *fakeClock) now() time.Time         { return time.UnixMilli(c.ms.Load()) }
func (c *fakeClock) add(d time.Duration)    { c.ms.Add(d.Milliseconds()) }
func (c *fakeClock) options(s Sink) Options { return Options{Sink: s, Now: c.now} }
func (r *remote) at(n int, ms int64) cell {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cells[string(testSeries("load", n).AppendKey(nil))][ms]
}
func patient(cfg Config) Config { cfg.Linger = time.Hour; return cfg }
func flushed(t *testing.T, s *Spool) (ms int64) {
	t.Helper()
	ms, err := s.Flush(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// Of two processes the one that acknowledged later wins, whichever drains first,
// and however long the other one had been gathering by then.
func TestLaterWriteWins(t *testing.T) {
	clock, sink := newClock(), newRemote()
	a := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(sink))
	defer a.Close()
	b := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(sink))
	defer b.Close()
	put(t, a, testSeries("load", 1), 0, 7) // a has begun to gather
	clock.add(time.Second)
	put(t, b, testSeries("load", 1), 1, 1, 2)
	clock.add(time.Second)
	put(t, a, testSeries("load", 1), 2, 1)
	clock.add(time.Second)
	put(t, b, testSeries("load", 1), 3, 2)
	put(t, a, testSeries("load", 1), 4, 3)
	clock.add(time.Second)
	flushed(t, b)
	flushed(t, a)
	for ms, want := range map[int64]int64{1: 2, 2: 3, 3: 4} {
		if got := sink.at(1, ms).value; got != longText(want) {
			t.Errorf("at %d: %s, want %d", ms, got, want)
		}
	}
}

// What one process acknowledged before another one deletes is deleted, what it
// acknowledged after that stays, though all of it goes together.
func TestDeleteByAnother(t *testing.T) {
	clock, sink := newClock(), newRemote()
	a := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(sink))
	defer a.Close()
	b := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(sink))
	defer b.Close()
	put(t, a, testSeries("load", 1), 1, 1)
	clock.add(time.Second)
	sink.erase(flushed(t, b))
	clock.add(time.Second)
	put(t, a, testSeries("load", 1), 2, 2)
	flushed(t, a)
	if got := sink.at(1, 1); got != (cell{}) {
		t.Errorf("deleted, and there again: %v", got)
	}
	if got := sink.at(1, 2).value; got != longText(2) {
		t.Errorf("written after the delete: %q", got)
	}
}

// Stamps survive crashes and spilling.
func TestStampsAreKept(t *testing.T) {
	clock := newClock()
	fs := crashfs.New()
	cfg := patient(tinyConfig())
	s := mustOpen(t, fs, cfg, clock.options(nil))
	want := map[int]int64{}
	for i := range 3000 {
		clock.add(137 * time.Millisecond)
		want[i] = clock.ms.Load()
		put(t, s, testSeries("load", i%300), 1, int64(i))
		if i == 1000 || i == 2000 {
			crashed := fs.CrashClone(vfs.CrashCloneCfg{})
			s.Close()
			fs = crashed
			clock.add(time.Minute)
			s = mustOpen(t, fs, cfg, clock.options(nil))
		}
	}
	defer s.Close()
	if s.Health().FileBytes == 0 {
		t.Error("nothing was spilled")
	}
	sink := newRemote()
	clock.add(time.Hour)
	s.Start(sink)
	flushed(t, s)
	for i := range 3000 {
		if got := sink.at(i%300, int64(i)).stampMS; got != want[i] {
			t.Fatalf("sample %d: written with %d, acknowledged at %d", i, got, want[i])
		}
	}
}

// A clock that is set back by 40 s, as by NTP after a long drift, causes no harm: the later
// write wins, and a delete removes samples that were acknowledged before it.
func TestClockIsSetBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			clock, sink, fs := newClock(), newRemote(), vfs.NewMem()
			s := mustOpen(t, fs, patient(tinyConfig()), clock.options(sink))
			for i := range int64(4) {
				put(t, s, testSeries("load", 1), 2*i, 1, 2)
				flushed(t, s)
				clock.add(-40 * time.Second)
				if restart {
					s.Close()
					s = mustOpen(t, fs, patient(tinyConfig()), clock.options(sink))
				}
				put(t, s, testSeries("load", 1), 2*i+1, 1)
				deleted := flushed(t, s)
				if got := sink.at(1, 1).value; got != longText(2*i+1) {
					t.Errorf("set back %d times: %s is there, want what was written last, %d", i+1, got, 2*i+1)
				}
				sink.erase(deleted)
				if got := sink.at(1, 2); got != (cell{}) {
					t.Errorf("set back %d times: deleted, and there: %v", i+1, got)
				}
				clock.add(time.Minute)
			}
			s.Close()
		})
	}
}

// A clock that was wrong for a moment is right again.
func TestClockGlitch(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			clock, sink, fs := newClock(), newRemote(), vfs.NewMem()
			s := mustOpen(t, fs, patient(tinyConfig()), clock.options(sink))
			again := func() {
				if restart {
					s.Close()
					s = mustOpen(t, fs, patient(tinyConfig()), clock.options(sink))
				}
			}
			const years = 10 * 365 * 24 * time.Hour
			put(t, s, testSeries("load", 1), 1, 1)
			flushed(t, s)
			clock.add(years)
			again()
			put(t, s, testSeries("load", 1), 2, 2)
			flushed(t, s)
			clock.add(time.Hour - years)
			again()
			put(t, s, testSeries("load", 1), 3, 3)
			if stamp, now := flushed(t, s), clock.ms.Load(); stamp < now || stamp > now+1000 {
				t.Errorf("it is %d; a delete would have the stamp %d", now, stamp)
			}
			if stamp, now := sink.at(1, 3).stampMS, clock.ms.Load(); stamp < now-1000 || stamp > now+1000 {
				t.Errorf("it is %d; a sample is written with %d", now, stamp)
			}
			again()
			put(t, s, testSeries("load", 1), 4, 4) // is not taken for drained
			flushed(t, s)
			if sink.at(1, 4).value != longText(4) {
				t.Errorf("a later sample is %v", sink.at(1, 4))
			}
			s.Close()
		})
	}
}

// Samples that wait while the clock is wrong are written in their order, and with
// stamps of the clock that is right.
func TestClockGlitchInAnOutage(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			clock, fs := newClock(), vfs.NewMem()
			cfg := patient(tinyConfig())
			s := mustOpen(t, fs, cfg, clock.options(nil))
			cut := func() {
				s.order.Lock()
				defer s.order.Unlock()
				if err := s.cutLocked(); err != nil {
					t.Fatal(err)
				}
			}
			put(t, s, testSeries("load", 1), 1, 1, 2, 3, 4, 5)
			cut()
			clock.add(24 * time.Hour)
			put(t, s, testSeries("load", 1), 2, 2, 3, 4, 5)
			cut()
			put(t, s, testSeries("load", 1), 3, 3, 4, 5)
			clock.add(time.Minute - 24*time.Hour)
			put(t, s, testSeries("load", 1), 4, 4, 5)
			cut()
			clock.add(time.Minute)
			put(t, s, testSeries("load", 1), 5, 5)
			if restart {
				s.Close()
				s = mustOpen(t, fs, cfg, clock.options(nil))
			}
			defer s.Close()
			sink := newRemote()
			s.Start(sink)
			flushed(t, s)
			for ms := range int64(6) {
				if ms == 0 {
					continue
				}
				got := sink.at(1, ms)
				if got.value != longText(ms) || got.stampMS > clock.ms.Load()+1000 {
					t.Errorf("at %d: %v; it is %d", ms, got, clock.ms.Load())
				}
			}
			if len(sink.written()) != 5 {
				t.Errorf("generations: %v", sink.written())
			}
			for i := 1; i < len(sink.written()); i++ {
				if sink.written()[i] <= sink.written()[i-1] {
					t.Errorf("stamps of generations: %v", sink.written())
				}
			}
		})
	}
}

// A generation ends before its stamps lie too far apart to be kept.
func TestLongGeneration(t *testing.T) {
	clock, sink := newClock(), newRemote()
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(nil))
	defer s.Close()
	want := map[int64]int64{}
	for i := range int64(10) {
		put(t, s, testSeries("load", 1), i, i)
		want[i] = clock.ms.Load()
		clock.add(20 * 24 * time.Hour)
	}
	s.Start(sink)
	flushed(t, s)
	for i, ms := range want {
		if got := sink.at(1, i).stampMS; got < ms || got > ms+2 { // above a cut, and a delete after it
			t.Errorf("sample %d: written with %d, acknowledged at %d", i, got, ms)
		}
	}
}

// Once the clock is right again, the samples that wait keep stamps of the right clock
// over restarts, also if no more samples come in.
func TestClockGlitchBeforeARestart(t *testing.T) {
	clock, fs := newClock(), vfs.NewMem()
	cfg := patient(tinyConfig())
	s := mustOpen(t, fs, cfg, clock.options(nil))
	clock.add(24 * time.Hour)
	put(t, s, testSeries("load", 1), 1, 1, 2)
	clock.add(time.Minute - 24*time.Hour)
	s.FollowClock()
	for range 2 {
		s.Close()
		clock.add(time.Minute)
		s = mustOpen(t, fs, cfg, clock.options(nil))
	}
	defer s.Close()
	sink := newRemote()
	s.Start(sink)
	deleted := flushed(t, s)
	for _, ms := range []int64{1, 2} {
		if got := sink.at(1, ms).stampMS; got > clock.ms.Load() || got >= deleted {
			t.Errorf("at %d: written with %d; it is %d, and a delete of now has the stamp %d", ms, got, clock.ms.Load(), deleted)
		}
	}
}

// TestStartWithAClockBehind: after a start the clock may be a day behind until it is set. What
// waits and what comes meanwhile keeps stamps above those of before, and those of samples that come
// later are higher still. A clock that is behind although it is set is followed.
func TestStartWithAClockBehind(t *testing.T) {
	for _, right := range []bool{true, false} {
		t.Run(fmt.Sprintf("set right %v", right), func(t *testing.T) {
			clock, fs := newClock(), vfs.NewMem()
			cfg := patient(tinyConfig())
			s := mustOpen(t, fs, cfg, clock.options(nil))
			put(t, s, testSeries("load", 1), 1, 1)
			before := clock.ms.Load()
			s.Close()
			clock.add(-24 * time.Hour)
			var set atomic.Bool
			o := clock.options(nil)
			o.ClockSet = set.Load
			s = mustOpen(t, fs, cfg, o)
			defer s.Close()
			put(t, s, testSeries("load", 1), 2, 2)
			s.FollowClock()
			if right {
				clock.add(24*time.Hour + time.Minute)
			}
			set.Store(true)
			s.FollowClock()
			put(t, s, testSeries("load", 1), 3, 3)
			sink := newRemote()
			s.Start(sink)
			flushed(t, s)
			var stamps [3]int64
			for i := range stamps {
				stamps[i] = sink.at(1, int64(i+1)).stampMS
			}
			first, last := before, before+time.Minute.Milliseconds()
			if !right {
				first, last = before-24*3600*1000, before-24*3600*1000+10
			}
			if stamps[0] < first || stamps[1] < stamps[0] || stamps[2] < stamps[1] || stamps[2] > last {
				t.Errorf("stamps %d, want them to ascend from %d to %d", stamps, first, last)
			}
		})
	}
}

// TestLimitStamps: stamps of generations are lowered to ascend up to a limit, and are never raised.
func TestLimitStamps(t *testing.T) {
	type stamps struct{ first, last int64 } // first is 0 if the samples have no stamps of their own
	for _, c := range []struct {
		have  []stamps
		limit int64
		want  []int64 // the last ones
	}{
		{[]stamps{{0, 10}, {0, 20}, {0, 30}}, 100, []int64{10, 20, 30}},
		{[]stamps{{0, 10}, {0, 20}, {0, 30}}, 25, []int64{10, 20, 25}},
		{[]stamps{{0, 10}, {0, 20}, {0, 30}}, 15, []int64{10, 14, 15}},
		{[]stamps{{0, 10}, {0, 20}, {0, 30}}, 5, []int64{3, 4, 5}},
		{[]stamps{{0, 50}, {0, 20}, {0, 30}}, 100, []int64{19, 20, 30}},
		{[]stamps{{0, 30}, {0, 30}, {0, 30}}, 100, []int64{28, 29, 30}},
		{[]stamps{{5, 10}, {12, 20}, {18, 30}}, 100, []int64{10, 17, 30}},
		{[]stamps{{5, 10}, {8, 20}, {8, 30}}, 100, []int64{6, 7, 30}},
	} {
		var frozen []*Generation
		for _, s := range c.have {
			g := &Generation{firstMS: s.first}
			g.stampMS.Store(s.last)
			frozen = append(frozen, g)
		}
		limitStamps(frozen, c.limit)
		for i, g := range frozen {
			if got := g.stampMS.Load(); got != c.want[i] {
				t.Errorf("%v up to %d: stamp %d is %d, want %d", c.have, c.limit, i, got, c.want[i])
			}
		}
	}
}

// TestClockIsSetBackWithoutSamples: a generation without samples is not handed to the sink.
func TestClockIsSetBackWithoutSamples(t *testing.T) {
	clock := newClock()
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(nil))
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1)
	s.order.Lock()
	err := s.cutLocked()
	s.order.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	clock.add(-24 * time.Hour)
	s.FollowClock()
	if n := s.Health().Generations; n != 1 {
		t.Errorf("%d generations, want the one with samples", n)
	}
}

// TestClockIsSetBackWhileNothingArrives: samples that wait get stamps of the right clock although there
// are no further writes and flushes.
func TestClockIsSetBackWhileNothingArrives(t *testing.T) {
	clock := newClock()
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), clock.options(nil))
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1)
	clock.add(-24 * time.Hour)
	until(t, "samples that wait follow the clock", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		waiting := s.frozenLocked()
		return len(waiting) == 1 && waiting[0].stampMS.Load() <= clock.ms.Load()+1
	})
}
