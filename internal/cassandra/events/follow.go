package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/work"
)

// lookups is how many entries of a part one statement looks for; fetchAtOnce is how many
// entries are read before the limit of bytes is checked.
const (
	lookups     = 16
	fetchAtOnce = 128
)

var (
	listLogs     = read("list_arrival_logs", logsMax+1, "SELECT log, slot FROM timeline_logs WHERE timeline = ? LIMIT ?")
	readArrivals = read("read_arrivals", 4, "SELECT number, events FROM timeline_arrivals WHERE timeline = ? AND log = ? AND slot = ? AND number >= ?")
	lastArrival  = read("read_last_arrival", 1, "SELECT number FROM timeline_arrivals WHERE timeline = ? AND log = ? AND slot = ? ORDER BY number DESC LIMIT 1")
	lookUp       = read("look_up_events", lookups, eventColumns+ofPart+" AND (time, id) IN ("+strings.TrimSuffix(strings.Repeat("(?, ?), ", lookups), ", ")+")")
)

// A logEnd is a log and its newest slot.
type logEnd struct {
	log  int32
	slot int64
}

// Arrivals implements timeline.Shelf.
func (s *Shelf) Arrivals(ctx context.Context, name string, after []byte, l timeline.Limit) (timeline.Arrivals, error) {
	if err := s.check(); err != nil {
		return timeline.Arrivals{}, err
	}
	now := s.now()
	from := &cursor{}
	if after != nil {
		var err error
		if from, err = parseCursor(after, now); err != nil {
			return timeline.Arrivals{}, err
		}
		if now.UnixMicro()-from.made > (arrivalsKept - 5*time.Minute).Microseconds() {
			return timeline.Arrivals{}, timeline.ErrBehind
		}
	}
	logs, err := s.logs(ctx, name)
	if err != nil {
		return timeline.Arrivals{}, err
	}
	f := &follower{shelf: s, name: name, cursor: cursor{made: now.UnixMicro()}}
	for _, log := range logs {
		p := from.of(log.log)
		if after == nil {
			if p, err = s.end(ctx, name, log); err != nil {
				return timeline.Arrivals{}, err
			}
			if ahead := micros(p.number - now.UnixMicro()); ahead > cursorAhead { // a cursor with this place would be refused
				return timeline.Arrivals{}, &store.UnavailableError{Reason: "timeline " + name + " cannot be followed: " + aheadText(ahead)}
			}
		}
		f.cursor.logs = append(f.cursor.logs, p)
	}
	if after == nil {
		return timeline.Arrivals{Next: f.cursor.encode()}, nil
	}
	if err := f.gather(ctx, logs, l.Entries); err != nil {
		return timeline.Arrivals{}, err
	}
	return f.list(ctx, l)
}

// logs lists the logs of a timeline.
func (s *Shelf) logs(ctx context.Context, name string) ([]logEnd, error) {
	rows := s.session.Query(ctx, listLogs, name, int32(logsMax+1))
	var all []logEnd
	var l logEnd
	for rows.Scan(&l.log, &l.slot) {
		all = append(all, l)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	if len(all) > logsMax {
		return nil, &store.UnavailableError{Reason: fmt.Sprintf("timeline %s cannot be followed: more than %d servers wrote to it within %v; give servers persistent data directories, so that a restarted server does not count as a new one", name, logsMax, logKept)}
	}
	return all, nil
}

// end returns the place after all rows of a log.
func (s *Shelf) end(ctx context.Context, name string, log logEnd) (place, error) {
	number := log.slot*slotMicros - 1 // the slot is listed, and its first row is still being written
	_, err := s.session.One(ctx, lastArrival, []any{name, log.log, log.slot}, &number)
	return place{log: log.log, number: number + 1}, err
}

// A follower executes one call of Arrivals.
type follower struct {
	shelf  *Shelf
	name   string
	cursor cursor

	found []arrivedRef
	more  bool
}

// An arrivedRef is a listed entry, with the place in its log after it.
type arrivedRef struct {
	ref
	log   int // index in cursor.logs
	after place
}

// gather reads the logs, each up to its share of the limit.
func (f *follower) gather(ctx context.Context, logs []logEnd, limit int) error {
	for i, log := range logs {
		share := max(1, (limit-len(f.found))/(len(logs)-i))
		if len(f.found) == limit {
			f.more = true
			return nil
		}
		if err := f.readLog(ctx, i, log, share); err != nil {
			return err
		}
	}
	return nil
}

// readLog reads the slots of a log, starting at its place. If they have no row, the next call
// begins at the newest slot, since all earlier rows were written before that slot was listed.
// Otherwise a forged cursor could cause more than a hundred slots to be read each time.
func (f *follower) readLog(ctx context.Context, i int, log logEnd, limit int) error {
	p, before := f.cursor.logs[i], len(f.found)
	for slot := slotOf(p.number); slot <= log.slot; slot++ {
		rows := f.shelf.session.Query(ctx, readArrivals, f.name, log.log, slot, p.number)
		var number int64
		var entries cql.Raw
		for rows.Scan(&number, &entries) {
			if limit == 0 {
				f.more = true
				return rows.Close()
			}
			refs, err := parseRefs(entries)
			if err != nil {
				rows.Close()
				return err
			}
			skip := 0
			if number == p.number {
				skip = min(p.skip, len(refs))
			}
			limit = f.take(i, number, refs, skip, limit)
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	if newest := log.slot * slotMicros; len(f.found) == before && p.number < newest {
		f.cursor.logs[i] = place{log: log.log, number: newest}
	}
	return nil
}

// take adds entries of a row, and returns how many more may follow.
func (f *follower) take(i int, number int64, refs []ref, skip, limit int) int {
	for n := skip; n < len(refs); n++ {
		if limit == 0 {
			f.more = true
			return 0
		}
		after := place{log: f.cursor.logs[i].log, number: number, skip: n + 1}
		if n+1 == len(refs) {
			after.number, after.skip = number+1, 0
		}
		f.found = append(f.found, arrivedRef{ref: refs[n], log: i, after: after})
		limit--
	}
	return limit
}

// list reads the entries, up to the limit of bytes.
func (f *follower) list(ctx context.Context, l timeline.Limit) (timeline.Arrivals, error) {
	out := timeline.Arrivals{More: f.more}
	var bytes int64
	for found := range slices.Chunk(f.found, fetchAtOnce) {
		entries, err := f.fetch(ctx, found)
		if err != nil {
			return timeline.Arrivals{}, err
		}
		for i, e := range entries {
			if e != nil {
				if len(out.Entries) > 0 && bytes+e.size() > l.Bytes {
					out.More, out.Next = true, f.cursor.encode()
					return out, nil
				}
				part := f.partOf(&found[i])
				there, err := f.shelf.complete(ctx, &part, e)
				if err != nil {
					return timeline.Arrivals{}, err
				}
				if !there {
					e = nil
				}
			}
			f.cursor.logs[found[i].log] = found[i].after
			if e != nil {
				bytes += e.Bytes()
				out.Entries, out.After = append(out.Entries, e.Entry), append(out.After, f.cursor.encode())
			}
		}
	}
	out.Next = f.cursor.encode()
	return out, nil
}

// fetch reads the rows of entries; nil for an entry that no longer exists.
func (f *follower) fetch(ctx context.Context, found []arrivedRef) ([]*row, error) {
	byPart := map[timeline.Part][]int{}
	for i := range found {
		p := f.partOf(&found[i])
		byPart[p] = append(byPart[p], i)
	}
	var statements [][]int
	for _, of := range byPart {
		statements = slices.AppendSeq(statements, slices.Chunk(of, lookups))
	}
	entries := make([]*row, len(found))
	err := work.Parallel(ctx, writesAtOnce, len(statements), "read events", func(ctx context.Context, n int) error {
		return f.lookUp(ctx, found, statements[n], entries)
	})
	return entries, err
}

// partOf returns the part of an entry, without its end.
func (f *follower) partOf(r *arrivedRef) timeline.Part {
	return timeline.Part{Timeline: f.name, Start: r.start, Partition: r.partition}
}

// lookUp reads some entries of one part. If they are fewer than the statement's arguments, the
// first one is repeated.
func (f *follower) lookUp(ctx context.Context, found []arrivedRef, of []int, entries []*row) error {
	first := &found[of[0]]
	part := f.partOf(first)
	args := argsOf(&part)
	for n := range lookups {
		at := first.position
		if n < len(of) {
			at = found[of[n]].position
		}
		args = append(args, at.Time, at.ID)
	}
	rows := f.shelf.session.Query(ctx, lookUp, args...)
	defer rows.Close()
	for {
		e, ok, err := scan(rows)
		if err != nil || !ok {
			return err
		}
		for _, i := range of {
			if found[i].position == e.Position() {
				copied := e
				entries[i] = &copied
			}
		}
	}
}
