package cassandra

import (
	"context"
	"math"

	"varve/internal/model"
	"varve/internal/store"
)

// blockSamples is the size of blocks that combine samples of the spool and the keyspace.
const blockSamples = 1024

// Read implements store.View.
func (v *view) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if err := v.check(ctx); err != nil {
		return failed{err}
	}
	return hideStale(s.Type.Kind(), o, v.store.cfg.LimitPerRow, func(o store.ReadOptions) store.Cursor { return v.open(ctx, s, o) })
}

// open opens a cursor that includes staleness markers.
func (v *view) open(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	sel, last := v.at(s.Ref)
	return v.openStream(ctx, sel, o, func(o store.ReadOptions, hidden int) *stream {
		return v.ahead.take(v, ctx, s.Ref, last, sel, o, hidden)
	})
}

// openStream is open with a function that opens the rows. hidden is how many of their samples may be
// hidden by samples that are not returned.
func (v *view) openStream(ctx context.Context, sel selected, o store.ReadOptions, rows func(o store.ReadOptions, hidden int) *stream) store.Cursor {
	perRow := v.store.cfg.LimitPerRow && o.Limit > 0
	c := &cursor{ctx: ctx, kind: sel.series.Type.Kind(), descending: o.Descending, left: o.Limit, nowMS: v.store.now().UnixMilli()}
	if perRow || o.Limit <= 0 {
		c.left = math.MaxInt
	}
	if c.held, c.err = v.heldOf(sel, o); c.err == nil {
		c.stream = rows(rowOptions(o, c.held.Len() > 0), countExpired(&c.held, c.nowMS))
	}
	if perRow {
		return &rowLimited{Cursor: c, kind: c.kind, limit: o.Limit, rowOf: v.rowOf(sel)}
	}
	return c
}

// rowOf returns a function that maps a time to its row: in the first keyspace that has samples
// of the series or, for samples in the spool only, in the keyspace to which they will be
// written. While that keyspace is not open, all times are in one row.
func (v *view) rowOf(sel selected) func(ms int64) int64 {
	in := v.keyspaces[0]
	if len(sel.pending) == 0 && len(sel.stored) > 0 {
		in = sel.stored[0].in
	}
	if in.look == nil {
		return func(int64) int64 { return 0 }
	}
	return in.look.RowOf
}

// rowOptions returns o for the keyspace. If the spool has samples, statistics are of no use,
// because those samples may replace others.
func rowOptions(o store.ReadOptions, pending bool) store.ReadOptions {
	if pending {
		o.Summarize = nil
	}
	return o
}

type failed struct{ err error }

func (f failed) Next() (*store.Block, error) { return nil, f.err }
func (failed) Close()                        {}

// A cursor merges a series' samples in the spool with its rows.
type cursor struct {
	ctx        context.Context
	kind       model.Kind
	descending bool
	left       int // remaining samples
	nowMS      int64
	err        error

	held   model.Columns // samples of the spool, in the wanted order
	at     int           // next element of held
	stream *stream
	block  *store.Block // present block of stream
	next   int          // next sample of block

	gather model.Columns
	out    store.Block
}

// Next implements store.Cursor.
func (c *cursor) Next() (*store.Block, error) {
	if c.err != nil || c.left == 0 {
		return nil, c.err
	}
	if c.err = c.ctx.Err(); c.err != nil {
		return nil, c.err
	}
	b, err := c.advance()
	if err != nil {
		c.err = err
		return nil, err
	}
	if b != nil && b.Stats == nil {
		c.left -= b.Len()
	}
	return b, nil
}

func (c *cursor) advance() (*store.Block, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if c.at == c.held.Len() { // the usual case: nothing to merge
		b := c.block
		if b == nil || b.Stats != nil {
			c.block = nil
			return b, nil
		}
		c.out = store.Block{Columns: b.Slice(c.next, min(b.Len(), c.next+c.left))}
		c.block = nil
		return &c.out, nil
	}
	c.gather.Reset()
	for c.gather.Len() < min(blockSamples, c.left) {
		if err := c.fill(); err != nil {
			return nil, err
		}
		if !c.mergeOne() {
			break
		}
	}
	if c.gather.Len() == 0 {
		return nil, nil
	}
	c.out = store.Block{Columns: c.gather}
	return &c.out, nil
}

// fill makes sure that block has samples, unless the rows have ended.
func (c *cursor) fill() error {
	for c.stream != nil && (c.block == nil || c.block.Stats == nil && c.next >= c.block.Len()) {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		b, err := c.stream.Next(c.ctx)
		if err != nil {
			return err
		}
		c.block, c.next = b, 0
		if b == nil {
			c.stream.Close()
			c.stream = nil
		}
	}
	return nil
}

// mergeOne appends the next sample of spool or rows to gather. A sample of the spool hides one
// of a row at the same time. If the spool's sample has expired, neither is returned.
func (c *cursor) mergeOne() bool {
	hasRow, hasHeld := c.block != nil, c.at < c.held.Len()
	switch {
	case !hasRow && !hasHeld:
		return false
	case hasRow && (!hasHeld || c.before(c.block.Times[c.next], c.held.Times[c.at])):
		c.gather.AppendFrom(c.kind, &c.block.Columns, c.next)
		c.next++
		return true
	case hasRow && c.block.Times[c.next] == c.held.Times[c.at]:
		c.next++
	}
	if !expired(&c.held, c.at, c.nowMS) {
		c.gather.AppendFrom(c.kind, &c.held, c.at)
	}
	c.at++
	return true
}

func (c *cursor) before(a, b int64) bool {
	if c.descending {
		return a > b
	}
	return a < b
}

// Close implements store.Cursor.
func (c *cursor) Close() {
	if c.stream != nil {
		c.stream.Close()
		c.stream = nil
	}
}
