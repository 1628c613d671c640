package cassandra

import (
	"context"

	"varve/internal/cassandra/layout"
	"varve/internal/model"
	"varve/internal/store"
)

// A loan is a cluster that a store reads and deletes from, although another store owns it.
type loan struct {
	*cluster
	lender *Store // writes to the cluster, and its spool has samples for it; nil if the cluster is only read
}

// writerOf returns the store whose spool has the samples that wait for a cluster.
func (s *Store) writerOf(c *cluster) *Store {
	for _, l := range s.lent {
		if l.cluster == c && l.lender != nil {
			return l.lender
		}
	}
	return s
}

// borrow adds a loan to the view: after a change of rules, samples of its metrics may be in the
// lender's keyspace, and in its spool.
func (v *view) borrow(ctx context.Context, l loan) error {
	if l.lender == nil {
		v.keyspaces = append(v.keyspaces, newKeyspace(l.cluster))
		return nil
	}
	one, err := l.lender.viewOf(ctx, []*cluster{l.cluster})
	if err != nil {
		return err
	}
	v.lent = append(v.lent, one)
	v.keyspaces = append(v.keyspaces, &keyspace{cluster: l.cluster, look: lentLook{one}})
	return nil
}

// A lentLook looks into the spool and the keyspace of a lender.
type lentLook struct{ of *view }

// Current implements layout.Look.
func (l lentLook) Current() { l.of.ReadCurrent() }

// Select implements layout.Look.
func (l lentLook) Select(ctx context.Context, sel store.Selection) (layout.Found, error) {
	sel.AnyOrder = true
	found, err := l.of.find(ctx, sel)
	if err != nil {
		return nil, err
	}
	return lentFound{found, l.of}, nil
}

// Names implements layout.Look.
func (l lentLook) Names(ctx context.Context, q store.NamesQuery) ([]string, bool, error) {
	return l.of.Names(ctx, q)
}

// RowOf implements layout.Look.
func (l lentLook) RowOf(ms int64) int64 {
	if look := l.of.keyspaces[0].look; look != nil {
		return look.RowOf(ms)
	}
	return 0 // as in view.rowOf
}

// Counts implements layout.Look.
func (l lentLook) Counts() []store.Count {
	if look := l.of.keyspaces[0].look; look != nil {
		return look.Counts()
	}
	return nil
}

// lentFound are the series that a lentLook has found.
type lentFound struct {
	*selection
	of *view
}

// Series implements layout.Found.
func (f lentFound) Series(place int) model.Series { return f.series(f.of.pending, place) }

// Len implements layout.Found.
func (f lentFound) Len() int { return f.len() }

// Open implements layout.Found. The borrowing view reads ahead, so the rows are not read ahead here.
func (f lentFound) Open(ctx context.Context, place int, o store.ReadOptions) store.Cursor {
	return &lateCursor{open: func() store.Cursor {
		sel := f.of.selectedAt(f.selection, place)
		return f.of.openStream(ctx, sel, o, func(o store.ReadOptions, hidden int) *stream {
			if o.Limit > 0 {
				o.Limit += hidden
			}
			return newStream(ctx, sel, o)
		})
	}}
}

// A lateCursor is opened by its first Next, since opening it reads the spool.
type lateCursor struct {
	open func() store.Cursor
	store.Cursor
}

// Next implements store.Cursor.
func (c *lateCursor) Next() (*store.Block, error) {
	if c.Cursor == nil {
		c.Cursor = c.open()
	}
	return c.Cursor.Next()
}

// Close implements store.Cursor.
func (c *lateCursor) Close() {
	if c.Cursor != nil {
		c.Cursor.Close()
	}
}
