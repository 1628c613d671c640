package events

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
	"varve/internal/work"
)

// rowsAtOnce is how many rows of a part are read with one statement. If fewer are needed, the
// last one is repeated.
const rowsAtOnce = 25

var (
	readRow  = readRows(1)
	readSome = readRows(rowsAtOnce)
)

func readRows(n int) *cql.Statement {
	return read("read_replaced_events", rowsAtOnce, "SELECT time, id, event, WRITETIME(event) FROM timeline_events"+ofPart+
		" AND (time, id) IN ("+strings.Repeat("(?, ?), ", n-1)+"(?, ?))")
}

type spot struct {
	timeline string
	timeline.Position
}

// spots are the positions to which calls of this server are writing events whose data may be
// stored separately. Calls for the same spot run one after the other, so each sees what it replaces.
type spots struct {
	mu   sync.Mutex
	held map[spot]chan struct{} // closed when the call has ended
}

// hold waits until no other call holds any of the spots, and then holds all of them.
func (s *spots) hold(ctx context.Context, all []spot) (release func(), err error) {
	for {
		busy := s.take(all)
		if busy == nil {
			return func() { s.release(all) }, nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take takes all spots or, if one is held by another call, none, and returns the channel to
// wait for.
func (s *spots) take(all []spot) (busy <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range all {
		if done := s.held[at]; done != nil {
			return done
		}
	}
	if s.held == nil {
		s.held = map[spot]chan struct{}{}
	}
	done := make(chan struct{})
	for _, at := range all {
		s.held[at] = done
	}
	return nil
}

func (s *spots) release(all []spot) {
	if len(all) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.held[all[0]])
	for _, at := range all {
		delete(s.held, at)
	}
}

// A rival is the row at the position of an entry.
type rival struct {
	pointer timeline.PayloadKey
	stamp   int64
	wins    bool // Cassandra keeps this row, and not the entry's
}

// putReplacing is Put for entries whose data may be stored separately. It reads the rows at the entries'
// positions before writing and again afterwards, and drops the data that lost: usually the data
// that an entry has replaced, or the entry's own data if another server wrote later.
//
// The drop has the timestamp of the row that won. If another server writes the dropped data
// again, its reference is either newer than the drop and stays, or older, in which case its row
// loses too.
//
// Another server's row is missed only if both that row and the other server's two reads happen
// between the two reads here.
func (s *Shelf) putReplacing(ctx context.Context, entries []timeline.Placed) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var all []spot
	var of []*timeline.Placed
	for i := range entries {
		if e := &entries[i]; e.MayPoint && !e.Fresh {
			all, of = append(all, spot{e.Timeline, e.Position()}), append(of, e)
		}
	}
	release, err := s.spots.hold(ctx, all)
	if err != nil {
		return err
	}
	defer release()
	// A client that disconnects must not end the call halfway: data would remain to which no
	// event refers.
	ctx = context.WithoutCancel(ctx)
	now := s.stamp()
	if err := s.putPayloads(ctx, now, entries); err != nil {
		return err
	}
	before, err := s.rivals(ctx, now, of)
	if err != nil {
		return err
	}
	failed := s.put(ctx, now, entries)
	after, err := s.rivals(ctx, now, of)
	if err == nil {
		err = work.Parallel(ctx, writesAtOnce, len(of), "drop data that was replaced", func(ctx context.Context, i int) error {
			return s.dropLoser(ctx, stampOr(now, of[i].Put), of[i], before[i], after[i], failed)
		})
	}
	if err != nil { // the entries are stored nevertheless
		s.log.Warn("replaced data of events could not be removed; it stays in timeline_payloads", "error", err)
	}
	return failed
}

// rivals reads the rows at the positions of entries.
func (s *Shelf) rivals(ctx context.Context, now int64, of []*timeline.Placed) ([]rival, error) {
	var some [][]int // groups of entries of one part, up to rowsAtOnce each
	open := map[timeline.Part]int{}
	for i, e := range of {
		at, ok := open[e.Part]
		if !ok || len(some[at]) == rowsAtOnce {
			at = len(some)
			open[e.Part], some = at, append(some, nil)
		}
		some[at] = append(some[at], i)
	}
	all := make([]rival, len(of))
	err := work.Parallel(ctx, writesAtOnce, len(some), "look for events that are replaced", func(ctx context.Context, i int) error {
		return s.rivalsOf(ctx, now, of, some[i], all)
	})
	return all, err
}

// rivalsOf reads the rows of some entries of a part.
func (s *Shelf) rivalsOf(ctx context.Context, now int64, of []*timeline.Placed, some []int, all []rival) error {
	st, n := readRow, 1
	if len(some) > 1 {
		st, n = readSome, rowsAtOnce
	}
	args, at := argsOf(&of[some[0]].Part), map[timeline.Position]int{}
	for k := range n {
		i := some[min(k, len(some)-1)]
		args, at[of[i].Position()] = append(args, of[i].Time, of[i].ID), i
	}
	rows := s.session.Query(ctx, st, args...)
	defer rows.Close()
	for {
		var p timeline.Position
		var cell cql.Raw
		var stamp int64
		if !rows.Scan(&p.Time, &p.ID, &cell, &stamp) {
			return rows.Close()
		}
		if i, ok := at[p]; ok {
			all[i] = rivalOf(of[i], stampOr(now, of[i].Put), cell, stamp)
		}
	}
}

func rivalOf(e *timeline.Placed, put int64, cell []byte, stamp int64) rival {
	r := rival{stamp: stamp}
	r.wins = stamp > put || stamp == put && bytes.Compare(cell, appendRow(nil, &e.Entry)) > 0
	var was timeline.Entry
	if _, err := parseRow(cell, &was); err == nil { // the reference of a damaged row is unknown
		r.pointer = was.Pointer
	}
	return r
}

// dropLoser drops the data that an entry replaced, or the data of the entry if another row is
// later. If the call failed, it is unknown whether the entry is stored.
func (s *Shelf) dropLoser(ctx context.Context, put int64, e *timeline.Placed, before, after rival, failed error) error {
	none := timeline.PayloadKey{}
	won := failed == nil || after.stamp >= put
	// Timestamps are equal if both rows were written within a microsecond.
	if won && !before.wins && before.pointer != none && before.pointer != e.Pointer {
		if err := s.dropPayload(ctx, before.pointer, e.Timeline, time.UnixMicro(max(put, before.stamp+1))); err != nil {
			return err
		}
	}
	if after.wins && e.Pointer != none && after.pointer != e.Pointer {
		return s.dropPayload(ctx, e.Pointer, e.Timeline, time.UnixMicro(max(after.stamp, put+1)))
	}
	return nil
}
