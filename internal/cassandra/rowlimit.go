package cassandra

import (
	"varve/internal/model"
	"varve/internal/store"
)

// A rowLimited hands out so many samples of each row, as KairosDB does over
// Cassandra, not so many of the series.
type rowLimited struct {
	store.Cursor // reads at least so many of each row
	kind         model.Kind
	limit        int
	rowOf        func(ms int64) int64

	begun bool
	row   int64 // of the last sample
	left  int   // samples of that row that may still be handed out
	out   store.Block
}

// Next implements store.Cursor. Rows are gathered into one block, so that a small
// limit is read, and counted, in all of them although the first fills it.
func (c *rowLimited) Next() (*store.Block, error) {
	c.out.Reset()
	for c.out.Len() < blockSamples {
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
