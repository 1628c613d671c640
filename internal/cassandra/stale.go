package cassandra

import (
	"math"

	"varve/internal/model"
	"varve/internal/store"
)

// A withoutStale cursor removes staleness markers from a series. The limit of the cursor below
// counts markers, so withoutStale opens another cursor after the last sample for as many
// samples as it has removed. It does not do this for a limit per row: only KairosDB's API uses
// that, and KairosDB cannot read markers.
type withoutStale struct {
	store.Cursor
	open    func(store.ReadOptions) store.Cursor
	options store.ReadOptions // of the current cursor
	perRow  bool              // the limit applies to each row

	read   int   // samples read from the current cursor
	lastMS int64 // time of the last of them
	hidden int   // how many of them are markers
	shown  model.Columns
	spare  model.Columns
	out    store.Block
}

// hideStale opens a cursor without staleness markers, unless o requests them.
func hideStale(kind model.Kind, o store.ReadOptions, perRow bool, open func(store.ReadOptions) store.Cursor) store.Cursor {
	if o.Stale || kind != model.Double {
		return open(o)
	}
	return &withoutStale{Cursor: open(o), open: open, options: o, perRow: perRow}
}

// Next implements store.Cursor.
func (c *withoutStale) Next() (*store.Block, error) {
	for {
		b, err := c.Cursor.Next()
		switch {
		case err != nil:
			return nil, err
		case b == nil && c.reopen():
			continue
		case b == nil || b.Stats != nil:
			return b, nil
		}
		c.read, c.lastMS = c.read+b.Len(), b.Times[b.Len()-1]
		if !model.HasStale(b.Values) {
			return b, nil
		}
		if b = c.drop(b); b.Len() > 0 {
			return b, nil
		}
	}
}

// drop returns the block b without markers.
func (c *withoutStale) drop(b *store.Block) *store.Block {
	c.shown.Reset()
	c.shown.Append(&b.Columns, 0, b.Len())
	c.shown.DropStale(&c.spare)
	c.hidden += b.Len() - c.shown.Len()
	c.out = store.Block{Columns: c.shown}
	return &c.out
}

// reopen continues after the last sample if the limit has ended the current cursor and markers
// were counted.
func (c *withoutStale) reopen() bool {
	o := c.options
	if c.perRow || o.Limit <= 0 || c.hidden == 0 || c.read < o.Limit {
		return false
	}
	end, step := o.Range.EndMS, int64(1)
	if o.Descending {
		end, step = o.Range.StartMS, -1
	}
	if c.lastMS == end || c.lastMS == math.MaxInt64 && step > 0 {
		return false
	}
	if o.Descending {
		o.Range.EndMS = c.lastMS - 1
	} else {
		o.Range.StartMS, o.Exact = c.lastMS+1, true // else it may begin with the last sample again
	}
	o.Limit, c.hidden, c.read = c.hidden, 0, 0
	c.Cursor.Close()
	c.Cursor, c.options = c.open(o), o
	return true
}
