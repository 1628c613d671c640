package embedded

import "varve/internal/store"

// A noted cursor records in a log which samples it has read.
type noted struct {
	store.Cursor
	log *store.StageLog
}

// note returns a cursor that records in log, if there is one, which samples it has read.
func note(c store.Cursor, log *store.StageLog) store.Cursor {
	if log == nil {
		return c
	}
	return &noted{c, log}
}

// Next implements store.Cursor.
func (n *noted) Next() (*store.Block, error) {
	b, err := n.Cursor.Next()
	n.log.AddBlock(b)
	return b, err
}
