package events

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// Each server has a log of arrivals for each timeline into which it puts events. Rows of a log
// are written one after the other, in the order of their numbers, and only after the events
// that they list are stored. So a reader that has read a log up to a row has also read all
// earlier rows that were or will be acknowledged.
//
//	timeline_logs      timeline -> log -> newest slot
//	timeline_arrivals  timeline, log, slot -> number -> entries
//
// A number is the time in microseconds, but always above the previous number. A slot is a
// minute of numbers.
const (
	slotMicros = 60 * 1_000_000

	// arrivalsKept is how long a row of a log is kept.
	arrivalsKept = time.Hour

	// logKept is how long a log is listed after it was last written: longer than its rows.
	logKept = arrivalsKept + 5*time.Minute

	// rowArrivals is the maximum number of entries that a row lists, and writeArrivals of
	// entries that are written at once.
	rowArrivals   = 1000
	writeArrivals = 5000

	// Once openLogs logs are open, those that were not used for logIdle are closed. This is
	// checked every sweepEvery.
	openLogs   = 10_000
	logIdle    = time.Minute
	sweepEvery = 10 * time.Second
)

var (
	putLog     = write("put_arrival_log", "INSERT INTO timeline_logs (timeline, log, slot) VALUES (?, ?, ?) USING TTL ?")
	readLog    = read("read_arrival_log", 1, "SELECT slot, WRITETIME(slot) FROM timeline_logs WHERE timeline = ? AND log = ?")
	putArrival = write("put_arrivals", "INSERT INTO timeline_arrivals (timeline, log, slot, number, events) VALUES (?, ?, ?, ?, ?) USING TTL ?")
)

// A ref is the location of an entry.
type ref struct {
	start     int64
	partition int
	position  timeline.Position
}

// refsVersion is the first byte of a row.
const refsVersion = 1

func appendRef(dst []byte, r ref) []byte {
	dst = binary.AppendVarint(dst, r.start)
	dst = binary.AppendUvarint(dst, uint64(r.partition))
	return timeline.AppendText(binary.AppendVarint(dst, r.position.Time), r.position.ID)
}

// parseRefs decodes the contents of rows.
func parseRefs(data []byte) ([]ref, error) {
	bad := func(why string) error { return &store.CorruptionError{File: "timeline_arrivals", Reason: why} }
	if len(data) == 0 || data[0] != refsVersion {
		return nil, bad("this version of Varve cannot read it")
	}
	var all []ref
	for c := (timeline.Cutter{Rest: data[1:]}); len(c.Rest) > 0; {
		start, partition := c.Varint(), c.Uvarint()
		at := timeline.Position{Time: c.Varint(), ID: string(c.Text())}
		if c.Bad || partition > timeline.FactorMax || len(all) == rowArrivals {
			return nil, bad("an entry is cut off")
		}
		all = append(all, ref{start: start, partition: int(partition), position: at})
	}
	return all, nil
}

type arrivalLogs struct {
	shelf  *Shelf
	number int32 // of the server

	mu     sync.Mutex
	byName map[string]*arrivalLog
	swept  time.Time
}

func (a *arrivalLogs) open(s *Shelf, number int32) {
	a.shelf, a.number, a.byName = s, number, map[string]*arrivalLog{}
}

// An arrivalLog is the log of one timeline.
type arrivalLog struct {
	logs     *arrivalLogs
	timeline string

	users int // arrivalLogs.mu must be held
	idle  time.Time

	mu    sync.Mutex
	queue []*arrival
	busy  bool // drain runs

	// Of drain.
	begun   bool        // last and listed are known, also from earlier processes
	last    int64       // number of the last row
	slot    int64       // the slot listed as the newest
	listed  int64       // write timestamp of that listing
	pending []cql.Entry // rows that may not be stored; they are written before all others
}

// An arrival has the entries of one Put.
type arrival struct {
	refs []ref
	done chan error // with capacity 1
}

// arrived records the stored entries of a Put in the logs.
func (s *Shelf) arrived(ctx context.Context, entries []timeline.Placed, failed map[int]error) {
	refs, of := map[string][]ref{}, map[string][]int{}
	var names []string
	for i := range entries {
		e := &entries[i]
		if failed[i] != nil {
			continue
		}
		if refs[e.Timeline] == nil {
			names = append(names, e.Timeline)
		}
		refs[e.Timeline] = append(refs[e.Timeline], ref{e.Start, e.Partition, e.Position()})
		of[e.Timeline] = append(of[e.Timeline], i)
	}
	each(len(names), func(i int) []int { return of[names[i]] }, failed, func(i int) error {
		return s.arrivals.append(ctx, names[i], refs[names[i]])
	})
}

func (a *arrivalLogs) append(ctx context.Context, name string, refs []ref) error {
	l := a.use(name)
	defer a.leave(l)
	mine := &arrival{refs: refs, done: make(chan error, 1)}
	l.mu.Lock()
	l.queue = append(l.queue, mine)
	if !l.busy {
		l.busy = a.shelf.spawn(l.drain)
	}
	started := l.busy
	l.mu.Unlock()
	if !started {
		return store.ErrClosed
	}
	select {
	case err := <-mine.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *arrivalLogs) use(name string) *arrivalLog {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.byName[name]
	if l == nil {
		a.sweepLocked()
		l = &arrivalLog{logs: a, timeline: name}
		a.byName[name] = l
	}
	l.users++
	return l
}

func (a *arrivalLogs) leave(l *arrivalLog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.users--
	l.idle = a.shelf.now()
}

// sweepLocked closes unused logs. A log that is opened again continues with a higher number,
// since numbers are times.
func (a *arrivalLogs) sweepLocked() {
	now := a.shelf.now()
	if len(a.byName) < openLogs || now.Sub(a.swept) < sweepEvery {
		return
	}
	a.swept = now
	for name, l := range a.byName {
		if l.users == 0 && now.Sub(l.idle) > logIdle {
			delete(a.byName, name)
		}
	}
}

// drain writes queued arrivals until there are none.
func (l *arrivalLog) drain() {
	for {
		taken := l.take()
		if len(taken) == 0 {
			return
		}
		err := work.Do("write arrivals of events", func() error { return l.write(taken) })
		for _, a := range taken {
			a.done <- err
		}
	}
}

func (l *arrivalLog) take() []*arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, refs := 0, 0
	for n < len(l.queue) && (n == 0 || refs+len(l.queue[n].refs) <= writeArrivals) {
		refs += len(l.queue[n].refs)
		n++
	}
	taken := l.queue[:n:n]
	l.queue = l.queue[n:]
	l.busy = n > 0
	return taken
}

// write writes rows. After an error it is unknown whether the rows are stored, so the next call
// first writes them again: a reader that has read a later row does not look for earlier ones.
func (l *arrivalLog) write(taken []*arrival) error {
	if err := l.send(); err != nil {
		return err
	}
	if err := l.begin(); err != nil {
		return err
	}
	rows := rowsOf(taken)
	for {
		number, err := l.list(int64(len(rows)))
		if err != nil {
			return err
		}
		for i, data := range rows {
			l.pending = append(l.pending, cql.Entry{Statement: putArrival,
				Args: []any{l.timeline, l.logs.number, l.slot, number + int64(i), data, seconds(arrivalsKept)}})
		}
		l.last = number + int64(len(rows)) - 1
		if err := l.send(); err != nil {
			return err
		}
		// If this process was frozen meanwhile, readers may already have passed these rows.
		if l.logs.shelf.stamp()-number < (arrivalsKept / 2).Microseconds() {
			return nil
		}
	}
}

// list returns the number of the next row, whose slot it has listed as the newest. All rows of
// a batch are in one slot. The number is chosen after the slot was listed, because a reader
// that began to follow before that does not know the log, and looks only for rows since then,
// minus cursorSkew.
func (l *arrivalLog) list(rows int64) (number int64, err error) {
	s := l.logs.shelf
	for {
		number = max(l.last+1, s.stamp())
		if slotOf(number) != slotOf(number+rows) {
			number = (slotOf(number) + 1) * slotMicros
		}
		slot := slotOf(number)
		if slot == l.slot {
			return number, nil
		}
		l.last = number - 1 // in case the slot is listed although the write failed
		stamp := max(l.listed+1, number)
		if err := s.session.Exec(s.ctx, putLog, stamp, l.timeline, l.logs.number, slot, seconds(logKept)); err != nil {
			return 0, err
		}
		l.slot, l.listed = slot, stamp
	}
}

// logAhead is how far the numbers of a log may be ahead of the clock. Numbers further ahead are
// in no cursor, whichever server's clock it was made by.
const logAhead = cursorAhead + cursorSkew

// begin finds out where the log ends. An earlier process of this server may have written it
// with a clock that was ahead. Readers do not look for rows below those that they have read, so
// the log continues above them. If that clock was so wrong that cursors with its numbers are
// refused, the log continues with the present time.
func (l *arrivalLog) begin() error {
	if l.begun {
		return nil
	}
	s := l.logs.shelf
	end := logEnd{log: l.logs.number}
	there, err := s.session.One(s.ctx, readLog, []any{l.timeline, end.log}, &end.slot, &l.listed)
	if err != nil {
		return err
	}
	if now := s.stamp(); there && end.slot >= slotOf(now) {
		next, err := s.end(s.ctx, l.timeline, end)
		if err != nil {
			return err
		}
		if next.number-now <= logAhead.Microseconds() {
			l.last = next.number - 1
		}
	}
	l.begun = true
	return nil
}

func (l *arrivalLog) send() error {
	s := l.logs.shelf
	if err := s.session.Batch(s.ctx, s.stamp(), l.pending); err != nil {
		return err
	}
	l.pending = nil
	return nil
}

func slotOf(number int64) int64 { return number / slotMicros }

func seconds(d time.Duration) int32 { return int32(d / time.Second) }

func rowsOf(taken []*arrival) (rows [][]byte) {
	row, n := []byte{refsVersion}, 0
	for _, a := range taken {
		for _, r := range a.refs {
			if n == rowArrivals {
				rows = append(rows, row)
				row, n = []byte{refsVersion}, 0
			}
			row, n = appendRef(row, r), n+1
		}
	}
	return append(rows, row)
}
