// Package writelog is the common part of all stores that keep a log of batches. It
// encodes batches as log records, keeps log and memory in the same order, waits until a
// record is durable, refuses writes on a full disk or after a failure, replaces a log
// that failed for lack of space, and decodes records for a replay.
//
// # Writing
//
//	Append --> encode --> room in the log's buffer --> turn --> apply, under the order lock --> wait
//
// apply is implemented by the store: it appends the record (AppendBatch) and changes
// memory. Both happen under one lock, Order, so that memory, log and a later replay
// agree on which of two writes came last. There is no I/O and no waiting under that
// lock, since room in the buffer was reserved before.
//
// # Users
//
// The embedded store adds checkpoints, the spool adds generations.
package writelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskspace"
	"varve/internal/gate"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/wal"
)

// Options are the dependencies and settings of a log.
type Options struct {
	FS         vfs.FS
	Dir        string // of the log's segments
	Config     wal.Config
	Series     *registry.Registry
	Registerer prometheus.Registerer // nil = metrics are not exposed
	Logger     *slog.Logger

	// Disk guards the disk of DataDir. New sets its logger and the function that reads
	// the free space.
	Disk    *diskspace.Guard
	DataDir string

	// Final ends the errors after a failure that only a restart cures: "the store takes
	// no more writes until it is restarted".
	Final string

	// Check returns why samples of a batch cannot be stored; nil means that all samples
	// that can be encoded can be stored.
	Check func(b *store.Batch, kinds []model.Kind) error
}

// A Log is the log of a store. Make one with New. All methods may be called by many
// goroutines at once, except where stated otherwise.
type Log struct {
	// Order is held while a record is appended and memory is changed.
	Order sync.Mutex

	options  Options
	current  atomic.Pointer[wal.Log]                // nil before Open; changed under Order
	failure  atomic.Pointer[store.UnavailableError] // set once, by the first failure: all writes are refused
	life     store.Lifetime
	encoders sync.Pool // *Encoder

	turns     *gate.Gate   // admits one batch to Order
	turnWaits atomic.Int64 // batches that were not admitted at once

	definitions []byte // scratch; guarded by Order
}

// New returns a log that refuses records before Open.
func New(o Options) *Log {
	o.Disk.Logger = o.Logger
	o.Disk.Free = func() (units.Bytes, error) {
		usage, err := o.FS.GetDiskUsage(o.DataDir)
		return units.Bytes(usage.AvailBytes), err
	}
	l := &Log{options: o, turns: gate.New(1)}
	l.encoders.New = func() any { return &Encoder{} }
	return l
}

// An Entry is a record in a log. It stays valid when the store replaces that log: see
// Reopen. The zero Entry is durable.
type Entry struct {
	log    *wal.Log
	ticket wal.Ticket
}

// Wait returns when the record is durable, as wal.Log.Wait does.
func (e Entry) Wait(ctx context.Context) error {
	if e.log == nil {
		return nil
	}
	return e.log.Wait(ctx, e.ticket)
}

// Durable reports whether Wait would return nil at once.
func (e Entry) Durable() bool { return e.log == nil || e.log.Acknowledged(e.ticket) }

// Append encodes a batch, reserves room for it, calls apply under the order lock, and
// returns when the record that apply returns is durable. Senders take turns to be applied.
// The encoder passed to apply has the encoded samples and their kinds; apply must not keep
// it. Errors are those of store.Appender, and those of apply.
func (l *Log) Append(ctx context.Context, b *store.Batch, apply func(*Encoder) (Entry, error)) error {
	e := l.encoders.Get().(*Encoder)
	defer l.encoders.Put(e)
	if err := e.Encode(l.options.Series, b); err != nil {
		return err
	}
	if l.options.Check != nil {
		if err := l.options.Check(b, e.Kinds); err != nil {
			return err
		}
	}
	if err := l.Reserve(ctx, len(e.Samples)); err != nil {
		return err
	}
	entry, err := l.ordered(ctx, e, b, apply)
	if err != nil {
		return err
	}
	return l.Wait(ctx, entry)
}

func (l *Log) ordered(ctx context.Context, e *Encoder, b *store.Batch, apply func(*Encoder) (Entry, error)) (Entry, error) {
	taken, waited, err := l.turns.Enter(ctx, b.Sender, 1)
	if waited {
		l.turnWaits.Add(1)
	}
	if err != nil {
		return Entry{}, l.Error(ctx, err)
	}
	defer l.turns.Leave(b.Sender, taken)
	l.Order.Lock()
	defer l.Order.Unlock()
	if !e.Current(l.options.Series, b) {
		return Entry{}, store.ErrStale
	}
	entry, err := apply(e)
	clear(e.Define) // drops the keys
	return entry, err
}

// TurnWaits returns how many batches have waited for others to be applied.
func (l *Log) TurnWaits() int64 { return l.turnWaits.Load() }

// Reserve waits for room for n more bytes of records.
func (l *Log) Reserve(ctx context.Context, n int) error {
	if err := l.current.Load().Reserve(ctx, n); err != nil {
		return l.Error(ctx, err)
	}
	return nil
}

// Wait returns when a record is durable.
func (l *Log) Wait(ctx context.Context, e Entry) error {
	if err := e.Wait(ctx); err != nil {
		return l.Error(ctx, err)
	}
	return nil
}

// noSamples is the second part of a batch record that only introduces series.
var noSamples = record.AppendSamples(nil, &store.Batch{}, nil)

// AppendBatch appends a batch record: prefix, the series that the batch introduces, and
// its encoded samples, nil for none. Series that do not fit go into records of their
// own before it. It returns the last record, and the bytes that all of them take in the
// log. The order lock must be held.
func (l *Log) AppendBatch(typ byte, prefix []byte, define []record.Definition, samples []byte) (last Entry, bytes int64) {
	log := l.current.Load()
	for {
		n := record.Fit(define)
		l.definitions = append(l.definitions[:0], prefix...)
		l.definitions = record.AppendDefinitions(l.definitions, define[:n])
		define = define[n:]
		part := samples
		if len(define) > 0 || samples == nil {
			part = noSamples
		}
		ticket := log.Append(typ, l.definitions, part)
		bytes += wal.RecordOverhead + int64(len(l.definitions)) + int64(len(part))
		if len(define) == 0 {
			return Entry{log, ticket}, bytes
		}
	}
}

// AppendRecord appends a record of another type. The order lock must be held.
func (l *Log) AppendRecord(typ byte, payload []byte) Entry {
	log := l.current.Load()
	return Entry{log, log.Append(typ, payload)}
}

// Last returns the latest record. Once it is durable, so are all earlier records, and
// the segment that an earlier Rotate returned is begun.
func (l *Log) Last() Entry {
	log := l.current.Load()
	return Entry{log, log.Last()}
}

// Current is the log that accepts records now, nil before Open. It does not change
// while the order lock is held.
func (l *Log) Current() *wal.Log { return l.current.Load() }

// Open opens the log for appending after its last record, at the segment from or later.
func (l *Log) Open(from wal.Segment) error {
	log, err := l.open(from)
	if err != nil {
		return err
	}
	l.Order.Lock()
	defer l.Order.Unlock()
	l.current.Store(log)
	return nil
}

// OpenFull opens the log of a store whose disk is full, after Open, or the first append
// after it, has failed for that reason. Appends fail with that error until LookAtSpace
// has found space and replaced the log.
func (l *Log) OpenFull(failure error) error {
	if before := l.current.Load(); before != nil {
		if err := before.Discard(); err != nil && !wal.NoSpace(err) {
			return err
		}
	}
	log, err := wal.OpenFailed(l.options.FS, l.options.Dir, l.options.Config, l.walOptions(0), wal.Cause(failure))
	if err != nil {
		return err
	}
	l.Order.Lock()
	l.current.Store(log)
	l.Order.Unlock()
	l.options.Disk.Block(failure)
	return nil
}

// Full reports whether the log has failed for lack of space.
func (l *Log) Full() bool {
	log := l.current.Load()
	return log != nil && wal.NoSpace(log.Err())
}

// Clear empties a log that has failed and whose records are no longer needed: see
// wal.Log.Clear. The caller must prevent Reopen during the call.
func (l *Log) Clear() (from wal.Segment, err error) { return l.current.Load().Clear() }

func (l *Log) open(from wal.Segment) (*wal.Log, error) {
	return wal.Open(l.options.FS, l.options.Dir, l.options.Config, l.walOptions(from))
}

func (l *Log) walOptions(from wal.Segment) wal.Options {
	return wal.Options{Registerer: l.options.Registerer, Logger: l.options.Logger, From: from}
}

// Reopen replaces a log that failed for lack of space. All acknowledged records are in
// the old segments, which are replayed before the new ones.
//
// begin is called under the order lock, with the first segment of the new log. It logs
// again what is in memory but may be lost with the failed log, and returns the last
// such record, for which Reopen waits.
func (l *Log) Reopen(ctx context.Context, from wal.Segment, begin func(first wal.Segment) (Entry, error)) error {
	l.current.Load().Close() // its error is known: it is the reason for this call
	fresh, err := l.open(from)
	if err != nil {
		return err
	}
	last, err := l.replace(fresh, begin)
	if err == nil {
		err = last.Wait(ctx)
	}
	if err != nil {
		return errors.Join(err, fresh.Discard())
	}
	return nil
}

func (l *Log) replace(fresh *wal.Log, begin func(first wal.Segment) (Entry, error)) (Entry, error) {
	l.Order.Lock()
	defer l.Order.Unlock()
	first, err := fresh.Rotate() // it has no records, so this is its first segment
	if err != nil {
		return Entry{}, err
	}
	failed := l.current.Swap(fresh)
	last, err := begin(first)
	if err != nil {
		l.current.Store(failed)
	}
	return last, err
}

// LookAtSpace refuses writes or accepts them again, depending on the free space of the
// disk. If the log has failed, it calls reopen, which calls Reopen. It reports whether
// writes are accepted again. Only one goroutine may call it at a time.
func (l *Log) LookAtSpace(reopen func() error) (resumed bool) {
	if l.Full() { // perhaps no writer has noticed it yet
		l.options.Disk.Block(wal.Cause(l.current.Load().Err()))
	}
	return l.options.Disk.Look(func() error {
		if l.current.Load().Err() == nil {
			return nil
		}
		if err := reopen(); err != nil {
			return fmt.Errorf("begin a new write-ahead log: %w", err)
		}
		return nil
	})
}

// Decode decodes a batch record for a replay, and appends the kinds of its samples to
// kinds. define adds a series that the record introduces; samples decodes the rest of
// the record, as registry.Registry.DecodeSamples does.
func (l *Log) Decode(payload []byte, b *store.Batch, kinds []model.Kind,
	define func(record.Definition, model.Series) error, samples func(payload []byte, b *store.Batch) error,
) ([]model.Kind, error) {
	b.Reset(l.options.Series.Epoch())
	rest, err := record.Definitions(payload, func(d record.Definition) error {
		series, err := model.ParseKey(d.Key)
		if err != nil {
			return err
		}
		return define(d, series)
	})
	if err != nil {
		return kinds, err
	}
	if err := samples(rest, b); err != nil {
		return kinds, err
	}
	kinds, ok := l.options.Series.Kinds(kinds, b.Samples)
	if !ok {
		return kinds, errors.New("sample of an unknown series")
	}
	return kinds, nil
}

// UnknownType is the error for a record type that this build cannot replay.
func UnknownType(typ byte) error {
	return fmt.Errorf("log record of unknown type %d: use a newer build", typ)
}
