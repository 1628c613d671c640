package cassandra

import (
	"varve/internal/model"
	"varve/internal/store"
)

// A rowLimited cursor applies the limit to each row, as KairosDB does over Cassandra, not to
// the series.
type rowLimited struct {
	store.Cursor // returns at least that many samples of each row
	kind         model.Kind
	limit        int
	rowOf        func(ms int64) int64

	begun bool
	row   int64 // of the last sample
	left  int   // remaining samples of that row
	out   store.Block
}

// Next implements store.Cursor. Rows are collected into one block, so that with a small limit
// all of them are read, and counted, although the first row alone would satisfy the caller.
func (c *rowLimited) Next() (*store.Block, error) {
	c.out.Reset()
	for c.out.Len() < blockSamples && len(c.out.Data) < blockBytes {
		b, err := c.Cursor.Next()
		if err != nil {
			return nil, err
		}
		if b == nil {
			break
		}
		c.take(b)
	}
	if c.out.Len() == 0 {
		return nil, nil
	}
	return &c.out, nil
}

// take adds the samples that are within the limit of their row.
func (c *rowLimited) take(b *store.Block) {
	for i, ms := range b.Times {
		if row := c.rowOf(ms); !c.begun || row != c.row {
			c.begun, c.row, c.left = true, row, c.limit
		}
		if c.left > 0 {
			c.left--
			c.out.AppendFrom(c.kind, &b.Columns, i)
		}
	}
}
