package spooled

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/diskspace"
	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/units"
	"varve/internal/wal"
	"varve/internal/writelog"
)

// Options are what a Spool is opened with.
type Options struct {
	Engine       *timeline.Engine
	Confirm      func(context.Context) error // returns an error unless the engine's storage is the one that the events are for; nil: no check
	Names        []string                    // of the timelines whose events are acknowledged here
	Keyspace     string                      // the keyspace into which the engine puts them
	BytesMax     units.Bytes                 // limit of the log
	MinFreeBytes units.Bytes                 // free space of the disk below which events are refused
	MinFreeKey   string                      // the setting of MinFreeBytes, for messages

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// A Spool acknowledges events for some timelines of an engine. Any goroutine may call its
// methods.
type Spool struct {
	options Options
	fs      vfs.FS
	dir     string
	names   map[string]bool
	logger  *slog.Logger
	log     *writelog.Log

	unregister func()
	taken      prometheus.Counter
	put        prometheus.Counter
	refused    prometheus.Counter
	failed     prometheus.Counter

	bytes    atomic.Int64     // in the log
	waiting  atomic.Int64     // events that are not drained
	appended atomic.Uint64    // records that were found at the start or added since; changed under the order lock
	drained  atomic.Uint64    // how many of them were drained
	since    atomic.Int64     // microseconds: all waiting events were acknowledged at or after this time
	progress *notify.Notifier // announced when drained changes

	full    atomic.Bool             // events were refused for lack of room since the last drain
	failing atomic.Pointer[failure] // nil: the last attempt to drain succeeded

	// Used by the drain alone.
	skip    int              // records at the beginning of the log that were drained
	cleared wal.Segment      // after the log was cleared: the first segment of the next one; 0: any
	noted   timeline.SetBack // the last one that was logged

	poke    chan struct{}
	stop    context.CancelFunc
	stopped chan struct{}
}

// Open opens the log in a directory and begins to drain it. No other process may use the
// directory.
func Open(fs vfs.FS, dir string, o Options) (*Spool, error) {
	s := &Spool{options: o, fs: fs, dir: dir, names: map[string]bool{}, logger: o.Logger, progress: notify.New(), poke: make(chan struct{}, 1), stopped: make(chan struct{})}
	for _, name := range o.Names {
		s.names[name] = true
	}
	s.logger = cmp.Or(s.logger, slog.New(slog.DiscardHandler))
	if s.options.Confirm == nil {
		s.options.Confirm = func(context.Context) error { return nil }
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("open the spool of timelines: %w", err)
	}
	if err := s.openLog(); err != nil {
		return nil, fmt.Errorf("open the spool of timelines in %s: %w", dir, err)
	}
	err := s.aim()
	if err == nil {
		err = s.measure()
	}
	if err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.stopped)
		s.run(ctx)
	}()
	return s, nil
}

func (s *Spool) measure() (err error) {
	m := collectors.Named("varve_timeline_spool_")
	s.taken = m.Counter("events_total", "Events that were acknowledged once they were in the spool of timelines.")
	s.put = m.Counter("drained_total", "Events of the spool that were put into their timelines.")
	s.refused = m.Counter("refused_total", "Events of the spool that their timelines no longer accepted: past the retention, too far in the future, or deleted since. The server's log names them.")
	s.failed = m.Counter("drain_failures_total", "Attempts to drain the spool of timelines that failed. They are retried.")
	m.GaugeFunc("events", "Events that wait in the spool of timelines.", func() float64 { return float64(s.waiting.Load()) })
	m.GaugeFunc("bytes", "Bytes in the log of the spool of timelines.", func() float64 { return float64(s.bytes.Load()) })
	m.GaugeFunc("bytes_max", "Bytes in that log at which events are refused: timeline.spool_bytes_max.", func() float64 { return float64(s.options.BytesMax) })
	m.GaugeFunc("oldest_seconds", "Age of the oldest event that waits in the spool of timelines, 0 if none does.", func() float64 {
		if s.waiting.Load() == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMicro(s.since.Load())).Seconds())
	})
	s.unregister, err = m.Register(s.options.Registerer)
	return err
}

// openLog counts the events that an earlier process left, which detects damage, and opens the log
// after them.
func (s *Spool) openLog() error {
	o := s.options
	s.log = writelog.New(writelog.Options{
		FS: s.fs, Dir: s.dir, DataDir: s.dir, Config: wal.DefaultConfig(), Logger: s.logger,
		Disk: &diskspace.Guard{
			Owner: "the spool of timelines", Setting: o.MinFreeKey, Least: o.MinFreeBytes,
			WayOut: "free some space, or enlarge the disk", Refused: func() {},
		},
		Final: "the spool of timelines accepts no more events until the server is restarted",
	})
	if err := s.tellOfMissingLog(); err != nil {
		return err
	}
	err := s.replay()
	if err != nil {
		return err
	}
	if err = s.log.Open(0); wal.NoSpace(err) {
		err = s.log.OpenFull(err)
	}
	return err
}

// replay counts the events that an earlier process left.
func (s *Spool) replay() error {
	_, err := wal.Replay(s.fs, s.dir, wal.ReplayOptions{}, func(_ wal.Segment, typ byte, payload []byte) error {
		events, back, err := decodeAs(typ, payload)
		if err != nil {
			return err
		}
		s.bytes.Add(int64(len(payload)) + wal.RecordOverhead)
		if typ == typeSetBack && s.options.Engine != nil {
			s.noted = back
			s.options.Engine.NoteSetBack(back)
		}
		if len(events) == 0 {
			return nil
		}
		if s.since.Load() == 0 {
			s.since.Store(events[0].At.UnixMicro())
		}
		if s.options.Engine != nil { // nil: the events are only counted
			s.options.Engine.NoteAccepted(events[0].At)
		}
		s.appended.Add(1)
		s.waiting.Add(int64(len(events)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay the write-ahead log of the spool of timelines: %w", s.wayOut(err))
	}
	return nil
}

// Close stops the drain and closes the log. The events in it are drained after the next Open.
func (s *Spool) Close() error {
	if err := s.log.Shut(); err != nil {
		return nil
	}
	s.stop()
	<-s.stopped
	s.progress.Notify()
	s.unregister()
	return s.log.Close()
}

// takes reports whether an event goes through the spool: all of its timelines must.
func (s *Spool) takes(e *timeline.Addressed) bool {
	for _, name := range e.Timelines {
		if !s.names[name] {
			return false
		}
	}
	return len(e.Timelines) > 0
}

// Append is like Engine.Append, but for events that go through the spool it returns as soon as
// they are in the log.
func (s *Spool) Append(ctx context.Context, events []timeline.Addressed) (timeline.Result, error) {
	mine, others := s.split(events)
	switch {
	case len(mine) == 0:
		return s.options.Engine.Append(ctx, events)
	case len(others) == 0:
		return s.accept(ctx, events)
	}
	all := timeline.Result{IDs: make([]string, len(events))}
	for i := range events {
		all.IDs[i] = events[i].ID
	}
	for _, some := range []struct {
		of []int
		do func(context.Context, []timeline.Addressed) (timeline.Result, error)
	}{{mine, s.accept}, {others, s.options.Engine.Append}} {
		result, err := some.do(ctx, pick(events, some.of))
		add(&all, result, some.of, err)
	}
	slices.SortStableFunc(all.Rejected, func(a, b timeline.Rejection) int { return a.Index - b.Index })
	return all, nil
}

// split returns which events go to the log, and which to the engine. An event with the same time
// and id as one that goes to the engine goes there too: only the last such event of a call is
// stored, and whoever chooses it, log or engine, must see all of them.
func (s *Spool) split(events []timeline.Addressed) (mine, others []int) {
	direct := map[timeline.Position]bool{}
	for i := range events {
		if e := &events[i]; e.ID != "" && !s.takes(e) {
			direct[e.Position()] = true
		}
	}
	for i := range events {
		if e := &events[i]; s.takes(e) && !direct[e.Position()] {
			mine = append(mine, i)
		} else {
			others = append(others, i)
		}
	}
	return mine, others
}

func pick(events []timeline.Addressed, of []int) []timeline.Addressed {
	some := make([]timeline.Addressed, len(of))
	for i, at := range of {
		some[i] = events[at]
	}
	return some
}

// add adds the result of some events to the result of all. If all of some failed, each is rejected
// by itself, since the others may be stored.
func add(all *timeline.Result, some timeline.Result, of []int, err error) {
	all.Accepted += some.Accepted
	for i, id := range some.IDs {
		all.IDs[of[i]] = id
	}
	for _, r := range some.Rejected {
		r.Index = of[r.Index]
		all.Rejected = append(all.Rejected, r)
	}
	if err != nil {
		for _, i := range of {
			all.Rejected = append(all.Rejected, timeline.Rejection{Index: i, Err: err})
		}
	}
}

// accept puts events into the log.
func (s *Spool) accept(ctx context.Context, events []timeline.Addressed) (timeline.Result, error) {
	sound, result, err := s.options.Engine.Accept(ctx, events)
	if err != nil || len(sound) == 0 {
		return result, err
	}
	if err := s.write(ctx, sound); err != nil {
		return timeline.Result{IDs: result.IDs}, err
	}
	s.taken.Add(float64(len(sound)))
	return result, nil
}

func (s *Spool) write(ctx context.Context, events []timeline.Accepted) error {
	if err := s.log.CheckOpen(ctx); err != nil {
		return err
	}
	if err := s.log.Writable(); err != nil {
		return err
	}
	records, size := encode(events)
	if held := s.bytes.Load() + int64(size); held > int64(s.options.BytesMax) {
		s.full.Store(true)
		return s.fullError()
	}
	return s.logRecords(ctx, records, size)
}

// logRecords appends records to the log and waits until they are durable.
func (s *Spool) logRecords(ctx context.Context, records []encoded, size int) error {
	if err := s.log.Reserve(ctx, size); err != nil {
		return err
	}
	var last writelog.Entry
	s.log.Order.Lock()
	for _, r := range records {
		last = s.log.AppendRecord(typeEvents, r.bytes)
		if s.waiting.Add(int64(r.events)) == int64(r.events) {
			s.since.Store(r.at.UnixMicro())
		}
	}
	s.appended.Add(uint64(len(records)))
	s.bytes.Add(int64(size))
	s.log.Order.Unlock()
	notify.Wake(s.poke)
	return s.log.Wait(ctx, last)
}

// Flush waits until all events that were acknowledged before the call are in their timelines. It waits
// through an outage, and fails if events are refused for lack of a right or a table: that does not end
// by itself.
func (s *Spool) Flush(ctx context.Context) error {
	upTo, before := s.appended.Load(), s.failing.Load()
	var lacks *failure
	err := s.progress.Wait(ctx, func() bool {
		if f := s.failing.Load(); f != before && f != nil && errors.Is(f.err, store.ErrLacks) {
			lacks = f
		}
		return lacks != nil || s.drained.Load() >= upTo || s.log.Closed()
	})
	switch {
	case err != nil || s.drained.Load() >= upTo:
		return err
	case lacks != nil:
		return &store.UnavailableError{Reason: "not all events could be put into their timelines; they wait in the spool; repeat the flush once the cause is removed", Err: lacks.err}
	}
	return store.ErrClosed
}
