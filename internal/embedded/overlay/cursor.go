package overlay

import (
	"context"
	"math"
	"slices"
	"sort"
	"sync"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

const (
	blockSamples = 1024      // samples gathered into one block when sources interleave
	blockBytes   = 256 << 10 // bytes of their texts, which may have 64 KiB each: readers are charged for a block once they have it
	longRun      = 64        // a run at least this long is handed out without copying
	blockRuns    = 256       // statistics gathered into one block
)

// A Cursor merges the samples that files, frozen head and active head have of one
// series. It implements [store.Cursor].
//
// Every source yields chunks in the order asked for, disjoint and each time
// once. Times are compared through order(), which turns descending reads into
// ascending ones. A chunk is decoded only when its samples are needed one by
// one. If no other source has samples within a chunk, its statistics, or those
// of its parts, may be returned instead.
type Cursor struct {
	pool    *Pool // nil = closed
	ctx     context.Context
	layers  *Layers
	id      model.SeriesNumber
	kind    model.Kind
	options store.ReadOptions
	nowMS   int64

	keepExpired bool // see OpenFiles
	hidesStale  bool // markers of staleness are not shown

	flip int64 // -1 descending, 0 ascending

	sources []*source // oldest samples first: a later one wins
	heads   []*source // scratch
	hiding  *Deletions
	spare   []*source
	kept    []*source // sources over files that earlier series used, see fileSource
	lent    bool      // iterators belong to a merge
	started bool
	left    int // samples until the limit
	err     error

	decoder chunk.Decoder
	gather  model.Columns
	block   store.Block
	runs    []model.Stats
	cut     chunk.Cut
	shown   model.Columns // columns that the last block shows, if it was returned without copying
	sparing model.Columns // for filtering and reversing
}

// source is one place that has samples of the series.
type source struct {
	iter      *blockfile.Iter // nil for a head
	deletions Spans           // ranges that are deleted but still stored

	run      *head.Run
	next     int // fragments of run delivered; the open samples count as the last one
	fromHead bool
	frozen   bool

	// The current chunk, while packed: not decoded.
	packed   bool
	entry    *chunk.Entry  // of a file
	fragment head.Fragment // of a head

	cols        model.Columns
	nan         bool  // cols may have NaN
	at, end     int   // samples of cols still to deliver
	first, last int64 // order() of the current chunk's first and last sample
	done        bool
}

// A Pool keeps closed cursors for later reads. The zero Pool is ready for use.
type Pool struct {
	cursors sync.Pool // *Cursor
}

// Read returns a cursor over the samples of a series in all layers, without
// samples that have expired at nowMS. The layers must stay until the cursor is
// closed.
func (p *Pool) Read(ctx context.Context, layers *Layers, nowMS int64, id model.SeriesNumber, kind model.Kind, o store.ReadOptions) *Cursor {
	c, ok := p.cursors.Get().(*Cursor)
	if !ok {
		c = &Cursor{}
	}
	c.pool, c.ctx, c.layers, c.id, c.kind, c.options = p, ctx, layers, id, kind, o
	c.nowMS = nowMS
	c.flip, c.started, c.err, c.keepExpired = 0, false, nil, false
	c.hidesStale = kind == model.Double && !o.Stale
	if o.Descending {
		c.flip = -1
	}
	c.left = math.MaxInt
	if o.Limit > 0 {
		c.left = o.Limit
	}
	return c
}

// Close implements store.Cursor.
func (c *Cursor) Close() {
	if c.pool == nil {
		return
	}
	p, large := c.pool, false
	for _, src := range slices.Backward(c.sources) {
		src.entry, src.fragment = nil, head.Fragment{}
		if src.run != nil && src.run.Release() {
			large = true
		}
		if src.iter != nil && !c.lent {
			c.kept = append(c.kept, src)
		} else {
			c.spare = append(c.spare, src)
		}
	}
	if large {
		*c = Cursor{err: store.ErrClosed}
		return
	}
	c.sources, c.hiding, c.lent = c.sources[:0], nil, false
	c.pool, c.layers, c.ctx, c.err = nil, nil, nil, store.ErrClosed
	c.options.Summarize, c.options.Hold = nil, nil
	p.cursors.Put(c)
}

// order maps times so that the wanted direction is ascending.
func (c *Cursor) order(ms int64) int64 { return ms ^ c.flip }

// Next implements store.Cursor.
func (c *Cursor) Next() (*store.Block, error) {
	if c.err != nil {
		return nil, c.err
	}
	b, err := c.advance()
	if err != nil {
		c.err = err
		c.layers.Failed(err)
	}
	return b, err
}

func (c *Cursor) advance() (*store.Block, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	if !c.started {
		c.started = true
		if err := c.open(); err != nil {
			return nil, err
		}
	}
	c.gather.Reset()
	c.runs = c.runs[:0]
	for c.left > 0 {
		src, bound, others := c.lowest()
		if src == nil {
			break
		}
		if src.packed {
			if c.summarizes(src, bound, others) {
				if c.gather.Len() > 0 {
					return c.gathered(), nil
				}
				if done, err := c.summarize(src); done || err != nil {
					return c.summary(), err
				}
				continue
			}
			if len(c.runs) > 0 {
				return c.summary(), nil
			}
			if err := c.decode(src); err != nil {
				return nil, err
			}
			continue
		}
		if len(c.runs) > 0 {
			return c.summary(), nil
		}
		if others && src.first == bound {
			if err := c.settle(bound); err != nil {
				return nil, err
			}
			continue
		}
		n := c.runLength(src, bound, others)
		if (n >= longRun || n == src.end-src.at && !others) && !c.anyHidden(src, n) {
			if c.gather.Len() > 0 {
				return c.gathered(), nil
			}
			return c.hand(src, n)
		}
		c.collect(src, n)
		if err := c.skip(src, n); err != nil {
			return nil, err
		}
		if c.gather.Len() >= blockSamples || len(c.gather.Data) >= blockBytes {
			break
		}
	}
	switch {
	case len(c.runs) > 0:
		return c.summary(), nil
	case c.gather.Len() > 0:
		return c.gathered(), nil
	}
	return nil, nil
}

// open collects the sources and loads the first chunk of each.
func (c *Cursor) open() error {
	r := c.options.Range
	if r.StartMS > r.EndMS {
		return nil
	}
	heads, err := c.snapshotHeads()
	if err != nil {
		return err
	}
	c.hiding = c.layers.Deletions() // after the heads
	for _, f := range c.layers.Files {
		if f.StepMS != 0 || !f.Range().Overlaps(r) || !f.Series.Contains(uint32(c.id)) {
			continue
		}
		src := c.fileSource(f)
		c.sources = append(c.sources, src)
		src.iter.Seek(c.id, r, c.options.Descending)
		src.deletions = c.hiding.Hidden(src.deletions, c.id, f.Deletions, f.Range())
	}
	for _, src := range heads {
		if src.frozen {
			src.deletions = c.hiding.Hidden(src.deletions, c.id, c.layers.FrozenDeletions, r)
		}
	}
	c.sources = append(c.sources, heads...)
	return c.loadAll()
}

// snapshotHeads returns the sources of the frozen and the active head, in this
// order.
func (c *Cursor) snapshotHeads() ([]*source, error) {
	heads := c.heads[:0]
	for _, h := range []*head.Head{c.layers.Frozen, c.layers.Active} {
		if h == nil {
			continue
		}
		span, ok := h.Span(c.id)
		if !ok || !span.Overlaps(c.options.Range) {
			continue
		}
		src := c.source()
		if src.run == nil {
			src.run = &head.Run{}
		}
		src.fromHead, src.frozen = true, h == c.layers.Frozen
		heads = append(heads, src)
		src.run.Hold = c.options.Hold
		if _, err := h.Snapshot(c.id, c.options.Range, src.run); err != nil {
			for _, src := range heads {
				src.run.Release()
			}
			return nil, err
		}
	}
	c.heads = heads
	return heads, nil
}

// OpenFiles makes c a cursor over the files of some iterators only, for a merge,
// which walks through each file once. keepExpired keeps expired samples, which
// may hide older ones in files that do not take part. It is called before Next.
func (c *Cursor) OpenFiles(iters []*blockfile.Iter, keepExpired bool) error {
	c.keepExpired = keepExpired
	c.started, c.lent = true, true
	c.hiding = c.layers.Deletions()
	for _, it := range iters {
		f := it.File()
		if !f.Series.Contains(uint32(c.id)) {
			continue
		}
		src := c.source()
		c.sources = append(c.sources, src)
		src.iter = it
		it.Seek(c.id, c.options.Range, false)
		src.deletions = c.hiding.Hidden(src.deletions, c.id, f.Deletions, f.Range())
	}
	if c.err = c.loadAll(); c.err != nil {
		c.layers.Failed(c.err)
	}
	return c.err
}

func (c *Cursor) loadAll() error {
	for _, src := range c.sources {
		if err := c.load(src); err != nil {
			return err
		}
	}
	return nil
}

// maxKept bounds the sources over files that a cursor keeps, each with a page, beside those of
// the series with the most files.
const maxKept = 64

// fileSource returns a source with an iterator over f, if possible the one that
// the cursor used for an earlier series: series that are read by ascending id
// then walk through a page only once, instead of each from the start of the
// page.
func (c *Cursor) fileSource(f *blockfile.File) *source {
	for i, src := range slices.Backward(c.kept) { // the last one, if files come in their order
		if src.iter.File() == f {
			c.kept = slices.Delete(c.kept, i, i+1)
			src.reset()
			return src
		}
	}
	if len(c.kept) >= maxKept {
		c.spare = append(c.spare, c.kept[0])
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	src := c.source()
	src.iter = f.Iter(true)
	return src
}

func (c *Cursor) source() *source {
	var src *source
	if n := len(c.spare); n > 0 {
		src, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		src = &source{}
	}
	src.reset()
	src.iter = nil
	return src
}

// reset prepares for another series.
func (s *source) reset() {
	s.packed, s.entry, s.fragment = false, nil, head.Fragment{}
	s.next, s.done, s.fromHead, s.frozen = 0, false, false, false
	s.at, s.end = 0, 0
	s.deletions = s.deletions[:0]
}

// load makes src's next chunk current, without decoding it.
func (c *Cursor) load(src *source) error {
	src.at, src.end = 0, 0
	if src.fromHead {
		c.loadHead(src)
		return nil
	}
	e, err := c.nextEntry(src)
	if err != nil {
		return err
	}
	src.packed, src.entry = false, e
	if src.done = e == nil; !src.done {
		c.pack(src, e.FirstMS, e.LastMS)
	}
	return nil
}

// pack records that src's current chunk has the given times and is not decoded.
func (c *Cursor) pack(src *source, firstMS, lastMS int64) {
	src.packed = true
	src.first, src.last = c.order(firstMS), c.order(lastMS)
	if c.flip != 0 {
		src.first, src.last = src.last, src.first
	}
}

// nextEntry returns src's next chunk of a file that is not deleted as a whole.
func (c *Cursor) nextEntry(src *source) (*chunk.Entry, error) {
	for skipped := 1; ; skipped++ {
		e, err := src.iter.Next()
		if err != nil || e == nil || !src.deletions.cover(model.TimeRange{StartMS: e.FirstMS, EndMS: e.LastMS}) {
			return e, err
		}
		if skipped%256 == 0 && c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
	}
}

// loadHead makes the next fragment current, or the open samples if any are wanted.
func (c *Cursor) loadHead(src *source) {
	for src.next <= len(src.run.Fragments) {
		i := src.next
		if c.flip != 0 {
			i = len(src.run.Fragments) - src.next
		}
		src.next++
		if i < len(src.run.Fragments) {
			src.fragment = src.run.Fragments[i]
			c.pack(src, src.fragment.FirstMS, src.fragment.LastMS)
			return
		}
		src.nan = true
		src.cols, src.run.Open = src.run.Open, src.cols
		if c.prepare(src) {
			return
		}
	}
	src.done = true
}

// decode turns src's current chunk into samples, or moves on if none are wanted.
func (c *Cursor) decode(src *source) error {
	src.cols.Reset()
	src.nan = src.fromHead || !src.entry.HasStats
	if src.fromHead {
		if err := c.decodeFragments(src); err != nil {
			return err
		}
	} else if err := c.decoder.DecodeEntry(src.entry, &src.cols); err != nil {
		return src.iter.Corrupt(err)
	}
	src.packed, src.entry = false, nil
	if c.prepare(src) {
		return nil
	}
	return c.load(src)
}

// decodeFragments decodes src's current fragment, and those after it that make a block,
// unless the order of reading or the answer by statistics wants them one by one.
func (c *Cursor) decodeFragments(src *source) error {
	err := src.run.Decode(src.fragment, &src.cols)
	for err == nil && c.flip == 0 && c.options.Summarize == nil &&
		src.next < len(src.run.Fragments) && src.cols.Len() < min(blockSamples, c.left) && len(src.cols.Data) < blockBytes {
		err = src.run.Decode(src.run.Fragments[src.next], &src.cols)
		src.next++
	}
	return err
}

// prepare brings src's decoded samples into the wanted order and removes those
// that are unwanted or deleted. It reports whether any remain.
func (c *Cursor) prepare(src *source) bool {
	c.dropDeleted(src)
	from, to := src.cols.Within(c.options.Range)
	if from >= to {
		return false
	}
	if c.flip != 0 {
		from, to = c.reverse(src, from, to)
	}
	src.at, src.end = from, to
	src.first, src.last = c.order(src.cols.Times[src.at]), c.order(src.cols.Times[src.end-1])
	return true
}

func (c *Cursor) dropDeleted(src *source) {
	if len(src.deletions) == 0 {
		return
	}
	times := src.cols.Times
	src.cols.Drop(&c.sparing, func(i int) bool { return src.deletions.contain(times[i]) })
}

// reverse reverses the order of some of src's samples, and returns their new place.
func (c *Cursor) reverse(src *source, from, to int) (int, int) {
	part := src.cols.Slice(from, to)
	part.Reverse(&c.sparing)
	if !c.kind.Variable() {
		return from, to // in place
	}
	src.cols, c.sparing = part, src.cols
	return 0, to - from
}

// lowest returns the source whose next sample comes first (of several, one that
// is not decoded yet), and where the next sample of any other may be.
func (c *Cursor) lowest() (src *source, bound int64, others bool) {
	bound = math.MaxInt64
	for _, s := range c.sources {
		if s.done {
			continue
		}
		if src == nil {
			src = s
			continue
		}
		other := s
		if s.first < src.first || s.first == src.first && !src.packed && s.packed {
			src, other = s, src
		}
		bound, others = min(bound, other.first), true
	}
	return src, bound, others
}

// settle drops the samples at one time of all sources but the newest.
func (c *Cursor) settle(at int64) error {
	var newest *source
	for i := len(c.sources) - 1; i >= 0; i-- {
		s := c.sources[i]
		if s.done || s.first != at {
			continue
		}
		if newest == nil {
			newest = s
			continue
		}
		if err := c.skip(s, 1); err != nil {
			return err
		}
	}
	return nil
}

// skip moves src past n samples.
func (c *Cursor) skip(src *source, n int) error {
	src.at += n
	if src.at == src.end {
		return c.load(src)
	}
	src.first = c.order(src.cols.Times[src.at])
	return nil
}

// collect copies src's next n samples that have not expired and may be shown. Expired
// and hidden samples are left out only here, after they have hidden older samples of the
// same time: those were overwritten, and must not reappear.
func (c *Cursor) collect(src *source, n int) {
	for i := src.at; i < src.at+n; i++ {
		if !c.hidden(src, i) {
			c.gather.AppendFrom(c.kind, &src.cols, i)
			c.left--
		}
	}
}

// hidden reports whether a sample has expired or is a marker that is not shown.
func (c *Cursor) hidden(src *source, i int) bool {
	return c.expired(src, i) || c.hidesStale && src.cols.Values[i] == model.StaleMarker
}

func (c *Cursor) expired(src *source, i int) bool {
	return !c.keepExpired && model.ExpiryMS(src.cols.Times[i], src.cols.TTL(i)) <= c.nowMS
}

// anyHidden reports whether one of src's next n samples is hidden.
func (c *Cursor) anyHidden(src *source, n int) bool {
	if c.hidesStale && src.nan && model.HasStale(src.cols.Values[src.at:src.at+n]) {
		return true
	}
	if len(src.cols.TTLs) == 0 {
		return false
	}
	for i := src.at; i < src.at+n; i++ {
		if c.expired(src, i) {
			return true
		}
	}
	return false
}

// runLength counts src's next samples that come before bound, within the limit.
func (c *Cursor) runLength(src *source, bound int64, others bool) int {
	n := src.end - src.at
	if others && src.last >= bound {
		times := src.cols.Times[src.at:src.end]
		n = sort.Search(len(times), func(i int) bool { return c.order(times[i]) >= bound })
	}
	return min(n, c.left)
}

// hand returns src's next n samples without copying them. They stay valid until
// the next call: only then does src move on.
func (c *Cursor) hand(src *source, n int) (*store.Block, error) {
	from, to := src.at, src.at+n
	b := &c.block
	b.Stats, b.Columns = nil, src.cols.Slice(from, to)
	c.left -= n
	if to < src.end {
		return b, c.skip(src, n)
	}
	return b, c.handedOver(src)
}

// handedOver swaps out the columns that a block shows, and loads src's next
// chunk.
func (c *Cursor) handedOver(src *source) error {
	src.cols, c.shown = c.shown, src.cols
	return c.load(src)
}

func (c *Cursor) gathered() *store.Block {
	c.block = store.Block{Columns: c.gather}
	return &c.block
}

// summarizes reports whether statistics can replace src's current chunk: no other
// source has samples between its first and last, and the whole chunk is visible.
func (c *Cursor) summarizes(src *source, bound int64, others bool) bool {
	if c.options.Summarize == nil || c.options.Limit > 0 || !c.kind.Fixed() || others && src.last >= bound {
		return false
	}
	if e := src.entry; e != nil && (e.HasTTL || c.sparse(e)) {
		return false // part of it may have expired, or samples cost less than their statistics
	}
	if len(src.deletions) == 0 {
		return true
	}
	span := model.TimeRange{StartMS: c.order(src.first), EndMS: c.order(src.last)}
	if c.flip != 0 {
		span.StartMS, span.EndMS = span.EndMS, span.StartMS
	}
	return !src.deletions.overlap(span)
}

// sparse reports whether most spans have at most one sample of a chunk, according to its
// mean step. There, statistics take nine words per sample, and columns two.
func (c *Cursor) sparse(e *chunk.Entry) bool {
	final := c.options.Summarize.Final
	first, last := max(e.FirstMS, c.options.Range.StartMS), min(e.LastMS, c.options.Range.EndMS)
	if e.Count < 2 || first >= last {
		return false
	}
	end := final(first)
	if end >= last {
		return false // all samples are in one span
	}
	step := (uint64(e.LastMS) - uint64(e.FirstMS)) / uint64(e.Count-1)
	return (uint64(final(end+1))-uint64(end))/2 < step
}

// summarize appends the statistics of src's current chunk to c.runs and moves on to
// the next chunk. done reports that c.runs must be returned now.
func (c *Cursor) summarize(src *source) (done bool, err error) {
	c.cut = chunk.Cut{Range: c.options.Range, Final: c.options.Summarize.Final, Needs: c.options.Summarize.Needs}
	before, e := len(c.runs), src.entry
	switch {
	case e != nil && e.HasStats && c.cut.Range.StartMS <= e.FirstMS && e.LastMS <= c.cut.Range.EndMS && e.LastMS <= c.cut.Final(e.FirstMS):
		c.runs = append(c.runs, e.Stats)
	case e != nil:
		if c.runs, err = c.decoder.ReduceEntry(e, &c.cut, c.runs); err != nil {
			return true, src.iter.Corrupt(err)
		}
	default:
		ok := false
		if c.runs, ok, err = src.run.Reduce(src.fragment, &c.cut, c.runs); err != nil {
			return true, err
		}
		if !ok {
			return len(c.runs) > 0, c.decode(src)
		}
	}
	if c.flip != 0 {
		slices.Reverse(c.runs[before:])
	}
	src.packed = false
	err = c.load(src)
	return len(c.runs) >= blockRuns, err
}

func (c *Cursor) summary() *store.Block {
	c.block = store.Block{Stats: c.runs}
	return &c.block
}
