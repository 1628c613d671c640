package timeline

import (
	"context"
	"math"
	"slices"
	"time"

	"varve/internal/work"
)

// A budget limits the work for a page. Reading stops when it is used up.
type budget struct {
	buckets int       // buckets that may still be visited
	rows    int       // entries that may still be read
	until   time.Time // when to stop
	now     func() time.Time
}

const pageRows = 200_000 // most entries that are read for one page

func (e *Engine) newBudget() *budget {
	return &budget{buckets: pageBuckets, rows: pageRows, until: e.now().Add(pageTime), now: e.now}
}

// share returns the budget for the first read of one of n sources.
func (b *budget) share(n int) *budget {
	now := b.now()
	return &budget{buckets: max(1, pageBuckets/n), rows: pageRows / n, until: now.Add(pageTime / time.Duration(n)), now: b.now}
}

func (b *budget) spent() bool { return b.buckets <= 0 || b.rows <= 0 || !b.now().Before(b.until) }

// A stream yields the entries of one timeline in the order of reading. It reads them in
// batches.
type stream interface {
	// fill returns the next entries, at least one unless the stream ended or the budget is
	// used up. seen bounds what was looked at: what follows lies beyond it in the order of
	// reading (before it descending, from it on ascending).
	fill(ctx context.Context, b *budget) (some []Entry, seen Position, end bool, err error)
}

// openStream returns a stream of the entries in r. limit is how many of them a page may need,
// and several how many streams are open for that page.
func (e *Engine) openStream(ctx context.Context, l *line, r Range, d Direction, limit, several int) (stream, error) {
	// At first no more than the page needs without a filter; each read doubles it.
	slice := Limit{Entries: limit + 1, Bytes: max(sliceBytes/int64(several), sliceBytesMin)}
	if e.whole {
		slice.Entries, slice.Bytes = min(slice.Entries, wholeEntries), min(slice.Bytes, wholeBytes)
		return &wholeStream{shelf: e.shelf, name: l.name, rest: r, d: d, limit: slice}, nil
	}
	k, err := e.layout(ctx, l, r.From.Time) // to find where the bucket of r.From begins
	if err != nil {
		return nil, err
	}
	s := &bucketStream{e: e, line: l, known: k, rest: r, d: d, limit: slice, listing: marksFirst, width: 1}
	if k.Version == 0 || r.Empty() {
		return s, nil // it ends at once
	}
	s.unknown.from, _ = k.Bucket(r.From.Time)
	if s.unknown.toExcl = r.To.Time; r.To.ID != "" {
		s.unknown.toExcl++
	}
	return s, nil
}

// sliceBytes is how much is read at once for a page, divided among its timelines and the parts of
// a bucket; each part gets at least sliceBytesMin.
const (
	sliceBytes    = 4 << 20
	sliceBytesMin = 64 << 10
)

// Most entries and bytes of one read from a shelf that keeps no buckets. Between two such reads
// other requests get a turn, see Query.Step. A read takes about 1 ms of CPU; reads ten times as
// large are hardly faster per entry.
const (
	wholeEntries = 1000
	wholeBytes   = 1 << 20
)

// beyond returns what is left of r once p has been read.
func (d Direction) beyond(r Range, p Position) Range {
	if d == Ascending {
		return r.Intersect(Range{p.Next(), r.To})
	}
	return r.Intersect(Range{r.From, p})
}

// after returns the bound of what is left once p has been read.
func (d Direction) after(p Position) Position {
	if d == Ascending {
		return p.Next()
	}
	return p
}

// edge returns the bound of r at which reading begins.
func (d Direction) edge(r Range) Position {
	if d == Ascending {
		return r.From
	}
	return r.To
}

// A wholeStream reads from a shelf that keeps no buckets.
type wholeStream struct {
	shelf Shelf
	name  string
	rest  Range
	d     Direction
	limit Limit
}

func (s *wholeStream) fill(ctx context.Context, b *budget) ([]Entry, Position, bool, error) {
	out, err := s.shelf.Slice(ctx, Everything(s.name), s.rest, s.d, s.limit)
	if err != nil {
		return nil, Position{}, false, err
	}
	b.rows -= len(out.Entries)
	s.limit.Entries = min(2*s.limit.Entries, wholeEntries) // a filter may need many more
	if n := len(out.Entries); n > 0 {
		s.rest = s.d.beyond(s.rest, out.Entries[n-1].Position())
	}
	return out.Entries, s.d.edge(s.rest), !out.More, nil
}

// A bucketStream walks through the marked buckets. It reads one bucket at first, then more and
// more at once.
type bucketStream struct {
	e     *Engine
	line  *line
	known known
	rest  Range
	d     Direction
	limit Limit

	marks   []int64 // that are to be read, in the order of reading
	unknown span    // where marks have not been listed yet
	listing int     // how many marks to list next
	width   int     // how many buckets to read at once
	ahead   []*part // of the bucket that was read along with the first marks
	parts   []*part // of the buckets that are being read, in the order of reading
	opened  span    // the last bucket that was opened, empty at first
}

// A span is a range of times.
type span struct{ from, toExcl int64 }

// A part is a partition that is being read.
type part struct {
	Part
	rest    Range
	limit   Limit
	entries []Entry
	more    bool // there may be more behind entries
}

// The first listing has few marks, since a page mostly needs the current bucket or the
// previous one. Each further listing has more.
const (
	marksFirst  = 2
	marksFactor = 8
	marksAtOnce = 256
)

// fill reads at least one bucket, however long listing the directory took. Otherwise a reader
// could ask for page after page without progress.
func (s *bucketStream) fill(ctx context.Context, b *budget) ([]Entry, Position, bool, error) {
	for looked := false; ; {
		if some := s.merge(); len(some) > 0 {
			b.rows -= len(some)
			s.rest = s.d.beyond(s.rest, some[len(some)-1].Position())
			return some, s.d.edge(s.rest), false, nil
		}
		if len(s.parts) > 0 {
			if err := s.refill(ctx); err != nil {
				return nil, Position{}, false, err
			}
			continue
		}
		s.pass()
		if end, err := s.nextMarks(ctx); err != nil || end {
			return nil, s.d.edge(s.rest), end, err
		}
		if looked && b.spent() {
			return nil, s.d.edge(s.rest), false, nil
		}
		if err := s.openBuckets(ctx, b); err != nil {
			return nil, Position{}, false, err
		}
		looked = true
	}
}

// pass moves rest beyond the buckets that were read.
func (s *bucketStream) pass() {
	switch {
	case s.opened.from == s.opened.toExcl:
	case s.d == Ascending:
		s.rest = s.rest.Intersect(Range{At(s.opened.toExcl), s.rest.To})
	default:
		s.rest = s.rest.Intersect(Range{s.rest.From, At(s.opened.from)})
	}
}

// nextMarks makes sure that there is a marked bucket to read, or reports the end.
func (s *bucketStream) nextMarks(ctx context.Context) (end bool, err error) {
	for len(s.marks) == 0 {
		if s.unknown.from >= s.unknown.toExcl || s.rest.Empty() {
			return true, nil
		}
		marks, err := s.list(ctx)
		if err != nil {
			return false, err
		}
		if err := s.updateLayout(ctx, marks); err != nil {
			return false, err
		}
		// A mark at which no bucket starts is of a layout that was never stored.
		s.marks = slices.DeleteFunc(marks, func(m int64) bool { start, _ := s.known.Bucket(m); return start != m })
	}
	return false, nil
}

// list lists the next marks. The first time, it reads the bucket that is probably the first one
// at the same time, so that most pages wait for the storage only once.
func (s *bucketStream) list(ctx context.Context) (marks []int64, err error) {
	start, guessed := s.guess()
	if !guessed {
		return s.listMarks(ctx)
	}
	s.ahead = s.partsOf(start)
	var failed error // matters only if the guess is right
	err = work.Parallel(ctx, 2, 2, "read events", func(ctx context.Context, i int) (err error) {
		if i == 0 {
			marks, err = s.listMarks(ctx)
			return err
		}
		failed = s.read(ctx, s.ahead)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(marks) == 0 || marks[0] != start {
		s.ahead, failed = nil, nil
	}
	return marks, failed
}

func (s *bucketStream) listMarks(ctx context.Context) ([]int64, error) {
	limit := s.listing
	marks, err := s.e.shelf.Marks(ctx, s.line.name, s.unknown.from, s.unknown.toExcl, s.d, limit)
	if err != nil {
		return nil, err
	}
	s.listing = min(marksFactor*limit, marksAtOnce)
	if len(marks) > 0 && s.opened == (span{}) && s.fromEnd() {
		s.line.rememberEnd(s.d, marks[0])
	}
	switch n := len(marks); {
	case n < limit:
		s.unknown = span{}
	case s.d == Ascending:
		s.unknown.from = marks[n-1] + 1
	default:
		s.unknown.toExcl = marks[n-1]
	}
	return marks, nil
}

// fromEnd reports whether reading begins at an end of the timeline: at the retention, or at the
// present. Up to poll before the present counts too: requests for all events up to now arrive
// a little late.
func (s *bucketStream) fromEnd() bool {
	edge := s.d.edge(s.rest)
	if s.d == Ascending {
		return edge.Compare(At(s.e.oldest(&s.known.History))) <= 0
	}
	return edge.ID == "" && edge.Time > s.e.now().Add(-s.e.poll()).UnixMicro()
}

// guess returns the bucket that is probably the first one: that of a cursor, or the one that was
// the first when the directory was last read, if it overlaps the range. Once a bucket was opened,
// it returns none. It never returns a bucket that could have a newer layout than the known one.
func (s *bucketStream) guess() (start int64, ok bool) {
	if s.opened != (span{}) {
		return 0, false
	}
	if edge := s.d.edge(s.rest); edge.ID != "" {
		start, _ = s.known.Bucket(edge.Time)
	} else if start, ok = s.line.rememberedEnd(s.d); !ok {
		return 0, false
	}
	begin, end := s.known.Bucket(start)
	reached := !s.rest.Intersect(Range{At(begin), At(end)}).Empty()
	return start, begin == start && reached && s.e.serves(s.line, s.known.read, start)
}

// partsOf returns the parts of a bucket. No part has been read yet.
func (s *bucketStream) partsOf(start int64) []*part {
	all := s.known.parts(s.line.name, start)
	limit := Limit{share(s.limit.Entries, len(all)), max(s.limit.Bytes/int64(len(all)), sliceBytesMin)}
	parts := make([]*part, len(all))
	for i, p := range all {
		parts[i] = &part{Part: p, rest: s.rest.Intersect(Range{At(start), At(p.EndExcl)}), limit: limit, more: true}
	}
	return parts
}

// updateLayout reads the layout again if the known one is not valid for all marked buckets.
func (s *bucketStream) updateLayout(ctx context.Context, marks []int64) error {
	if len(marks) == 0 {
		return nil
	}
	k, err := s.e.serving(ctx, s.line, s.known, slices.Max(marks))
	if err == nil {
		s.known = k
	}
	return err
}

// openBuckets reads the first slices of the next buckets.
func (s *bucketStream) openBuckets(ctx context.Context, b *budget) error {
	n := min(s.width, len(s.marks), max(1, b.buckets))
	s.width = min(2*s.width, prefetchMax)
	for _, start := range s.marks[:n] {
		_, end := s.known.Bucket(start)
		s.opened = span{start, end}
		if len(s.ahead) > 0 && s.ahead[0].Start == start {
			s.parts = append(s.parts, s.ahead...)
		} else {
			s.parts = append(s.parts, s.partsOf(start)...)
		}
		s.ahead = nil
	}
	s.marks = s.marks[n:]
	b.buckets -= n
	s.e.metrics.buckets.Add(float64(n))
	if err := s.refill(ctx); err != nil {
		return err
	}
	s.e.metrics.empty.Add(float64(n - buckets(s.parts)))
	return nil
}

// share returns how many entries are first read from each of factor parts if a page needs n.
// Events are spread evenly, so three standard deviations above the average nearly always
// suffice; if not, more are read.
func share(n, factor int) int {
	if factor == 1 {
		return n
	}
	average := float64(n) / float64(factor)
	return min(n, int(average+3*math.Sqrt(average*(1-1/float64(factor))))+2)
}

// buckets counts the buckets of parts.
func buckets(parts []*part) (n int) {
	for i, p := range parts {
		if i == 0 || p.Start != parts[i-1].Start {
			n++
		}
	}
	return n
}

// refill reads the next entries of the parts that have none in memory, and drops the parts that
// ended.
func (s *bucketStream) refill(ctx context.Context) error {
	if err := s.read(ctx, s.parts); err != nil {
		return err
	}
	s.parts = slices.DeleteFunc(s.parts, func(p *part) bool { return len(p.entries) == 0 && !p.more })
	return nil
}

// read reads from every part that has no entries in memory and may have more. A part that
// cannot be read is an error, never an empty one.
func (s *bucketStream) read(ctx context.Context, parts []*part) error {
	return work.Parallel(ctx, prefetchMax, len(parts), "read events", func(ctx context.Context, i int) error {
		p := parts[i]
		if !p.more || len(p.entries) > 0 {
			return nil
		}
		if p.rest.Empty() {
			p.more = false
			return nil
		}
		out, err := s.e.shelf.Slice(ctx, p.Part, p.rest, s.d, p.limit)
		if err != nil {
			return err
		}
		p.entries, p.more = out.Entries, out.More
		p.limit.Entries = min(2*p.limit.Entries, PageEventsMax)
		if n := len(p.entries); n > 0 {
			p.rest = s.d.beyond(p.rest, p.entries[n-1].Position())
		}
		return nil
	})
}

// merge returns the entries in memory that are certain to be next: it stops where a part must be
// read further. An entry that is in two parts is returned once.
func (s *bucketStream) merge() []Entry {
	var some []Entry
	for {
		least := s.least()
		if least == nil {
			return some
		}
		e := least.entries[0]
		least.entries = least.entries[1:]
		n := len(some)
		if s.rest.Contains(e.Position()) && (n == 0 || some[n-1].Position() != e.Position()) {
			some = append(some, e)
		}
		if len(least.entries) == 0 && !least.more {
			s.parts = slices.DeleteFunc(s.parts, func(p *part) bool { return p == least })
		}
	}
}

// least returns the part of the first bucket that has the next entry, nil if one of the parts
// must be read further before that is known.
func (s *bucketStream) least() *part {
	var least *part
	for _, p := range s.parts {
		if p.Start != s.parts[0].Start {
			break
		}
		if len(p.entries) == 0 {
			return nil
		}
		if least == nil || s.d.compare(p.entries[0].Position(), least.entries[0].Position()) < 0 {
			least = p
		}
	}
	return least
}
