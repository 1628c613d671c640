package writelog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskspace"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/wal"
)

// tenant is a minimal user of a log: it remembers the times that it has applied.
type tenant struct {
	*Log
	series  *registry.Registry
	applied []int64 // guarded by Order
}

func newTenant(t *testing.T, fs vfs.FS) *tenant {
	t.Helper()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	n := &tenant{series: registry.New()}
	n.Log = New(Options{
		FS: fs, Dir: "data/log", DataDir: "data", Config: wal.DefaultConfig(), Series: n.series, Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), // a log that replaces another one can only be opened once that one is closed
		Disk:       &diskspace.Guard{Owner: "the tenant", WayOut: "none", Refused: func() {}},
		Final:      "the tenant is done",
	})
	return n
}

// open opens the log after the replayed segments.
func (n *tenant) open(t *testing.T) *tenant {
	t.Helper()
	if err := n.Open(0); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *tenant) put(ctx context.Context, ref store.Ref, ms int64) error {
	b := store.Batch{}
	b.Reset(n.series.Epoch())
	b.AddLong(ref, ms, ms, 0)
	return n.Append(ctx, &b, func(e *Encoder) (Entry, error) {
		e.Define = n.series.Introduce(e.Define[:0], b.Samples)
		last, _ := n.AppendBatch(record.TypeBatch, []byte{'p'}, e.Define, e.Samples)
		n.applied = append(n.applied, ms)
		return last, nil
	})
}

// replayed returns the times of all samples in the log, in its order.
func replayed(t *testing.T, fs vfs.FS) (times []int64) {
	t.Helper()
	n := newTenant(t, fs)
	var b store.Batch
	var kinds []model.Kind
	define := func(d record.Definition, _ model.Series) error { n.series.Restore(d); return nil }
	_, err := wal.Replay(fs, "data/log", wal.ReplayOptions{}, func(_ wal.Segment, typ byte, payload []byte) (err error) {
		if typ != record.TypeBatch {
			return UnknownType(typ)
		}
		if payload[0] != 'p' {
			t.Errorf("a record begins with %q, want the prefix", payload[0])
		}
		kinds, err = n.Decode(payload[1:], &b, kinds[:0], define, n.series.DecodeSamples)
		for _, s := range b.Samples {
			times = append(times, s.TimeMS)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return times
}

func sameTimes(t *testing.T, got, want []int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("sample %d has the time %d, want %d", i, got[i], want[i])
		}
	}
}

// TestOrder: concurrent writers are applied in the order in which a replay finds them.
func TestOrder(t *testing.T) {
	mem, ctx := vfs.NewMem(), context.Background()
	n := newTenant(t, mem).open(t)
	ref, err := n.Refs().Create(ctx, model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for w := range int64(8) {
		writers.Go(func() {
			for i := range int64(50) {
				if err := n.put(ctx, ref, w*1000+i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	if err := errors.Join(n.Shut(), n.Close()); err != nil {
		t.Fatal(err)
	}
	sameTimes(t, replayed(t, mem), n.applied)
}

// TestManyDefinitions: series that do not fit into one record are logged before it, and
// all of them count in the bytes of the batch.
func TestManyDefinitions(t *testing.T) {
	mem := vfs.NewMem()
	n := newTenant(t, mem).open(t)
	var define []record.Definition
	for id := range model.SeriesNumber(5) {
		series := model.Series{Metric: strings.Repeat("m", 1<<19) + string(rune('a'+id)), Type: model.TypeLong, Tags: model.MustTags("a", "b")}
		define = append(define, record.Definition{ID: id, Key: string(series.AppendKey(nil))})
	}
	n.Order.Lock()
	last, bytes := n.AppendBatch(record.TypeBatch, []byte{'p'}, define, nil)
	n.Order.Unlock()
	if err := errors.Join(n.Wait(t.Context(), last), n.Close()); err != nil {
		t.Fatal(err)
	}
	var records, took int64
	_, err := wal.Replay(mem, "data/log", wal.ReplayOptions{}, func(_ wal.Segment, _ byte, payload []byte) error {
		records++
		took += wal.RecordOverhead + int64(len(payload))
		return nil
	})
	if err != nil || records < 3 || took != bytes {
		t.Errorf("%d records of %d bytes, counted %d: %v", records, took, bytes, err)
	}
	sameTimes(t, replayed(t, mem), nil)
}

// TestReopen: a log that failed for lack of space refuses writes until there is space.
// Then begin may log again what was lost, before any other write. Acknowledged records
// are there.
func TestReopen(t *testing.T) {
	mem, ctx := vfs.NewMem(), context.Background()
	var full atomic.Bool
	n := newTenant(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	})))
	var logged bytes.Buffer
	n.options.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	n.open(t)
	ref, err := n.Refs().Create(ctx, model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.put(ctx, ref, 1); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	var unavailable *store.UnavailableError
	if err := n.put(ctx, ref, 2); !errors.As(err, &unavailable) || !strings.Contains(unavailable.Reason, "the disk is full") {
		t.Fatalf("on a full disk: %v", err)
	}
	if n.Writable() == nil || n.Failure() != nil {
		t.Errorf("writable %v, failed %v; want that writes are refused for a while", n.Writable(), n.Failure())
	}
	reopen := func() error {
		return n.Reopen(ctx, 0, func(first wal.Segment) (Entry, error) {
			b := store.Batch{}
			b.Reset(n.series.Epoch())
			b.AddLong(ref, 3, 3, 0)
			var e Encoder
			if err := e.Encode(n.series, &b); err != nil {
				return Entry{}, err
			}
			last, _ := n.AppendBatch(record.TypeBatch, []byte{'p'}, nil, e.Samples)
			return last, nil
		})
	}
	if n.LookAtSpace(reopen) || n.Writable() == nil {
		t.Error("writes are taken while the disk is full")
	}
	full.Store(false)
	if !n.LookAtSpace(reopen) || n.Writable() != nil {
		t.Errorf("there is space: %v", n.Writable())
	}
	if err := errors.Join(n.put(ctx, ref, 4), n.Close()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(logged.String(), "no more writes are accepted") {
		t.Errorf("a full disk is logged as a final failure, with each attempt: %s", &logged)
	}
	times := replayed(t, mem)
	if len(times) == 4 && times[1] == 2 { // the one that failed may be there
		times = append(times[:1], times[2:]...)
	}
	sameTimes(t, times, []int64{1, 3, 4})
}

// TestFinalFailure: after any other failure all writes are refused with the first
// error. A log that was shut returns ErrClosed instead.
func TestFinalFailure(t *testing.T) {
	mem, ctx := vfs.NewMem(), context.Background()
	var broken atomic.Bool
	n := newTenant(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))).open(t)
	ref, err := n.Refs().Create(ctx, model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	const reason = "the write-ahead log failed; the tenant is done"
	var unavailable *store.UnavailableError
	if err := n.put(ctx, ref, 1); !errors.As(err, &unavailable) || unavailable.Reason != reason || !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("a failed write: %v", err)
	}
	if err := n.Fail("another failure", errors.New("later")); !errors.Is(err, errorfs.ErrInjected) || n.Writable() != err {
		t.Errorf("another failure: %v, and writes are refused for %v", err, n.Writable())
	}
	if n.Shut() != nil || n.Shut() != store.ErrClosed || n.CheckOpen(ctx) != store.ErrClosed {
		t.Error("a log that was shut is not closed")
	}
	if err := n.put(ctx, ref, 2); err != store.ErrClosed {
		t.Errorf("after Shut: %v", err)
	}
	if n.Close() == nil {
		t.Error("closing a failed log does not tell")
	}
}
