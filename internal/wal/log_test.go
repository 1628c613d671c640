package wal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
	"varve/internal/units"
)

func TestRoundTrip(t *testing.T) {
	for _, durability := range []string{Fsync, Interval} {
		t.Run(durability, func(t *testing.T) {
			fsys := vfs.NewMem()
			cfg := small
			cfg.Durability = durability
			var want []entry
			for range 3 { // opened, closed, opened again
				l := open(t, fsys, cfg)
				var last Ticket
				for i := range 200 {
					a, b := numbered(uint64(i), i), strings.Repeat("x", i%7)
					last = l.Append(byte(1+i%254), a, nil, []byte(b))
					want = append(want, entry{0, byte(1 + i%254), string(a) + b})
				}
				wait(t, l, last)
				closeLog(t, l)
			}
			got, stats := replay(t, fsys)
			if len(got) != len(want) || stats.Records != len(want) || stats.CutBytes != 0 {
				t.Fatalf("%d records, %+v, want %d", len(got), stats, len(want))
			}
			var segment Segment
			for i, e := range got {
				if e.segment < segment {
					t.Fatalf("segment %d after %d", e.segment, segment)
				}
				segment, e.segment = e.segment, 0
				if e != want[i] {
					t.Fatalf("record %d: got %v, want %v", i, e, want[i])
				}
			}
			if segment < 6 {
				t.Fatalf("only %d segments", segment)
			}
		})
	}
}

func TestRecordLargerThanSegment(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	l.Append(1, numbered(0, 100))
	l.Append(1, numbered(1, 20_000))
	l.Append(1, numbered(2, 100))
	closeLog(t, l)
	got, _ := replay(t, fsys)
	if n := checkPrefix(t, got); n != 3 {
		t.Fatalf("%d records", n)
	}
	if got[0].segment != 1 || got[1].segment != 2 || got[2].segment != 3 {
		t.Fatalf("segments %d %d %d", got[0].segment, got[1].segment, got[2].segment)
	}
}

func TestEmptyAndMissingDirectory(t *testing.T) {
	fsys := vfs.NewMem()
	if got, stats := replay(t, fsys); len(got) != 0 || stats != (ReplayStats{}) {
		t.Fatalf("%v %+v", got, stats)
	}
	closeLog(t, open(t, fsys, small))
	if got, stats := replay(t, fsys); len(got) != 0 || stats.Segments != 1 {
		t.Fatalf("%v %+v", got, stats)
	}
}

func TestRotateAndRelease(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	first, err := l.Rotate()
	if err != nil || first != 1 {
		t.Fatalf("rotating an empty segment: %d, %v", first, err)
	}
	l.Append(1, []byte("before"))
	second, err := l.Rotate()
	if err != nil || second != 2 {
		t.Fatal(second, err)
	}
	wait(t, l, l.Append(1, []byte("after")))
	if got, _ := replay(t, fsys); !slices.Equal(got, []entry{{1, 1, "before"}, {2, 1, "after"}}) {
		t.Fatal(got)
	}
	if err := l.Release(second); err != nil {
		t.Fatal(err)
	}
	if got, _ := replay(t, fsys); !slices.Equal(got, []entry{{2, 1, "after"}}) {
		t.Fatal(got)
	}
	third, err := l.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(third + 10); err != nil { // waits for the file of third; keeps it
		t.Fatal(err)
	}
	if got := listFiles(t, fsys); !slices.Equal(got, []string{third.FileName()}) {
		t.Fatal(got)
	}
	closeLog(t, l)
	closeLog(t, open(t, fsys, small))
}

func TestNumbersGoOnFrom(t *testing.T) {
	fsys := vfs.NewMem()
	l, err := Open(fsys, testDir, small, Options{From: 7})
	if err != nil {
		t.Fatal(err)
	}
	l.Append(1, []byte("a"))
	closeLog(t, l)
	got, _, err := replayWith(fsys, ReplayOptions{From: 7})
	if err != nil || !slices.Equal(got, []entry{{7, 1, "a"}}) {
		t.Fatal(got, err)
	}
}

// TestRecycle rewrites segments repeatedly and checks after each round that no former
// content of a file reappears.
func TestRecycle(t *testing.T) {
	fsys := vfs.NewMem()
	next := uint64(0)
	for round := range 20 {
		l := open(t, fsys, small)
		from := next
		for range 70 + round {
			l.Append(1, numbered(next, int(next%300)))
			next++
		}
		closeLog(t, l)
		got, stats := replay(t, fsys)
		if len(got) != int(next-from) || stats.CutBytes != 0 {
			t.Fatalf("round %d: %d records, %+v", round, len(got), stats)
		}
		for i, e := range got {
			if n, err := checkNumbered(e.payload); err != nil || n != from+uint64(i) {
				t.Fatalf("round %d: record %d at %d, %v", round, n, i, err)
			}
		}
		l = open(t, fsys, small)
		s, err := l.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(s); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		names := listFiles(t, fsys)
		free := 0
		for _, n := range names {
			if strings.HasSuffix(n, freeSuffix) {
				free++
			}
		}
		if free == 0 || free > small.RecycleSegments {
			t.Fatalf("round %d: %d free files of %v", round, free, names)
		}
	}
}

func TestConcurrentAppenders(t *testing.T) {
	for _, durability := range []string{Fsync, Interval} {
		t.Run(durability, func(t *testing.T) {
			fsys := vfs.NewMem()
			cfg := small
			cfg.Durability = durability
			l := open(t, fsys, cfg)
			const writers, each = 16, 200
			var order sync.Mutex // as the store's: place in the log and in memory agree
			next := uint64(0)
			var group sync.WaitGroup
			for range writers {
				group.Go(func() {
					for i := range each {
						if err := l.Reserve(context.Background(), 300); err != nil {
							t.Error(err)
							return
						}
						order.Lock()
						k := l.Append(1, numbered(next, i))
						next++
						order.Unlock()
						if err := l.Wait(context.Background(), k); err != nil {
							t.Error(err)
							return
						}
						if i%50 == 0 {
							if _, err := l.Rotate(); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			group.Wait()
			closeLog(t, l)
			got, _ := replay(t, fsys)
			if n := checkPrefix(t, got); n != writers*each {
				t.Fatalf("%d records", n)
			}
		})
	}
}

func TestIntervalSyncsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashable(t)
		cfg := small
		cfg.Durability, cfg.SyncInterval = Interval, 100*time.Millisecond
		l := open(t, fsys, cfg)
		for round := range uint64(3) {
			wait(t, l, l.Append(1, numbered(round, 10)))
			if got, _ := replay(t, fsys); len(got) != int(round)+1 {
				t.Fatal("not written when acknowledged")
			}
			time.Sleep(99 * time.Millisecond)
			synctest.Wait()
			if got, _ := replay(t, fsys.CrashClone(vfs.CrashCloneCfg{})); len(got) != int(round) {
				t.Fatalf("round %d: synced too early", round)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got, _ := replay(t, fsys.CrashClone(vfs.CrashCloneCfg{})); len(got) != int(round)+1 {
				t.Fatalf("round %d: not synced after the interval", round)
			}
			time.Sleep(time.Second)
		}
		closeLog(t, l)
	})
}

// Sync makes durable what was acknowledged before. The interval then starts again.
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := crashable(t)
		cfg := small
		cfg.Durability, cfg.SyncInterval = Interval, time.Second
		l := open(t, fsys, cfg)
		durable := func(want int) {
			t.Helper()
			synctest.Wait()
			if got, _ := replay(t, fsys.CrashClone(vfs.CrashCloneCfg{})); len(got) != want {
				t.Fatalf("%d records are durable, want %d", len(got), want)
			}
		}
		for round := range 3 {
			wait(t, l, l.Append(1, numbered(uint64(2*round), 10)))
			durable(2 * round)
			for range 2 { // the second time there is nothing to sync
				if err := l.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				durable(2*round + 1)
			}
			wait(t, l, l.Append(1, numbered(uint64(2*round+1), 10)))
			durable(2*round + 1)
			time.Sleep(1001 * time.Millisecond)
			durable(2*round + 2)
		}
		closeLog(t, l)
		if err := l.Sync(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// blockedFS blocks syncs until it is released.
type blockedFS struct {
	vfs.FS
	gate chan struct{}
}

type blockedFile struct {
	vfs.File
	gate chan struct{}
}

func (b blockedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := b.FS.Create(name, c)
	return blockedFile{f, b.gate}, err
}

func (b blockedFile) SyncData() error {
	<-b.gate
	return b.File.SyncData()
}

// A record is acknowledged once it is synced, not before.
func TestAcknowledged(t *testing.T) {
	gate := make(chan struct{})
	l := open(t, blockedFS{vfs.NewMem(), gate}, small)
	k := l.Append(1, []byte("x"))
	if l.Acknowledged(k) || !l.Acknowledged(Ticket{}) {
		t.Errorf("before the sync: %v, the zero ticket: %v", l.Acknowledged(k), l.Acknowledged(Ticket{}))
	}
	close(gate)
	wait(t, l, k)
	if !l.Acknowledged(k) || l.Acknowledged(Ticket{k.sequence + 1}) {
		t.Error("after the sync")
	}
}

// The memory of a large record is freed after it was written.
func TestLargeRecordLeavesNoMemory(t *testing.T) {
	l, err := Open(vfs.NewMem(), testDir, small, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, size := range []int{10, 64 * int(small.BufferBytes), 10, 10, 10} {
		if err := l.Wait(context.Background(), l.Append(1, make([]byte, size))); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := cap(l.filling.data); n > 2*int(small.BufferBytes) {
		t.Errorf("%d bytes are held, %d may wait to be written", n, small.BufferBytes)
	}
}

func TestReserveWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		registry := prometheus.NewRegistry()
		l, err := Open(blockedFS{vfs.NewMem(), gate}, testDir, small, Options{Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		var input *store.InputError
		if err := l.Reserve(ctx, maxRecordBytes+1); !errors.As(err, &input) || !strings.Contains(input.Reason, "at most 1073741824 bytes, got 1073741825") {
			t.Fatalf("got %v", err)
		}
		if err := l.Reserve(ctx, int(small.BufferBytes)+1); err != nil { // nothing is queued
			t.Fatal(err)
		}
		l.Append(1, make([]byte, small.BufferBytes/2))
		if err := l.Reserve(ctx, int(small.BufferBytes/2)-100); err != nil {
			t.Fatal(err)
		}
		l.Append(1, make([]byte, small.BufferBytes/2-100))

		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for _, n := range []int{1000, int(small.BufferBytes) + 1} {
			if err := l.Reserve(short, n); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
		}
		if err := l.Wait(short, l.Append(1, []byte("x"))); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		got := make(chan error)
		go func() { got <- l.Reserve(ctx, 1000) }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("room where there is none")
		default:
		}
		if n := metric(t, registry, "varve_wal_room_waits_total"); n != 3 {
			t.Fatalf("%v waits for room", n)
		}
		if n := metric(t, registry, "varve_wal_queued_bytes"); n < float64(small.BufferBytes)-100 {
			t.Fatalf("%v bytes queued", n)
		}
		close(gate)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		if families, err := registry.Gather(); err != nil || len(families) != 0 {
			t.Fatalf("%d metrics after Close, %v", len(families), err)
		}
	})
}

// TestParkTakesItsSignal: waiters are reused. A signal left in one would end the next
// wait before its record is synced.
func TestParkTakesItsSignal(t *testing.T) {
	l := open(t, vfs.NewMem(), small)
	defer closeLog(t, l)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	w := l.newWaiter(1)
	for range 1000 { // which of the two is seen first is chance
		list := []*waiter{w}
		wakeUpTo(&list, 1)
		err := l.park(ended, w, &list)
		if len(w.signal) > 0 {
			t.Fatalf("the waiter was given back with its signal, %v", err)
		}
		if err != nil {
			return
		}
	}
	t.Error("the end of the context was never seen first")
}

// metric returns a value, of a histogram its count.
func metric(t testing.TB, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	l, err := Open(vfs.NewMem(), testDir, small, Options{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 3 {
		wait(t, l, l.Append(1, make([]byte, 85)))
	}
	if _, err := l.Rotate(); err != nil {
		t.Fatal(err)
	}
	wait(t, l, l.Append(1, make([]byte, 85)))
	wait(t, l, l.Append(1, make([]byte, 85))) // the counters of the one before are in
	for name, want := range map[string]float64{
		"varve_wal_segments":       2,
		"varve_wal_disk_bytes":     2*segmentHeaderSize + 5*100,
		"varve_wal_failures_total": 0,
	} {
		if got := metric(t, registry, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if got := metric(t, registry, "varve_wal_records_total"); got < 4 || got > 5 {
		t.Errorf("%v records", got)
	}
	if got := metric(t, registry, "varve_wal_sync_seconds"); got != 5 {
		t.Errorf("%v syncs", got)
	}
}

func TestClose(t *testing.T) {
	fsys := vfs.NewMem()
	l := open(t, fsys, small)
	var tickets []Ticket
	for i := range uint64(50) {
		tickets = append(tickets, l.Append(1, numbered(i, 10)))
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, k := range tickets {
		wait(t, l, k)
	}
	wait(t, l, Ticket{})
	ctx := context.Background()
	if err := l.Wait(ctx, l.Append(1, []byte("late"))); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if err := l.Reserve(ctx, 1); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Reserve: %v", err)
	}
	if _, err := l.Rotate(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Rotate: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	got, _ := replay(t, fsys)
	if n := checkPrefix(t, got); n != 50 {
		t.Fatalf("%d records", n)
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (Config{}).Validate(); err != nil {
		t.Fatal(err)
	}
	bad := Config{"sometimes", -1, 1, 2 * units.GiB, -1}
	err := bad.Validate()
	for _, key := range []string{"durability", "sync_interval", "segment_bytes", "buffer_bytes", "recycle_segments"} {
		if !strings.Contains(err.Error(), key+":") {
			t.Errorf("%s is not in %v", key, err)
		}
	}
	if _, err := Open(vfs.NewMem(), testDir, bad, Options{}); err == nil {
		t.Error("opened with bad settings")
	}
}
