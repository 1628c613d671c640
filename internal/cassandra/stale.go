package cassandra

import (
	"math"

	"varve/internal/model"
	"varve/internal/store"
)

// A withoutStale leaves the markers of staleness out of a series. Rows are read up to a
// limit that counts them, so it opens another cursor behind the last sample for as many as
// it has left out. A limit of each row is not made up for: only KairosDB has it, and that
// reads no markers.
type withoutStale struct {
	store.Cursor
	open    func(store.ReadOptions) store.Cursor
	options store.ReadOptions // of the current cursor
	perRow  bool              // the limit is that of each row

	read   int   // samples of the current cursor
	lastMS int64 // of the last of them
	hidden int   // of them, markers
	shown  model.Columns
	spare  model.Columns
	out    store.Block
}

// hideStale opens a cursor without markers of staleness, if o does not ask for them.
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

// drop returns a block without the markers of b.
func (c *withoutStale) drop(b *store.Block) *store.Block {
	c.shown.Reset()
	c.shown.Append(&b.Columns, 0, b.Len())
	c.shown.DropStale(&c.spare)
	c.hidden += b.Len() - c.shown.Len()
	c.out = store.Block{Columns: c.shown}
	return &c.out
}

// reopen goes on behind the last sample, if the limit has ended the current cursor
// and markers counted against it.
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
		o.Range.StartMS = c.lastMS + 1
	}
	o.Limit, c.hidden, c.read = c.hidden, 0, 0
	c.Cursor.Close()
	c.Cursor, c.options = c.open(o), o
	return true
}
