package writelog

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

var aLong = model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")}

// TestRefusedBatches: a refused batch is neither applied nor logged, and its sender
// gets the reason.
func TestRefusedBatches(t *testing.T) {
	ctx := t.Context()
	errCheck, errApply := errors.New("not storable"), errors.New("not applicable")
	n := newTenant(t, vfs.NewMem()).open(t)
	text := mustCreate(t, n.series, model.Series{Metric: "text", Type: model.TypeString, Tags: model.MustTags("a", "b")})
	n.options.Check = func(b *store.Batch, kinds []model.Kind) error {
		if len(b.Samples) != len(kinds) || kinds[0] != model.String {
			t.Errorf("%d samples of the kinds %v are checked", len(b.Samples), kinds)
		}
		if b.Samples[0].TimeMS < 0 {
			return errCheck
		}
		return nil
	}
	for _, c := range []struct {
		name  string
		epoch uint64
		ms    int64
		bytes int
		apply error
		is    error // nil: a *store.LimitError
		calls int   // of apply
	}{
		{"another epoch", 1, 1, 1, nil, store.ErrStale, 0},
		{"too large", 0, 1, MaxBatchBytes, nil, nil, 0},
		{"checked", 0, -1, 1, nil, errCheck, 0},
		{"not applied", 0, 1, 1, errApply, errApply, 1},
	} {
		b := store.Batch{}
		b.Reset(n.series.Epoch() + c.epoch)
		b.AddBytes(text, c.ms, []byte(strings.Repeat("x", c.bytes)), 0)
		calls := 0
		err := n.Append(ctx, &b, func(e *Encoder) (Entry, error) {
			calls++
			if c.apply != nil {
				return Entry{}, c.apply
			}
			last, _ := n.AppendBatch('?', nil, nil, e.Samples)
			return last, nil
		})
		var limit *store.LimitError
		if c.is == nil && !errors.As(err, &limit) || c.is != nil && !errors.Is(err, c.is) || calls != c.calls {
			t.Errorf("%s: %v, applied %d times", c.name, err, calls)
		}
	}
	if err := n.Writable(); err != nil {
		t.Errorf("writes are refused for the fault of a sender: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestForgottenWhileItWaits: a batch whose series was forgotten after it was encoded is not applied.
func TestForgottenWhileItWaits(t *testing.T) {
	n := newTenant(t, vfs.NewMem()).open(t)
	ref := mustCreate(t, n.series, aLong)
	n.options.Check = func(*store.Batch, []model.Kind) error {
		n.series.Forget([]model.SeriesNumber{model.SeriesNumber(ref)})
		return nil
	}
	if err := n.put(t.Context(), ref, 1); err != store.ErrStale || len(n.applied) != 0 {
		t.Errorf("%v, applied are %v", err, n.applied)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsAppliedToAFailedLog: memory does not change once the log has failed, or is closed.
func TestNothingIsAppliedToAFailedLog(t *testing.T) {
	ctx := t.Context()
	var broken atomic.Bool
	n := newTenant(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpFileWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))).open(t)
	ref := mustCreate(t, n.series, aLong)
	if err := n.put(ctx, ref, 1); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for ms := range int64(3) {
		if err := n.put(ctx, ref, 2+ms); !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("a failed log: %v", err)
		}
	}
	if !slices.Equal(n.applied, []int64{1, 2}) {
		t.Errorf("applied are %v, want nothing behind the failure", n.applied)
	}
	_ = n.Close()

	n = newTenant(t, vfs.NewMem()).open(t)
	ref = mustCreate(t, n.series, aLong)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.put(ctx, ref, 1); err != store.ErrClosed || len(n.applied) != 0 {
		t.Errorf("a closed log: %v, applied are %v", err, n.applied)
	}
}

// TestRefs: references are those of the registry. A closed store, or a request that has
// ended, creates no series, and samples of unknown series or of another epoch have no
// kinds.
func TestRefs(t *testing.T) {
	n := newTenant(t, vfs.NewMem()).open(t)
	refs := n.Refs()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	key := aLong.AppendKey(nil)
	if _, err := refs.Create(ended, aLong); !errors.Is(err, context.Canceled) || refs.SeriesCount() != 0 {
		t.Errorf("for a sender that has left: %v, %d series", err, refs.SeriesCount())
	}
	if _, found := refs.Lookup(key); found {
		t.Error("a series is found that does not exist")
	}
	ref, err := refs.Create(t.Context(), aLong)
	if err != nil {
		t.Fatal(err)
	}
	if got, found := refs.Lookup(key); !found || got != ref || refs.SeriesCount() != 1 {
		t.Errorf("found %v %d, created %d, %d series", found, got, ref, refs.SeriesCount())
	}
	kinds := func(epoch uint64, ref store.Ref) ([]model.Kind, error) {
		b := store.Batch{}
		b.Reset(epoch)
		b.AddLong(ref, 1, 1, 0)
		return refs.Kinds(nil, &b)
	}
	if got, err := kinds(refs.Epoch(), ref); err != nil || !slices.Equal(got, []model.Kind{model.Long}) {
		t.Errorf("kinds %v, %v", got, err)
	}
	if _, err := kinds(refs.Epoch()+1, ref); err != store.ErrStale {
		t.Errorf("kinds in another epoch: %v", err)
	}
	if _, err := kinds(refs.Epoch(), ref+1); err != store.ErrStale {
		t.Errorf("kinds of an unknown series: %v", err)
	}
	if err := errors.Join(n.Shut(), n.Close()); err != nil {
		t.Fatal(err)
	}
	other := aLong
	other.Metric = "other"
	if _, err := refs.Create(t.Context(), other); err != store.ErrClosed || refs.SeriesCount() != 1 {
		t.Errorf("after Shut: %v, %d series", err, refs.SeriesCount())
	}
}

// TestDurable: after Durable, a power cut loses no acknowledged record, also with durability
// interval. Durable returns why writes are refused, and the failure of the sync.
func TestDurable(t *testing.T) {
	ctx := t.Context()
	var broken atomic.Bool
	mem := vfs.NewCrashableMem()
	n := newTenant(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) {
			return errorfs.ErrInjected
		}
		return nil
	})))
	root, err := mem.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		t.Fatal(err)
	}
	n.options.Config.Durability, n.options.Config.SyncInterval = wal.Interval, time.Minute
	n.open(t)
	ref := mustCreate(t, n.series, aLong)
	if err := n.put(ctx, ref, 1); err != nil {
		t.Fatal(err)
	}
	sameTimes(t, replayed(t, mem.CrashClone(vfs.CrashCloneCfg{})), nil)
	if err := n.Durable(); err != nil {
		t.Fatal(err)
	}
	sameTimes(t, replayed(t, mem.CrashClone(vfs.CrashCloneCfg{})), []int64{1})
	n.options.Disk.Block(syscall.ENOSPC)
	if err := n.Durable(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("while the disk is full: %v", err)
	}
	if !n.LookAtSpace(nil) || n.Durable() != nil {
		t.Errorf("there is space: %v", n.Writable())
	}
	if err := n.put(ctx, ref, 2); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := n.Durable(); !errors.Is(err, errorfs.ErrInjected) || n.Failure() == nil {
		t.Errorf("a failed sync: %v, failure %v", err, n.Failure())
	}
	_ = n.Close()
}

// TestReadOnly: a read-only log refuses writes, with the given reason.
func TestReadOnly(t *testing.T) {
	n := newTenant(t, vfs.NewMem())
	n.ReadOnly("the directory is only read")
	var unavailable *store.UnavailableError
	if err := n.Writable(); !errors.As(err, &unavailable) || unavailable.Reason != "the directory is only read" || n.Failure() != err {
		t.Errorf("writes are refused for %v, failed %v", err, n.Failure())
	}
	if n.Full() || n.Current() != nil || n.Close() != nil {
		t.Error("there is a log before Open")
	}
}

// TestFullBeforeAnybodyWrites: writes are refused once the log has found the disk full,
// even if no writer has waited for it.
func TestFullBeforeAnybodyWrites(t *testing.T) {
	var full atomic.Bool
	n := newTenant(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))).open(t)
	full.Store(true)
	n.AppendRecord('?', nil)
	<-n.Current().Failed()
	stays := errors.New("no space yet")
	if n.LookAtSpace(func() error { return stays }) {
		t.Error("writes are taken")
	}
	var unavailable *store.UnavailableError
	if err := n.Writable(); !errors.As(err, &unavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writes are refused for %v", err)
	}
	_ = n.Close()
}

// TestDecodeTellsDamage: a replay ends at a record with an invalid key, a series that
// cannot be defined, samples that cannot be decoded, or samples of an unknown series.
func TestDecodeTellsDamage(t *testing.T) {
	n := newTenant(t, vfs.NewMem())
	ref := mustCreate(t, n.series, aLong)
	define := func(key string) []byte {
		return record.AppendDefinitions(nil, []record.Definition{{ID: model.SeriesNumber(ref), Key: key}})
	}
	batch := func(refs ...store.Ref) []byte {
		b := store.Batch{}
		for _, ref := range refs {
			b.AddLong(ref, 1, 1, 0)
		}
		return record.AppendSamples(nil, &b, slices.Repeat([]model.Kind{model.Long}, len(refs)))
	}
	good := string(aLong.AppendKey(nil))
	errDefine, errSamples := errors.New("no definition"), errors.New("no samples")
	for _, c := range []struct {
		name            string
		payload         []byte
		define, samples error
		want            string // of the error; empty: none
	}{
		{"good", slices.Concat(define(good), batch(ref)), nil, nil, ""},
		{"no key", slices.Concat(define("?"), batch(ref)), nil, nil, "key"},
		{"not defined", slices.Concat(define(good), batch(ref)), errDefine, nil, "no definition"},
		{"no samples", slices.Concat(define(good), batch(ref)), nil, errSamples, "no samples"},
		{"unknown series", slices.Concat(define(good), batch(ref, ref+1)), nil, nil, "sample of an unknown series"},
	} {
		var b store.Batch
		kinds, err := n.Decode(c.payload, &b, nil,
			func(record.Definition, model.Series) error { return c.define },
			func(payload []byte, b *store.Batch) error {
				if c.samples != nil {
					return c.samples
				}
				return record.Samples(payload, func(model.SeriesNumber) model.Kind { return model.Long }, b)
			})
		if c.want == "" && (err != nil || !slices.Equal(kinds, []model.Kind{model.Long}) || len(b.Samples) != 1) {
			t.Errorf("%s: kinds %v, %v", c.name, kinds, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOpenFull: a log that cannot be opened on a full disk refuses writes until there
// is space. A failure of another kind meanwhile is an error.
func TestOpenFull(t *testing.T) {
	for _, opened := range []bool{false, true} {
		mem, ctx := vfs.NewMem(), t.Context()
		var broken atomic.Pointer[error]
		fail := func(err error) { broken.Store(&err) }
		n := newTenant(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			err := broken.Load()
			if err == nil || *err == nil || op.Kind == errorfs.OpFileClose {
				return nil
			}
			if *err == syscall.ENOSPC && op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			return *err
		})))
		if opened {
			n.open(t)
		}
		fail(syscall.ENOSPC)
		var failure error
		if opened {
			last := n.AppendRecord('?', nil)
			failure = last.Wait(ctx)
		} else {
			failure = n.Open(0)
		}
		if !wal.NoSpace(failure) {
			t.Fatalf("opened %v: on a full disk: %v", opened, failure)
		}
		fail(errorfs.ErrInjected)
		if err := n.OpenFull(failure); !errors.Is(err, errorfs.ErrInjected) || n.Writable() != nil {
			t.Errorf("opened %v: on a disk that is broken: %v, writes are refused for %v", opened, err, n.Writable())
		}
		fail(nil)
		if err := n.OpenFull(failure); err != nil || !n.Full() {
			t.Fatalf("opened %v: %v, full %v", opened, err, n.Full())
		}
		var unavailable *store.UnavailableError
		if !errors.As(n.Writable(), &unavailable) || !strings.Contains(unavailable.Reason, "the disk is full") || n.Failure() != nil {
			t.Errorf("opened %v: writes are refused for %v, failed %v", opened, n.Writable(), n.Failure())
		}
		ref := mustCreate(t, n.series, aLong)
		if err := n.put(ctx, ref, 1); !errors.As(err, &unavailable) || len(n.applied) != 0 {
			t.Errorf("opened %v: a write on a full disk: %v, applied are %v", opened, err, n.applied)
		}
		errBegin := errors.New("no begin")
		begin := func(err error) func() error {
			return func() error {
				return n.Reopen(ctx, 0, func(wal.Segment) (Entry, error) { return Entry{}, err })
			}
		}
		if n.LookAtSpace(begin(errBegin)) || n.Writable() == nil || !n.Full() {
			t.Errorf("opened %v: writes are taken by a log that could not begin", opened)
		}
		if !n.LookAtSpace(begin(nil)) || n.Full() {
			t.Errorf("opened %v: there is space, and writes are refused for %v", opened, n.Writable())
		}
		if err := errors.Join(n.put(ctx, ref, 2), n.Close()); err != nil {
			t.Fatal(err)
		}
		sameTimes(t, replayed(t, mem), []int64{2})
	}
}

// TestNoRoomBesideAWorkingLog: if OpenFull cannot remove the segments of a log, it does
// not replace the log and returns the failure.
func TestNoRoomBesideAWorkingLog(t *testing.T) {
	n := newTenant(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove {
			return errorfs.ErrInjected
		}
		return nil
	}))).open(t)
	before := n.Current()
	if err := n.OpenFull(syscall.ENOSPC); !errors.Is(err, errorfs.ErrInjected) || n.Current() != before || n.Writable() != nil {
		t.Errorf("%v, another log %v, writes are refused for %v", err, n.Current() != before, n.Writable())
	}
}

// TestLogThatFailsAtOnce: a new log that has failed before its first use does not
// replace the old one, and nothing is logged again.
func TestLogThatFailsAtOnce(t *testing.T) {
	n := newTenant(t, vfs.NewMem()).open(t)
	before := n.Current()
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	fresh, err := n.Log.open(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = n.replace(fresh, func(wal.Segment) (Entry, error) {
		t.Error("something is logged again")
		return Entry{}, nil
	})
	if !errors.Is(err, store.ErrClosed) || n.Current() != before {
		t.Errorf("%v, another log %v", err, n.Current() != before)
	}
}

// TestUnknownType: the error of a record of another build names its type.
func TestUnknownType(t *testing.T) {
	if err := UnknownType(200); err == nil || err.Error() != "log record of unknown type 200: use a newer build" {
		t.Error(err)
	}
}

// TestErrorsOfTheLog: whether the caller or the log is at fault depends on the kind of
// the error. The end of a request, and a record that cannot be written, do not end the
// log.
func TestErrorsOfTheLog(t *testing.T) {
	n := newTenant(t, vfs.NewMem()).open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	input := &store.InputError{Reason: "too long"}
	if err := n.Error(ended, context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
	if err := n.Error(t.Context(), input); err != error(input) {
		t.Errorf("a record that cannot be written: %v", err)
	}
	if err := n.Reserve(t.Context(), math.MaxInt); !errors.As(err, &input) {
		t.Errorf("room for what no record holds: %v", err)
	}
	if n.Failure() != nil || n.Writable() != nil || n.Closed() {
		t.Errorf("the log has failed: %v, %v, closed %v", n.Failure(), n.Writable(), n.Closed())
	}
	n.Order.Lock()
	appended := n.AppendRecord('?', nil)
	last := n.Last()
	n.Order.Unlock()
	if err := n.Wait(t.Context(), last); err != nil || !appended.Durable() {
		t.Errorf("what was appended before the last record is durable: %v, %v", appended.Durable(), err)
	}
	if err := n.Shut(); err != nil || !n.Closed() {
		t.Errorf("closed %v, %v", n.Closed(), err)
	}
	if err := n.Error(t.Context(), errors.New("a failure after the end")); err != store.ErrClosed || n.Failure() != nil {
		t.Errorf("after the end: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}
