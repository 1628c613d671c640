package timeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
	return e.append(&appending{e: e, ctx: ctx, events: events, lines: map[string]*target{}, failed: make([]bool, len(events))})
}

func (e *Engine) append(a *appending) (Result, error) {
	if err := a.check(); err != nil {
		return Result{}, err
	}
	defer a.release()
	if err := e.changeable(a.ctx); err != nil {
		return Result{}, err
	}
	for i := range a.accepted {
		a.accepted[i].At = e.rightly(a.accepted[i].At)
	}
	a.identify()
	a.open()
	a.place()
	if err := a.store(); err != nil {
		a.e.metrics.rejected.WithLabelValues("store").Add(float64(len(a.placed)))
		return Result{IDs: a.result.IDs}, err
	}
	a.announce()
	a.count()
	return a.result, nil
}

// An appending is the state of one call of Append.
type appending struct {
	e      *Engine
	ctx    context.Context
	events []Addressed
	result Result
	failed []bool // by event: it is not in all of its timelines

	accepted []Accepted // events of AppendAccepted; else nil

	lines map[string]*target
	order []*target // by name, which is the order of their locks

	placed   []Placed
	from     []int                // for each of placed, the index of its event
	replaced map[spot]replacement // of events whose id the sender chose
	own      []bool               // by event: the engine made the id
}

// A spot is a position in one timeline.
type spot struct {
	timeline string
	Position
}

// A replacement is the event of a call that is put at a spot, and the events that it replaces.
type replacement struct {
	event   int
	at      int   // its index in placed; valid only while events are being placed
	instead []int // indexes of the events that it replaces
}

// A target is a timeline that gets events.
type target struct {
	*line
	known  known
	count  int
	first  int64 // times of the events
	last   int64
	bytes  int64
	err    error // why the timeline accepts no events
	starts map[int64]bool

	useless bool  // no event fits, so the timeline was not created and known is not stored
	deleted int64 // when the timeline was deleted, if it was before this call; microseconds
	placed  int   // how many of count are put
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

// reject records why an event is not in a timeline, also for the events of the call that it
// would have replaced there.
func (a *appending) reject(i int, name string, err error) {
	at := spot{name, Position{a.events[i].Time, a.result.IDs[i]}}
	if r, ok := a.replaced[at]; ok && r.event == i {
		delete(a.replaced, at)
		for _, earlier := range r.instead {
			a.reject(earlier, name, err)
		}
	}
	a.failed[i] = true
	a.result.Rejected = append(a.result.Rejected, Rejection{i, name, err})
}

// identify gives ids to the events, and collects the timelines of the valid ones.
func (a *appending) identify() {
	a.result.IDs = make([]string, len(a.events))
	a.own = make([]bool, len(a.events))
	for i := range a.events {
		e := a.events[i].Event
		if e.ID == "" {
			e.ID, a.own[i] = a.e.ids.next(), true
		}
		a.result.IDs[i] = e.ID
		if err := cmp.Or(e.check(a.payloadMax()), checkTimelines(a.events[i].Timelines)); err != nil {
			a.reject(i, "", err)
			continue
		}
		for _, name := range a.events[i].Timelines {
			a.expect(name, &e)
		}
	}
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
	}
	work.Parallel(a.ctx, prefetchMax, len(a.order), "read layouts", func(ctx context.Context, i int) error {
		t := a.order[i]
		t.err = work.Do("read the layout of a timeline", func() (err error) {
			if a.accepted == nil {
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
		if t.err == nil && t.known.Version == 0 && !t.useless {
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
	if err != nil || k.Live() || a.outlived(t, k.Deleted) {
		return k, err
	}
	if err := a.allDeleted(ctx, t, &k.History); err != nil {
		return k, err
	}
	if k, t.useless = a.fitsNone(t, k); t.useless {
		return k, nil
	}
	k, err = e.change(ctx, t.line, true, func(h History) (History, error) {
		if h.Live() { // another append was first
			return h, errUnchanged
		}
		if h.Version > 0 {
			h.Deleted = 0 // the layout stays: other processes may still use it
			return h, nil
		}
		if a.accepted == nil && !t.own {
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

// fitsNone reports whether a timeline that does not exist would reject all events because of
// their times. Such events do not create it; from the returned history, placeIn says why.
func (a *appending) fitsNone(t *target, k known) (known, bool) {
	k.read = a.e.now()
	if k.Version == 0 {
		k.Layouts = []Layout{a.e.firstLayout(t)}
	}
	first, _ := k.Bucket(t.first)
	return k, !a.e.serves(t.line, k.read, first) || t.last < a.e.oldest(&k.History)
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
		if a.failed[i] {
			continue
		}
		e := a.events[i].Event
		e.ID = a.result.IDs[i]
		for _, name := range a.events[i].Timelines {
			t := a.lines[name]
			err := t.err
			var p Placed
			if err == nil {
				p, err = a.placeIn(t, i, e)
			}
			if err != nil {
				a.reject(i, name, err)
				continue
			}
			p.Fresh = a.own[i]
			t.starts[p.Start] = true
			a.putLast(t, i, p)
		}
	}
	for i := range a.placed {
		a.setPointer(&a.placed[i])
	}
}

// putLast adds an event to those that are put. If several events of a call have the same time
// and id, only the last one is put: with equal write timestamps, any of them could win, or a
// mixture. Of events that were accepted at different times, the one accepted last is put.
func (a *appending) putLast(t *target, i int, p Placed) {
	if p.Fresh || len(a.events) == 1 {
		t.placed++
		a.placed, a.from = append(a.placed, p), append(a.from, i)
		return
	}
	if a.replaced == nil {
		a.replaced = make(map[spot]replacement, len(a.events))
	}
	at := spot{t.name, p.Position()}
	r, again := a.replaced[at]
	switch {
	case !again:
		r.event, r.at = i, len(a.placed)
		t.placed++
		a.placed, a.from = append(a.placed, p), append(a.from, i)
	case a.accepted != nil && a.accepted[i].At.Before(a.accepted[r.event].At):
		r.instead = append(r.instead, i)
	default:
		r.instead = append(r.instead, r.event)
		r.event, a.placed[r.at], a.from[r.at] = i, p, i
	}
	a.replaced[at] = r
}

// placeIn returns where an event goes in a timeline.
func (a *appending) placeIn(t *target, i int, event Event) (Placed, error) {
	e, k := a.e, &t.known
	if err := a.deletedSince(i, t); err != nil {
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
	p := Placed{Part: Part{Timeline: t.name, Start: start, EndExcl: end}, Entry: Entry{Event: event}}
	// An event that is sent again must go to the part that has it. Otherwise it would be
	// stored twice, and readers could find the earlier one.
	if layout.Placement == RoundRobin && a.own[i] {
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
		if a.e.now().Sub(begun) < a.e.markLife() {
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
	return &store.UnavailableError{Reason: fmt.Sprintf("the storage is too slow: marking the buckets of the events took longer than %v (timeline.lead_time) each time: send them again, fewer at once", a.e.markLife())}
}

// marksAgainMax bounds how often buckets are marked again.
const marksAgainMax = 3

// reopen returns an error if a timeline has been deleted since its events were placed.
func (a *appending) reopen() error {
	now := map[string]known{}
	for _, t := range a.order {
		k, err := a.e.refresh(a.ctx, t.line)
		if err != nil {
			return err
		}
		if t.err == nil && !t.useless && !k.Live() {
			return deletedMeanwhile(t.name)
		}
		now[t.name] = k
	}
	for i := range a.placed {
		p := &a.placed[i]
		k := now[p.Timeline]
		// It may also have been created again, with another layout.
		if start, _ := k.Bucket(p.Time); start != p.Start || k.At(p.Time).Factor != a.lines[p.Timeline].known.At(p.Time).Factor {
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
	for i := range a.placed {
		a.placed[i].Put = a.at(a.from[i], now)
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
		for at, err := range some.Failed {
			a.reject(a.from[at], a.placed[at].Timeline, err)
		}
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
	for _, t := range a.order {
		if len(t.starts) > 0 {
			t.appended.Add(uint64(t.placed))
			t.arrived.Notify()
		}
	}
}

func (a *appending) count() {
	slices.SortStableFunc(a.result.Rejected, func(r, s Rejection) int { return cmp.Compare(r.Index, s.Index) })
	for _, failed := range a.failed {
		if !failed {
			a.result.Accepted++
		}
	}
	a.e.metrics.appended.Add(float64(len(a.placed)))
	for _, r := range a.result.Rejected {
		a.e.metrics.reject(r.Err)
	}
}
