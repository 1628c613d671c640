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

// Next implements store.Cursor.
func (c *rowLimited) Next() (*store.Block, error) {
	for {
		b, err := c.Cursor.Next()
		if err != nil || b == nil {
			return b, err
		}
		if b = c.cut(b); b.Len() > 0 {
			return b, nil
		}
	}
}

// cut takes the samples out that are beyond the limit of their row.
func (c *rowLimited) cut(b *store.Block) *store.Block {
	c.out.Reset()
	for i, ms := range b.Times {
		if row := c.rowOf(ms); !c.begun || row != c.row {
			c.begun, c.row, c.left = true, row, c.limit
		}
		if c.left > 0 {
			c.left--
			c.out.AppendFrom(c.kind, &b.Columns, i)
		}
	}
	return &c.out
}
