package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/store"
	"varve/internal/units"
)

// history is what a caller knows about its log: the durable segment to replay from,
// with the number of its first record, and which records were acknowledged. Records are
// numbered in the order of Append.
type history struct {
	mu    sync.Mutex
	from  Segment
	first uint64
	next  uint64
	acked uint64 // all records before this one
}

// check replays and returns how far the log reaches.
func (h *history) check(t *testing.T, fsys vfs.FS, durable bool) uint64 {
	t.Helper()
	got, stats, err := replayWith(fsys, ReplayOptions{From: h.from})
	if err != nil {
		t.Fatalf("%v; %+v", err, stats)
	}
	reached := h.first
	for _, e := range got {
		n, err := checkNumbered(e.payload)
		if err != nil {
			t.Fatal(err)
		}
		if n != reached {
			t.Fatalf("record %d after %d", n, reached)
		}
		reached++
	}
	if reached > h.next {
		t.Fatalf("record %d was never appended, only %d", reached, h.next)
	}
	if durable && reached < h.acked {
		t.Fatalf("lost records %d to %d, which were acknowledged; %+v", reached, h.acked, stats)
	}
	return reached
}

// write appends, waits, rotates and releases until the log fails or count
// records are appended.
func (h *history) write(l *Log, r *rand.Rand, count int) error {
	ctx := context.Background()
	for range count {
		h.mu.Lock()
		n := h.next
		k := l.Append(1, numbered(n, r.IntN(900)))
		h.next++
		h.mu.Unlock()
		if r.IntN(3) == 0 {
			if err := l.Wait(ctx, k); err != nil {
				return err
			}
			h.mu.Lock()
			h.acked = max(h.acked, n+1)
			h.mu.Unlock()
		}
		if r.IntN(25) == 0 {
			if err := h.checkpoint(l, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *history) checkpoint(l *Log, r *rand.Rand) error {
	h.mu.Lock()
	s, err := l.Rotate()
	if err != nil {
		h.mu.Unlock()
		return err
	}
	if r.IntN(2) == 0 {
		h.mu.Unlock()
		return nil
	}
	h.from, h.first = s, h.next // as if a checkpoint up to here were durable
	h.mu.Unlock()
	return l.Release(s)
}

// TestPowerCuts cuts power at random points during writes, repeatedly on the same log.
func TestPowerCuts(t *testing.T) {
	for _, durability := range []string{Fsync, Interval} {
		for _, segment := range []units.Bytes{4 * units.KiB, 64 * units.KiB} { // one page, and many
			t.Run(fmt.Sprintf("%s/%v", durability, segment), func(t *testing.T) {
				cfg := small
				cfg.Durability, cfg.SegmentBytes = durability, segment
				for seed := range uint64(30) {
					powerCuts(t, cfg, seed)
				}
			})
		}
	}
}

// TestReplayedIsDurableAfterOpen kills a process that has written but not synced. What
// the next process replays and builds upon must survive a later power cut.
func TestReplayedIsDurableAfterOpen(t *testing.T) {
	fsys := crashable(t)
	cfg := small
	cfg.Durability, cfg.SyncInterval = Interval, time.Minute
	killed := open(t, fsys, cfg)
	wait(t, killed, killed.Append(1, numbered(0, 10)))
	if got, _ := replay(t, fsys); checkPrefix(t, got) != 1 {
		t.Fatal("not written")
	}
	l := open(t, fsys, small)
	wait(t, l, l.Append(1, numbered(1, 10)))
	got, _ := replay(t, fsys.CrashClone(vfs.CrashCloneCfg{}))
	if n := checkPrefix(t, got); n != 2 {
		t.Fatalf("%d records", n)
	}
}

func powerCuts(t *testing.T, cfg Config, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	fsys := crashable(t)
	h := &history{}
	for range 6 {
		l, err := Open(fsys, testDir, cfg, Options{From: h.from, step: int64(seed % 2 << 10)}) // zeros ahead, or none
		if err != nil {
			t.Fatal(err)
		}
		until := h.next + uint64(r.IntN(100))
		var group sync.WaitGroup
		writers := rand.New(rand.NewPCG(seed, 2))
		group.Go(func() { _ = h.write(l, writers, 100) })
		h.awaitAppended(until)

		h.mu.Lock() // power is cut here; what is known then is what counts
		atCut := history{from: h.from, first: h.first, next: h.next, acked: h.acked}
		cut := fsys.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r})
		atCut.next = h.next
		h.mu.Unlock()
		group.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		h.check(t, fsys, true)

		reached := atCut.check(t, cut, cfg.Durability == Fsync)
		fsys, h = cut, &history{from: atCut.from, first: atCut.first, next: reached, acked: reached}
	}
}

// awaitAppended waits until the records before next are appended.
func (h *history) awaitAppended(next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.next < next {
		h.mu.Unlock()
		runtime.Gosched()
		h.mu.Lock()
	}
}

// TestErrorAtEachFileOperation lets the first, second, third ... operation fail, until
// a run has fewer operations.
func TestErrorAtEachFileOperation(t *testing.T) {
	for _, durability := range []string{Fsync, Interval} {
		t.Run(durability, func(t *testing.T) {
			cfg := small
			cfg.Durability = durability
			for n := int32(0); ; n++ {
				if !errorAt(t, cfg, n) {
					if n < 50 {
						t.Fatalf("only %d operations", n)
					}
					return
				}
			}
		})
	}
}

func errorAt(t *testing.T, cfg Config, n int32) (injected bool) {
	base := crashable(t)
	index := errorfs.OnIndex(n)
	injector := &errorfs.Counter{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFilePreallocate {
			return nil // a file system may not know how to
		}
		return index.MaybeError(op)
	})}
	fsys := errorfs.Wrap(base, injector)
	h := &history{}
	l, err := Open(fsys, testDir, cfg, Options{step: 1 << 10}) // so that zeros are written ahead
	if err != nil {
		if injector.Load() == 0 {
			t.Fatal(err)
		}
		return true
	}
	err = h.write(l, rand.New(rand.NewPCG(7, 7)), 150)
	failure := l.Err()
	closeErr := l.Close()
	if injector.Load() == 0 {
		if err != nil || closeErr != nil {
			t.Fatalf("without an injected error: %v, %v", err, closeErr)
		}
		return false
	}
	if err == nil && closeErr == nil {
		t.Fatalf("operation %d failed, and nobody was told: %v", n, injector.LastError())
	}
	if closeErr != nil {
		checkFailed(t, l, closeErr)
	}
	if failure != nil && !errors.Is(closeErr, failure) {
		t.Fatalf("operation %d: failed with %v, closed with %v", n, failure, closeErr)
	}

	// Acknowledged records are there, now and after a power cut.
	cut := base.CrashClone(vfs.CrashCloneCfg{})
	h.check(t, base, true)
	h.check(t, cut, cfg.Durability == Fsync)
	again, err := Open(base, testDir, cfg, Options{From: h.from})
	if err != nil {
		t.Fatal(err)
	}
	h.acked = h.check(t, base, true)
	h.next = h.acked
	if err := h.write(again, rand.New(rand.NewPCG(8, 8)), 20); err != nil {
		t.Fatal(err)
	}
	closeLog(t, again)
	h.check(t, base, true)
	return true
}

func checkFailed(t *testing.T, l *Log, want error) {
	t.Helper()
	var unavailable *store.UnavailableError
	if !errors.As(want, &unavailable) || !errors.Is(want, errorfs.ErrInjected) {
		t.Fatalf("failed with %v", want)
	}
	select {
	case <-l.Failed():
	default:
		t.Fatal("Failed is not closed")
	}
	ctx := context.Background()
	_, rotate := l.Rotate()
	for what, err := range map[string]error{
		"Wait": l.Wait(ctx, l.Append(1, []byte("late"))), "Reserve": l.Reserve(ctx, 1),
		"Rotate": rotate, "Err": l.Err(), "Close": l.Close(),
	} {
		if !errors.Is(err, want) {
			t.Fatalf("%s after the failure: %v", what, err)
		}
	}
}

// TestReadErrorsAreNotDamage lets each operation of a replay fail.
func TestReadErrorsAreNotDamage(t *testing.T) {
	base := crashable(t)
	l := open(t, base, small)
	if err := (&history{}).write(l, rand.New(rand.NewPCG(1, 1)), 60); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	for n := int32(0); ; n++ {
		injector := &errorfs.Counter{Injector: errorfs.OnIndex(n)}
		_, stats, err := replayWith(errorfs.Wrap(base, injector), ReplayOptions{})
		if injector.Load() == 0 {
			if err != nil || n < 10 {
				t.Fatal(n, err)
			}
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) || isDamage(err) {
			t.Fatalf("operation %d: %v, %+v", n, err, stats)
		}
	}
}

// TestReadErrorsBehindDamage lets each operation fail of a replay that skips damage,
// and of opening a log. Both search for records after the damage, in several windows,
// and one record is larger than a window.
func TestReadErrorsBehindDamage(t *testing.T) {
	base := crashable(t)
	cfg := Config{SegmentBytes: 4 * units.MiB, BufferBytes: 4 * units.MiB}
	l := open(t, base, cfg)
	for n, length := range []int{100, 2 * windowBytes, 100, windowBytes / 2, windowBytes / 2, 2 * windowBytes} {
		wait(t, l, l.Append(1, numbered(uint64(n), length)))
	}
	left := base.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}) // not closed, so not sealed
	closeLog(t, l)
	b := readFile(t, left, 1)
	b[segmentHeaderSize+recordHeaderSize+50]++
	b[segmentHeaderSize+2*recordHeaderSize+108+windowBytes]++
	writeFile(t, left, Segment(1).FileName(), b)
	for n := range 3 { // more than are kept
		writeFile(t, left, fmt.Sprintf("%010d%s", 7+n, freeSuffix), make([]byte, 100))
	}
	if got, stats, err := replayWith(left, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }}); err != nil || len(got) != 4 {
		t.Fatalf("%d records, %+v, %v", len(got), stats, err)
	}

	for name, run := range map[string]func(vfs.FS) error{
		"replay": func(fsys vfs.FS) error {
			_, _, err := replayWith(fsys, ReplayOptions{OnDamage: func(*store.CorruptionError) bool { return true }})
			return err
		},
		"open": func(fsys vfs.FS) error {
			l, err := Open(fsys, testDir, cfg, Options{})
			if err != nil {
				return err
			}
			return l.Close()
		},
	} {
		for n := int32(0); ; n++ {
			index := errorfs.OnIndex(n)
			injector := &errorfs.Counter{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFilePreallocate {
					return nil // a file system may not know how to
				}
				return index.MaybeError(op)
			})}
			disk := left.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			err := run(errorfs.Wrap(disk, injector))
			if injector.Load() == 0 {
				if err != nil || n < 8 {
					t.Fatalf("%s, %d operations: %v", name, n, err)
				}
				break
			}
			if !errors.Is(err, errorfs.ErrInjected) || isDamage(err) {
				t.Fatalf("%s, operation %d: %v", name, n, err)
			}
		}
	}
}

// TestFullDiskIsFoundBeforeWriting: a record that does not fit completely is not begun.
func TestFullDiskIsFoundBeforeWriting(t *testing.T) {
	base := crashable(t)
	var full atomic.Bool
	var written atomic.Int32
	l := open(t, errorfs.Wrap(base, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case !full.Load():
		case op.Kind == errorfs.OpFilePreallocate:
			return syscall.ENOSPC
		case op.Kind == errorfs.OpFileWrite:
			written.Add(1)
		}
		return nil
	})), DefaultConfig())
	wait(t, l, l.Append(1, []byte("fits")))
	full.Store(true)
	wait(t, l, l.Append(1, []byte("has its place reserved")))
	before := written.Load()
	err := l.Wait(t.Context(), l.Append(1, make([]byte, 2*reserveStep)))
	if !NoSpace(err) || !strings.Contains(err.Error(), "reserve 2097152 bytes for log segment 1") {
		t.Errorf("append to a full disk: %v", err)
	}
	if n := written.Load() - before; n != 0 {
		t.Errorf("%d writes of a record that does not fit", n)
	}
}

// TestZerosAhead: a busy segment has zeros after its records, up to the end of the
// reserved space, and they are not records. A small segment has none, nor has a log
// that syncs by time.
func TestZerosAhead(t *testing.T) {
	const step = 1 << 10
	for _, test := range []struct {
		durability     string
		records        int // of 100 bytes, with a header of 15
		zerosFrom, end int
	}{
		{Fsync, 8, 0, segmentHeaderSize + 8*115},
		{Fsync, 9, segmentHeaderSize + 9*115, 2 * step},
		{Fsync, 18, segmentHeaderSize + 18*115, 3 * step},
		{Interval, 9, 0, segmentHeaderSize + 9*115},
	} {
		cfg := small
		cfg.Durability = test.durability
		fsys := crashable(t)
		l, err := Open(fsys, testDir, cfg, Options{step: step})
		if err != nil {
			t.Fatal(err)
		}
		for range test.records {
			wait(t, l, l.Append(1, bytes.Repeat([]byte{0xee}, 100)))
		}
		died := fsys.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		closeLog(t, l)
		b := readFile(t, died, 1)
		if len(b) != test.end {
			t.Errorf("%s, %d records: %d bytes, want %d", test.durability, test.records, len(b), test.end)
		} else if from := test.zerosFrom; from > 0 && (b[from-1] != 0xee || bytes.Count(b[from:], []byte{0}) != test.end-from) {
			t.Errorf("%s, %d records: not zeros from %d on: %x", test.durability, test.records, from, b[from-1:])
		}
		if got, stats := replay(t, died); len(got) != test.records || stats.CutBytes != 0 {
			t.Errorf("%s: %d of %d records, %+v", test.durability, len(got), test.records, stats)
		}
	}
}

// TestAppendOfReservedTypes: a record of the log's own types would end a segment.
func TestAppendOfReservedTypes(t *testing.T) {
	l := open(t, vfs.NewMem(), small)
	for _, typ := range []byte{typeNone, typeSeal} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("record of type %d was taken", typ)
				}
			}()
			l.Append(typ, []byte("x"))
		}()
	}
}
