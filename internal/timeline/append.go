package timeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/work"
)

// Append stores events, each in all of its timelines. Events that the result reports as
// accepted are durable and visible. The first event creates its timeline.
//
// An error means either that Append has not tried to store any event, for example because
// there are too many, or that the storage failed as a whole. In the second case some events
// may be stored; sending them again with the ids of Result.IDs is harmless.
func (e *Engine) Append(ctx context.Context, events []Addressed) (Result, error) {
	return e.newAppending(ctx, events).run()
}

// An appending is one call of Append, AppendAccepted or Accept.
type appending struct {
	e      *Engine
	ctx    context.Context
	events []arriving
	late   bool // the events were accepted earlier: see AppendAccepted

	order    []*target // the timelines, by name, which is the order of their locks
	lines    map[string]*target
	placed   []Placed        // what is put
	from     []int           // for each of placed, the index of its event
	shared   map[spot]sharer // events whose id the sender chose, by position
	rejected []Rejection
}

// An arriving is an event of a call.
type arriving struct {
	Accepted      // its At is zero, unless the event was accepted earlier
	fresh    bool // the engine made the id
	failed   bool // it is not in all of its timelines
}

// A spot is a position in one timeline.
type spot struct {
	timeline string
	Position
}

// A sharer is the event of a call that is put at a spot, and the events that it replaces.
type sharer struct {
	at      int   // its index in placed; valid only while events are being placed
	instead []int // indexes of the events that it replaces
}

// A target is a timeline that gets events.
type target struct {
	*line
	known   known
	count   int
	first   int64 // times of the events
	last    int64
	bytes   int64
	deleted int64          // when the timeline was deleted, if it was before this call; microseconds
	err     error          // why the timeline accepts no events
	starts  map[int64]bool // the buckets of the events that are put
}

func (e *Engine) newAppending(ctx context.Context, events []Addressed) *appending {
	a := &appending{e: e, ctx: ctx, events: make([]arriving, len(events)), lines: map[string]*target{}}
	for i := range events {
		a.events[i].Addressed = events[i]
	}
	return a
}

// run takes the steps of a call; see the comment of the package.
func (a *appending) run() (Result, error) {
	if err := a.check(); err != nil {
		return Result{}, err
	}
	defer a.release()
	if err := a.e.changeable(a.ctx); err != nil {
		return Result{}, err
	}
	for i := range a.events {
		if a.late {
			a.events[i].At = a.e.Right(a.events[i].At)
		}
	}
	a.identify()
	a.open()
	a.place()
	if err := a.store(); err != nil {
		a.e.metrics.rejected.WithLabelValues("store").Add(float64(len(a.placed)))
		return Result{IDs: a.ids()}, err
	}
	a.announce()
	return a.result(), nil
}

func (a *appending) check() error {
	n, bytes := 0, int64(0)
	for i := range a.events {
		n += len(a.events[i].Timelines)
		bytes += int64(len(a.events[i].Data)) * int64(len(a.events[i].Timelines))
	}
	if n > BatchEvents {
		return &store.LimitError{Limit: "events of a request, counted once for each of their timelines", Max: BatchEvents, Need: int64(n)}
	}
	if bytes > int64(BatchBytes) {
		return &store.LimitError{Limit: "bytes of the events of a request, counted once for each of their timelines", Max: int64(BatchBytes), Need: bytes}
	}
	return a.ctx.Err()
}

// reject records why an event is not in a timeline.
func (a *appending) reject(i int, name string, err error) {
	a.events[i].failed = true
	a.rejected = append(a.rejected, Rejection{i, name, err})
}

// drop rejects some of placed, by index, and with each one the events that it would have replaced.
func (a *appending) drop(gone map[int]error) {
	var placed []Placed
	var from []int
	for at := range a.placed {
		p, i, err := &a.placed[at], a.from[at], gone[at]
		if err == nil {
			placed, from = append(placed, *p), append(from, i)
			continue
		}
		a.reject(i, p.Timeline, err)
		for _, i := range a.shared[spot{p.Timeline, p.Position()}].instead {
			a.reject(i, p.Timeline, err)
		}
	}
	a.placed, a.from = placed, from
}

// identify gives ids to the events, and collects the timelines of the valid ones.
func (a *appending) identify() {
	payloadMax := int64(a.e.config.PayloadBytesMax)
	if a.late { // a limit that was lowered since does not apply
		payloadMax = math.MaxInt64
	}
	for i := range a.events {
		e := &a.events[i]
		if e.ID == "" {
			e.ID, e.fresh = a.e.ids.next(), true
		}
		if err := cmp.Or(e.check(payloadMax), checkTimelines(e.Timelines)); err != nil {
			a.reject(i, "", err)
			continue
		}
		for _, name := range e.Timelines {
			a.expect(name, &e.Event)
		}
	}
}

func (a *appending) ids() []string {
	ids := make([]string, len(a.events))
	for i := range a.events {
		ids[i] = a.events[i].ID
	}
	return ids
}

func checkTimelines(names []string) error {
	if len(names) == 0 {
		return badf("the event has no timeline")
	}
	if len(names) > FanoutMax {
		return &store.LimitError{Limit: "timelines of an event", Max: FanoutMax, Need: int64(len(names))}
	}
	for i, name := range names {
		if err := checkNewName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return badf("the event has timeline %s twice", clip.Text(name, 40))
		}
	}
	return nil
}

func (a *appending) expect(name string, e *Event) {
	t := a.lines[name]
	if t == nil {
		t = &target{line: a.e.use(name), first: e.Time, last: e.Time, starts: map[int64]bool{}}
		a.lines[name] = t
		a.order = append(a.order, t)
	}
	t.count++
	t.first, t.last, t.bytes = min(t.first, e.Time), max(t.last, e.Time), t.bytes+int64(len(e.Data))
}

// open locks the timelines and reads their layouts, or creates them.
func (a *appending) open() {
	slices.SortFunc(a.order, func(t, u *target) int { return cmp.Compare(t.name, u.name) })
	for _, t := range a.order {
		t.work.RLock()
		t.err = errUnread
	}
	work.Parallel(a.ctx, prefetchMax, len(a.order), "read layouts", func(ctx context.Context, i int) error {
		t := a.order[i]
		t.err = work.Do("read the layout of a timeline", func() (err error) {
			if !a.late {
				err = t.take(t.count, a.e.config.RateMax, a.e.now())
			}
			if err == nil {
				t.known, err = a.writable(ctx, t)
			}
			return err
		})
		return nil
	})
	for _, t := range a.order {
		if t.err == errUnread {
			t.err = cmp.Or(a.ctx.Err(), errUnread)
		}
	}
}

var errUnread = errors.New("the layout of the timeline was not read")

func (a *appending) release() {
	for _, t := range a.order {
		t.work.RUnlock()
		a.e.release(t.line)
	}
}

// writable returns the layout of a timeline. It creates a timeline that does not exist, and
// revives one that was deleted.
func (a *appending) writable(ctx context.Context, t *target) (known, error) {
	e := a.e
	k, err := e.layout(ctx, t.line, t.last)
	if err == nil && a.late && t.first < e.oldest(&k.History) {
		k, err = e.refresh(ctx, t.line) // a rejection is final, and another process may have made the retention longer
	}
	if err != nil || k.Live() || a.outlived(t, k.Deleted) {
		return k, err
	}
	if err := a.allDeleted(ctx, t, &k.History); err != nil {
		return k, err
	}
	if would, none := a.fitsNone(t, k); none {
		return would, nil
	}
	k, err = e.change(ctx, t.line, true, func(h History) (History, error) {
		if h.Live() { // another append was first
			return h, errUnchanged
		}
		if h.Version > 0 {
			h.Deleted = 0 // the layout stays: other processes may still use it
			return h, nil
		}
		if !a.late && !t.own {
			if err := e.roomForTimeline(ctx); err != nil {
				return h, err
			}
		}
		h.Layouts = []Layout{e.firstLayout(t)}
		return h, nil
	})
	if errors.Is(err, ErrConflict) {
		err = &store.UnavailableError{Reason: fmt.Sprintf("other servers create or change timeline %s at the same time: send the events again", clip.Text(t.name, 40)), Err: err}
	}
	return k, err
}

// fitsNone reports whether a timeline that does not exist would reject all events, because they are
// too far ahead. Such events do not create it; from the returned history, placeIn says why.
func (a *appending) fitsNone(t *target, k known) (known, bool) {
	k.read = a.e.now()
	if k.Version == 0 {
		k.Layouts = []Layout{a.e.firstLayout(t)}
	}
	first, _ := k.Bucket(t.first)
	return k, !a.e.serves(t.line, k.read, first)
}

func (e *Engine) roomForTimeline(ctx context.Context) error {
	n, err := e.shelf.Count(ctx)
	if err == nil && n >= e.config.TimelinesMax {
		err = &store.LimitError{Limit: "timeline.timelines_max", Max: int64(e.config.TimelinesMax), Need: int64(n) + 1}
	}
	return err
}

// place finds the part of each event.
func (a *appending) place() {
	for i := range a.events {
		if a.events[i].failed {
			continue
		}
		for _, name := range a.events[i].Timelines {
			t := a.lines[name]
			p, err := a.placeIn(t, &a.events[i])
			if err != nil {
				a.reject(i, name, err)
				continue
			}
			t.starts[p.Start] = true
			a.putLast(i, p)
		}
	}
	for i := range a.placed {
		a.setPointer(&a.placed[i])
	}
}

// putLast adds an event to those that are put. If several events of a call have the same time
// and id, only the last one is put: with equal write timestamps, any of them could win, or a
// mixture. Of events that were accepted at different times, the one accepted last is put.
func (a *appending) putLast(i int, p Placed) {
	if p.Fresh || len(a.events) == 1 {
		a.placed, a.from = append(a.placed, p), append(a.from, i)
		return
	}
	if a.shared == nil {
		a.shared = make(map[spot]sharer, len(a.events))
	}
	at := spot{p.Timeline, p.Position()}
	s, again := a.shared[at]
	switch {
	case !again:
		s.at = len(a.placed)
		a.placed, a.from = append(a.placed, p), append(a.from, i)
	case a.events[i].At.Before(a.events[a.from[s.at]].At):
		s.instead = append(s.instead, i)
	default:
		s.instead = append(s.instead, a.from[s.at])
		a.placed[s.at], a.from[s.at] = p, i
	}
	a.shared[at] = s
}

// placeIn returns where an event goes in a timeline.
func (a *appending) placeIn(t *target, event *arriving) (Placed, error) {
	e, k := a.e, &t.known
	if err := cmp.Or(t.err, a.deletedSince(event, t)); err != nil {
		return Placed{}, err
	}
	start, end := k.Bucket(event.Time)
	if !e.serves(t.line, k.read, start) {
		return Placed{}, e.tooFarAhead(event.Time)
	}
	if oldest := e.oldest(&k.History); event.Time < oldest {
		return Placed{}, badf("the event is older than the retention of the timeline, %v", k.Retention)
	}
	layout := k.At(event.Time)
	p := Placed{Part: Part{Timeline: t.name, Start: start, EndExcl: end}, Entry: Entry{Event: event.Event}, Fresh: event.fresh}
	// An event that is sent again must go to the part that has it. Otherwise it would be
	// stored twice, and readers could find the earlier one.
	if layout.Placement == RoundRobin && event.fresh {
		p.Partition = int(t.turn.Add(1) % uint64(layout.Factor))
	} else {
		p.Partition = hashPartition(event.ID, layout.Factor)
	}
	return p, nil
}

func (e *Engine) tooFarAhead(at int64) error {
	return badf("the time of the event, %s, is too far in the future; events may be up to seven eighths of timeline.lead_time (%v) ahead, or in a bucket that begins before that",
		time.UnixMicro(at).UTC().Format(time.RFC3339Nano), e.config.LeadTime)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashPartition is part of the format: crc32c of the id, modulo the number of partitions.
func hashPartition(id string, factor int) int {
	if factor <= 1 {
		return 0
	}
	return int(crc32.Checksum([]byte(id), castagnoli) % uint32(factor))
}

// oldest returns the oldest time that is not past the retention.
func (e *Engine) oldest(h *History) int64 {
	if h.Retention == 0 {
		return MinTime
	}
	return max(MinTime, e.now().Add(-h.Retention).UnixMicro())
}

// setPointer replaces the data of an event by a pointer if the mode says so.
func (a *appending) setPointer(p *Placed) {
	layout := a.lines[p.Timeline].known.At(p.Time)
	p.MayPoint = layout.Mode != Materialised
	size := len(p.Data)
	if size == 0 || layout.Mode == Materialised || layout.Mode == Hybrid && size <= layout.Threshold {
		return
	}
	p.Pointer, p.Size, p.Payload, p.Data = keyOf(&p.Event), size, p.Data, nil
}

// keyOf is part of the format: the first half of the SHA-256 of time, length of the id,
// id and data.
func keyOf(e *Event) PayloadKey {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(e.Time)))
	h.Write([]byte{byte(len(e.ID))})
	h.Write([]byte(e.ID))
	h.Write(e.Data)
	return PayloadKey(h.Sum(nil)[:len(PayloadKey{})])
}

// store marks the buckets, then puts the events.
//
// If the process was frozen, or waited long for the storage, other processes may have removed the
// mark of a bucket that looked unused before the events were put there. So after a slow put the
// buckets are marked again. The events are not put again: with a slow storage that might never end.
func (a *appending) store() error {
	if len(a.placed) == 0 {
		return nil
	}
	begun := a.e.now()
	if err := a.put(); err != nil {
		return err
	}
	for range marksAgainMax {
		if work.Elapsed(begun, a.e.now()) < a.e.markLife() {
			return nil
		}
		begun = a.e.now()
		if err := a.reopen(); err != nil {
			return err
		}
		if err := a.mark(); err != nil {
			return err
		}
	}
	return &store.UnavailableError{Reason: fmt.Sprintf("the storage is too slow: marking the buckets of the events took longer than %v (timeline.lead_time) each time: send the events again, fewer per request", a.e.markLife())}
}

// marksAgainMax bounds how often buckets are marked again.
const marksAgainMax = 3

// reopen returns an error if a timeline has been deleted since its events were placed.
func (a *appending) reopen() error {
	now := map[string]known{}
	for i := range a.placed {
		p := &a.placed[i]
		k, read := now[p.Timeline]
		t := a.lines[p.Timeline]
		if !read {
			var err error
			if k, err = a.e.refresh(a.ctx, t.line); err != nil {
				return err
			}
			now[p.Timeline] = k
		}
		if !k.Live() {
			return deletedMeanwhile(p.Timeline)
		}
		// The timeline may also have been created again, with another layout.
		if start, _ := k.Bucket(p.Time); start != p.Start || k.At(p.Time).Factor != t.known.At(p.Time).Factor {
			return deletedMeanwhile(p.Timeline)
		}
	}
	return nil
}

func deletedMeanwhile(name string) error {
	return &store.UnavailableError{Reason: fmt.Sprintf("timeline %s was deleted while events were put into it: send them again", clip.Text(name, 40))}
}

// mark marks the buckets of the events.
func (a *appending) mark() error {
	return work.Parallel(a.ctx, prefetchMax, len(a.order), "mark buckets", func(ctx context.Context, i int) error {
		return a.e.mark(ctx, a.order[i].line, a.order[i].starts)
	})
}

func (a *appending) put() error {
	now := a.e.stamp()
	for at, i := range a.from {
		a.placed[at].Put = now
		if a.late {
			a.placed[at].Put = a.events[i].At
		}
	}
	err := a.mark()
	if err == nil {
		err = a.leaveOutDeleted(false)
	}
	if err != nil || len(a.placed) == 0 {
		return err
	}
	err = a.e.shelf.Put(a.ctx, a.placed)
	if some, ok := errors.AsType[*PutError](err); ok && len(some.Failed) < len(a.placed) {
		a.drop(some.Failed)
		err = nil
	}
	if err == nil {
		err = a.leaveOutDeleted(true)
	}
	return err
}

// markLife is how long a process relies on a mark. Upkeep removes only marks that are older
// than unmarkAfter times that.
func (e *Engine) markLife() time.Duration { return e.config.LeadTime }

const unmarkAfter = 3

// mark marks buckets that were not marked recently.
func (e *Engine) mark(ctx context.Context, l *line, starts map[int64]bool) error {
	now := e.now()
	var missing []int64
	for start := range starts {
		if !l.remembersMark(start, now, e.markLife()/2) {
			missing = append(missing, start)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	if err := e.shelf.Mark(ctx, l.name, missing, e.stamp()); err != nil {
		return err
	}
	e.metrics.marks.Add(float64(len(missing)))
	l.rememberMarks(missing, now)
	return nil
}

// announce wakes the readers that follow the timelines.
func (a *appending) announce() {
	for i := range a.placed {
		a.lines[a.placed[i].Timeline].appended.Add(1)
	}
	for _, t := range a.order {
		if len(t.starts) > 0 {
			t.arrived.Notify()
		}
	}
}

// result counts what became of the events.
func (a *appending) result() Result {
	slices.SortStableFunc(a.rejected, func(r, s Rejection) int { return cmp.Compare(r.Index, s.Index) })
	r := Result{IDs: a.ids(), Rejected: a.rejected}
	for i := range a.events {
		if !a.events[i].failed {
			r.Accepted++
		}
	}
	a.e.metrics.appended.Add(float64(len(a.placed)))
	for _, r := range a.rejected {
		a.e.metrics.reject(r.Err)
	}
	return r
}
