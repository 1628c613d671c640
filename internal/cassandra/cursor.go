package cassandra

import (
	"context"
	"math"

	"varve/internal/store"
)

// blockSamples is the size of blocks that combine samples of the spool and the keyspace. Those of texts end
// soon after blockBytes.
const (
	blockSamples = 1024
	blockBytes   = 256 << 10
)

// Read implements store.View.
func (v *view) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if err := v.life.Check(ctx); err != nil {
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
	held, bytes, err := v.heldOf(sel, o)
	if err != nil {
		v.release(bytes)
		return failed{err}
	}
	kind, nowMS := sel.series.Type.Kind(), v.store.now().UnixMilli()
	perRow := v.store.cfg.LimitPerRow && o.Limit > 0
	c := &cursor{ctx: ctx, left: o.Limit, view: v, held: bytes}
	if perRow || o.Limit <= 0 {
		c.left = math.MaxInt
	}
	if held.Len() == 0 {
		c.Cursor = rows(o, 0)
	} else {
		o.Summarize = nil // samples of the spool may replace others
		c.Cursor = &mergedSource{kind: kind, descending: o.Descending, nowMS: nowMS,
			inputs: []*input{{source: failed{}, block: &store.Block{Columns: held}}, {source: rows(o, countExpired(&held, nowMS))}}}
	}
	if perRow {
		return &rowLimited{Cursor: c, kind: kind, limit: o.Limit, rowOf: v.rowOf(sel)}
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

// A failed cursor has no samples.
type failed struct{ err error }

func (f failed) Next() (*store.Block, error) { return nil, f.err }
func (failed) Close()                        {}

// A cursor limits the samples of a series.
type cursor struct {
	store.Cursor
	ctx  context.Context
	left int // remaining samples
	view *view
	held int64 // bytes of the spool's samples, of the memory of the request
	err  error
	out  store.Block
}

// Next implements store.Cursor.
func (c *cursor) Next() (*store.Block, error) {
	for c.err == nil && c.left > 0 {
		if c.err = c.ctx.Err(); c.err != nil {
			break
		}
		b, err := c.Cursor.Next()
		if c.err = err; err != nil || b == nil || b.Stats != nil {
			return b, err
		}
		c.out = store.Block{Columns: b.Slice(0, min(b.Len(), c.left))}
		if c.left -= c.out.Len(); c.out.Len() > 0 {
			return &c.out, nil
		}
	}
	return nil, c.err
}

// Close implements store.Cursor.
func (c *cursor) Close() {
	c.Cursor.Close()
	c.view.release(c.held)
	c.held = 0
}
