package timeline

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"varve/internal/clip"
	"varve/internal/store"
	"varve/internal/work"
)

// Read returns a page.
func (e *Engine) Read(ctx context.Context, q Query) (Page, error) {
	r, err := e.newReading(q)
	if err != nil {
		return Page{}, err
	}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return Page{}, err
	}
	if err := r.collect(ctx); err != nil {
		return Page{}, err
	}
	if err := r.step(); err != nil { // before the data that is stored separately is read
		return Page{}, err
	}
	deleted, err := e.fetch(ctx, r.found)
	if err != nil {
		return Page{}, err
	}
	p := r.page() // its cursor continues after all that was found, deleted or not
	p.Events = without(p.Events, deleted)
	return p, nil
}

// A reading is one call of Read.
type reading struct {
	e       *Engine
	query   Query
	cursor  cursor // where to begin; valid if the query has one
	budget  *budget
	sources []*source

	taken    cursor // the entry that was merged last, even if filtered out; without a name: none yet
	found    []Found
	bytes    int64 // data of found, including data that is stored separately
	bytesMax int64
}

// foundBytes is about how much memory an event of a page takes beside its data.
const foundBytes = 512

// step gives the caller a turn, see Query.Step.
func (r *reading) step() error {
	if r.query.Step == nil {
		return nil
	}
	bytes := r.bytes + foundBytes*int64(len(r.found))
	for _, s := range r.sources {
		for i := range s.entries {
			bytes += s.entries[i].Bytes()
		}
	}
	return r.query.Step(bytes)
}

// A source is one timeline of a reading.
type source struct {
	*line
	stream  stream
	rest    Range
	entries []Entry  // entries that were read and not merged yet
	seen    Position // see stream
	asked   bool     // ask was called
	end     bool
}

func (e *Engine) newReading(q Query) (*reading, error) {
	q.Limit = cmp.Or(q.Limit, PageEvents)
	if err := q.check(); err != nil {
		return nil, err
	}
	r := &reading{e: e, query: q, budget: e.newBudget(), bytesMax: int64(PageBytes)}
	if q.Cursor != "" {
		var err error
		if r.cursor, err = parseCursor(q.Cursor, q.Order); err != nil {
			return nil, err
		}
	}
	names := slices.Clone(q.Timelines)
	slices.Sort(names)
	for _, name := range names {
		r.sources = append(r.sources, &source{line: e.use(name)})
	}
	return r, nil
}

func (q *Query) check() error {
	switch {
	case q.Limit < 0:
		return badf("the limit is %d, but a page has at least one event", q.Limit)
	case q.Limit > PageEventsMax:
		return &store.LimitError{Limit: "events of a page", Max: PageEventsMax, Need: int64(q.Limit)}
	case len(q.Timelines) == 0:
		return badf("the request names no timeline")
	case len(q.Timelines) > FanoutMax:
		return &store.LimitError{Limit: "timelines of a request", Max: FanoutMax, Need: int64(len(q.Timelines))}
	}
	for i, name := range q.Timelines {
		if err := CheckName(name); err != nil {
			return err
		}
		if slices.Contains(q.Timelines[:i], name) {
			return badf("the request names timeline %s twice", clip.Text(name, 40))
		}
	}
	return nil
}

// within returns the range between two times, which are inclusive; nil is no bound.
func within(from, until *int64) Range {
	r := All()
	if from != nil {
		r.From = At(max(MinTime, *from))
	}
	if until != nil {
		r.To = At(min(MaxTime, *until) + 1)
	}
	return r
}

func (r *reading) close() {
	for _, s := range r.sources {
		r.e.release(s.line)
	}
}

func (r *reading) open(ctx context.Context) error {
	return work.Parallel(ctx, prefetchMax, len(r.sources), "open timelines", func(ctx context.Context, i int) error {
		s := r.sources[i]
		k, err := r.e.layout(ctx, s.line, MinTime)
		if err != nil {
			return err
		}
		s.rest = within(r.query.From, r.query.Until).Intersect(Range{At(r.e.oldest(&k.History)), All().To})
		if r.query.Cursor != "" {
			s.rest = r.cursor.left(s.rest, s.name)
		}
		s.seen = r.query.Order.edge(s.rest)
		s.end = k.Version == 0 || s.rest.Empty()
		if !s.end {
			s.stream, err = r.e.openStream(ctx, s.line, s.rest, r.query.Order, min(r.query.Limit, pageRows/2/len(r.sources)), len(r.sources))
		}
		return err
	})
}

// collect merges the sources until the page is full, or there is no more, or the budget is
// used up.
func (r *reading) collect(ctx context.Context) error {
	for !r.isFull() {
		if err := r.fill(ctx); err != nil {
			return err
		}
		next := r.next()
		if next == nil {
			return nil
		}
		entry := next.entries[0]
		next.entries = next.entries[1:]
		next.seen = r.query.Order.after(entry.Position())
		r.taken = cursor{r.query.Order, entry.Position(), next.name}
		if r.query.Type == "" || entry.Type == r.query.Type {
			r.add(next.name, entry)
		}
	}
	return nil
}

func (r *reading) isFull() bool {
	return len(r.found) >= r.query.Limit || r.bytes >= r.bytesMax
}

func (r *reading) add(name string, entry Entry) {
	r.found = append(r.found, Found{Timeline: name, Event: entry.Event, pointer: entry.Pointer})
	r.bytes += int64(len(entry.Data) + entry.Size)
}

// fill reads the next entries of every source that has none in memory. If there was such a
// source, it gives the caller a turn.
func (r *reading) fill(ctx context.Context) error {
	asked := false
	var first []*source
	for _, s := range r.sources {
		switch {
		case len(s.entries) > 0 || s.end:
		case !s.asked:
			first = append(first, s)
		case !r.budget.spent():
			asked = true
			if err := s.ask(ctx, r.budget, r.query.Order); err != nil {
				return err
			}
		}
	}
	if len(first) > 0 {
		asked = true
		if err := r.askFirst(ctx, first); err != nil {
			return err
		}
	}
	if !asked {
		return nil
	}
	return r.step()
}

// askFirst makes the first read of some sources, several at once. Each has its own share of the
// budget. If one source could use up the whole budget, the page would end where it began, and so
// would all later pages.
func (r *reading) askFirst(ctx context.Context, first []*source) error {
	spent := make([]budget, len(first))
	err := work.Parallel(ctx, prefetchMax, len(first), "read timelines", func(ctx context.Context, i int) error {
		share := r.budget.share(len(r.sources))
		before := *share
		err := first[i].ask(ctx, share, r.query.Order)
		spent[i] = budget{buckets: before.buckets - share.buckets, rows: before.rows - share.rows}
		return err
	})
	for _, b := range spent {
		r.budget.buckets -= b.buckets
		r.budget.rows -= b.rows
	}
	return err
}

// ask reads the next entries of a source.
func (s *source) ask(ctx context.Context, b *budget, d Direction) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.asked = true
	if s.entries, s.seen, s.end, err = s.stream.fill(ctx, b); err != nil || len(s.entries) == 0 {
		return err
	}
	s.seen = s.entries[0].Position() // until they are taken
	if d == Descending {
		s.seen = s.seen.Next()
	}
	return nil
}

// next returns the source that has the next entry, nil if there is none or it is not known yet.
// It ignores a source without entries in memory that has been read beyond that entry: if such a
// source had more empty buckets than a page reads, and next waited for it, the page would end
// where it began.
func (r *reading) next() *source {
	var next *source
	for _, s := range r.sources {
		if len(s.entries) > 0 && (next == nil || r.query.Order.compare(s.entries[0].Position(), next.entries[0].Position()) < 0) {
			next = s
		}
	}
	if next == nil {
		return nil
	}
	behind := r.query.Order.after(next.entries[0].Position())
	for _, s := range r.sources {
		if len(s.entries) == 0 && !s.end && r.query.Order.compare(behind, s.seen) > 0 {
			return nil
		}
	}
	return next
}

// page returns what was found, and where to continue.
func (r *reading) page() Page {
	r.e.metrics.pages.Inc()
	p := Page{Events: r.found, End: r.ended()}
	if !p.End && !r.isFull() {
		r.e.metrics.short.Inc()
	}
	if p.End && (r.query.Order == Descending || r.query.Until != nil && *r.query.Until < r.e.now().UnixMicro()) {
		return p
	}
	p.Cursor = r.nextCursor().String()
	return p
}

func (r *reading) ended() bool {
	for _, s := range r.sources {
		if len(s.entries) > 0 || !s.end {
			return false
		}
	}
	return true
}

// nextCursor returns the cursor of the next page.
func (r *reading) nextCursor() cursor {
	d := r.query.Order
	c := cursor{direction: d}
	if r.isFull() {
		return r.taken
	}
	if n := len(r.found); n > 0 && r.ended() { // ascending, at the present
		c.at = r.found[n-1].Position().Next()
		return c
	}
	if r.ended() {
		c.at = d.edge(r.sources[0].rest)
		if r.query.Cursor != "" {
			c.at, c.name = r.cursor.at, r.cursor.name
		}
		return c
	}
	return r.budgetEnd(c)
}

// budgetEnd returns the cursor of a page that ended because the budget was used up: the first
// position from which a source has not been read. The next page reads the other sources again
// from there.
func (r *reading) budgetEnd(c cursor) cursor {
	first := true
	for _, s := range r.sources {
		if s.end && len(s.entries) == 0 {
			continue
		}
		if first || c.direction.compare(s.seen, c.at) < 0 {
			c.at, first = s.seen, false
		}
	}
	if r.taken.name != "" && c.direction.compare(c.at, c.direction.after(r.taken.at)) <= 0 {
		return r.taken // some of the events at one position may be merged and others not
	}
	return c
}

// without returns those of some that are not marked.
func without(some []Found, marked []bool) []Found {
	if !slices.Contains(marked, true) {
		return some
	}
	var left []Found
	for i := range some {
		if !marked[i] {
			left = append(left, some[i])
		}
	}
	return left
}

// fetch fills in data that is stored separately. deleted marks the events that were deleted
// meanwhile.
func (e *Engine) fetch(ctx context.Context, found []Found) (deleted []bool, err error) {
	deleted = make([]bool, len(found))
	at := map[PayloadKey][]int{}
	var keys []PayloadKey
	for i := range found {
		key := found[i].pointer
		if key == (PayloadKey{}) {
			continue
		}
		found[i].pointer = PayloadKey{}
		if at[key] == nil {
			keys = append(keys, key)
		}
		at[key] = append(at[key], i)
	}
	return deleted, work.Parallel(ctx, payloadsAtOnce, len(keys), "read the data of events", func(ctx context.Context, k int) error {
		data, err := e.shelf.Payload(ctx, keys[k])
		if err != nil && !replaced(err) {
			return err
		}
		for _, i := range at[keys[k]] {
			found[i].Data = data
			if err == nil {
				continue
			}
			there, err := e.fetchAgain(ctx, &found[i], keys[k])
			if err != nil {
				return err
			}
			deleted[i] = !there
		}
		return nil
	})
}

// fetchTries bounds how often fetchAgain reads an event whose data keeps being replaced.
const fetchTries = 10

// replaced reports whether an error of Shelf.Payload can mean that the data was dropped, or is
// being stored again.
func replaced(err error) bool {
	return errors.Is(err, ErrNoPayload) || errors.As(err, new(*store.CorruptionError))
}

// fetchAgain reads an event again whose data is missing: since its row was read, a writer may
// have sent the event with other data, which drops the earlier data. It reports whether the
// event still exists.
func (e *Engine) fetchAgain(ctx context.Context, f *Found, key PayloadKey) (there bool, err error) {
	lost := ErrNoPayload
	for same, try := 0, 0; same < 2 && try < fetchTries; try++ {
		now, there, err := e.entry(ctx, f.Timeline, f.Position())
		if err != nil || !there {
			return false, err
		}
		f.Event = now.Event
		if now.Pointer == (PayloadKey{}) {
			return true, nil
		}
		if f.Data, err = e.shelf.Payload(ctx, now.Pointer); err == nil || !replaced(err) {
			return true, err
		}
		lost = err
		if now.Pointer == key {
			same++
		}
		key = now.Pointer
	}
	if !errors.Is(lost, ErrNoPayload) {
		return true, lost
	}
	f.Data, f.Missing = nil, true
	e.metrics.gaps.Inc()
	return true, nil
}

// entry reads the entry at a position.
func (e *Engine) entry(ctx context.Context, name string, p Position) (Entry, bool, error) {
	parts := []Part{Everything(name)}
	if !e.whole {
		l := e.use(name)
		defer e.release(l)
		k, err := e.layout(ctx, l, p.Time)
		if err != nil || k.Version == 0 {
			return Entry{}, false, err
		}
		parts = k.parts(name, p.Time)
	}
	for _, part := range parts {
		s, err := e.shelf.Slice(ctx, part, Range{p, p.Next()}, Ascending, Limit{1, 1})
		if err != nil {
			return Entry{}, false, err
		}
		if len(s.Entries) > 0 {
			return s.Entries[0], true, nil
		}
	}
	return Entry{}, false, nil
}

// Latest returns the newest event. The error is ErrNotFound if there is none.
func (e *Engine) Latest(ctx context.Context, timeline string) (Found, error) {
	return e.first(ctx, timeline, Descending)
}

// first returns the first event in the order of reading. It continues after pages that end early.
func (e *Engine) first(ctx context.Context, timeline string, d Direction) (Found, error) {
	for q := (Query{Timelines: []string{timeline}, Order: d, Limit: 1}); ; {
		p, err := e.Read(ctx, q)
		if err != nil {
			return Found{}, err
		}
		if len(p.Events) > 0 {
			return p.Events[0], nil
		}
		if p.End {
			return Found{}, ErrNotFound
		}
		q.Cursor = p.Cursor
	}
}

// Start returns where a timeline begins. The error is ErrNotFound if it does not exist.
func (e *Engine) Start(ctx context.Context, timeline string) (Start, error) {
	k, err := e.mustLive(ctx, timeline)
	if err != nil {
		return Start{}, err
	}
	return e.start(ctx, timeline, k)
}

// start returns the oldest event and the first bucket: the first one that is marked, or the one
// in which the retention begins if that is later.
func (e *Engine) start(ctx context.Context, timeline string, k known) (Start, error) {
	marks, err := e.shelf.Marks(ctx, timeline, MinTime-maxSize, MaxTime+1, Ascending, 1)
	if err != nil || len(marks) == 0 {
		return Start{}, err
	}
	oldest, _ := k.Bucket(e.oldest(&k.History))
	s := Start{Bucket: max(marks[0], oldest)}
	f, err := e.first(ctx, timeline, Ascending)
	if errors.Is(err, ErrNotFound) {
		return s, nil
	}
	s.First = f.Position()
	return s, err
}

// mustLive returns the history of a timeline. The error is ErrNotFound if it does not exist.
func (e *Engine) mustLive(ctx context.Context, timeline string) (known, error) {
	if err := CheckName(timeline); err != nil {
		return known{}, err
	}
	l := e.use(timeline)
	defer e.release(l)
	k, err := e.layout(ctx, l, MinTime)
	if err == nil && !k.Live() {
		err = ErrNotFound
	}
	return k, err
}

// Stats describes a timeline. The error is ErrNotFound if it does not exist.
func (e *Engine) Stats(ctx context.Context, timeline string) (Stats, error) {
	k, err := e.mustLive(ctx, timeline)
	if err != nil {
		return Stats{}, err
	}
	l := e.use(timeline)
	defer e.release(l)
	now := e.now().UnixMicro()
	start, end := k.Bucket(now)
	s := Stats{Bucket: Part{Timeline: timeline, Start: start, EndExcl: end}, Layout: k.At(now), Version: k.Version, Appended: l.appended.Load(), Retained: k.Retention}
	if s.Start, err = e.start(ctx, timeline, k); err != nil {
		return s, err
	}
	s.Newest, s.Rate, s.Bytes, err = e.measure(ctx, timeline, PageEvents)
	return s, err
}

// measure returns the position of the newest event, and the events per second and bytes per
// event over the newest ones, at most events of them.
func (e *Engine) measure(ctx context.Context, timeline string, events int) (newest Position, rate, bytes float64, err error) {
	r, err := e.newReading(Query{Timelines: []string{timeline}, Limit: events})
	if err != nil {
		return newest, 0, 0, err
	}
	defer r.close()
	r.bytesMax = measuredBytes
	if err := r.open(ctx); err != nil {
		return newest, 0, 0, err
	}
	if err := r.collect(ctx); err != nil || len(r.found) == 0 {
		return newest, 0, 0, err
	}
	n := len(r.found)
	newest = r.found[0].Position()
	if span := newest.Time - r.found[n-1].Time; span > 0 {
		rate = float64(n-1) * float64(second) / float64(span)
	}
	return newest, rate, float64(r.bytes) / float64(n), nil
}

// namesAtOnce is how many timelines are described between two steps.
const namesAtOnce = prefetchMax

// Names lists timelines by name. cursor is "" or the next of the page before; the last page
// returns "". step is like Query.Step, but without bytes.
func (e *Engine) Names(ctx context.Context, prefix, cursor string, limit int, step func() error) (names []Named, next string, err error) {
	limit = cmp.Or(limit, PageEvents)
	if limit < 0 || limit > NamesMax {
		return nil, "", &store.LimitError{Limit: "timelines of a page", Max: NamesMax, Need: int64(limit)}
	}
	if err := errors.Join(checkText("the prefix", prefix, 0, NameBytesMax), checkText("the cursor", cursor, 0, NameBytesMax)); err != nil {
		return nil, "", err
	}
	list, err := e.shelf.Names(ctx, prefix, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	for some := range slices.Chunk(list, namesAtOnce) {
		described, err := e.describe(ctx, some)
		if err == nil && step != nil {
			err = step()
		}
		if err != nil {
			return nil, "", err
		}
		names = append(names, described...)
	}
	if len(list) == limit {
		next = list[limit-1]
	}
	return names, next, nil
}

// describe returns the statistics of the timelines of a list that exist.
func (e *Engine) describe(ctx context.Context, list []string) ([]Named, error) {
	all := make([]Named, len(list))
	err := work.Parallel(ctx, prefetchMax, len(list), "describe timelines", func(ctx context.Context, i int) error {
		s, err := e.Stats(ctx, list[i])
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		all[i] = Named{list[i], s}
		return err
	})
	return slices.DeleteFunc(all, func(n Named) bool { return n.Name == "" }), err
}
