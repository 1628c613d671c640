package write

import (
	"context"
	"slices"
	"sync"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/work"
)

// tagRows are the rows of varve_row_index.
func (w *indexWriter) tagRows(p *indexPart, rows []Row, ttl int) [][]cql.Entry {
	if !w.ks.Tables.Own {
		return nil
	}
	keys := func(yield func(rowkey.Key) bool) {
		for i := range rows {
			if !yield(rows[i].key()) {
				return
			}
		}
	}
	return rowkey.TagRowBatches(p.Metric, p.TimeMS, keys, w.ks.IndexShards, ttl)
}

// rowKeys are the rows of row_keys, in batches, with the mark if it may be
// missing. A node that does not write varve_row_index updates mtime, as KairosDB does:
// otherwise another node, which opened the keyspace when it had that table, may take the
// index for complete.
func (w *indexWriter) rowKeys(p *indexPart, rows []Row, ttl int) [][]cql.Entry {
	entries := make([]cql.Entry, 0, len(rows)+1)
	insert := insertRowKey
	switch {
	case !w.ks.Tables.Own:
		insert = insertRowKeyMoved
	case !p.known:
		entries = append(entries, cql.Entry{Statement: insertRowKeysMark, Args: []any{ttl, schema.WroteHere, p.Metric, schema.DataPoints, p.TimeMS}})
	}
	for i := range rows {
		s := &rows[i].Series
		entries = append(entries, cql.Entry{Statement: insert,
			Args: []any{p.Metric, schema.DataPoints, p.TimeMS, string(s.Type), cql.TagMap{Tags: s.Tags}, ttl}})
	}
	return rowkey.CutBatches(entries)
}

// tagIndexed are the rows of tag_indexed_row_keys, in batches of one partition.
func (w *indexWriter) tagIndexed(rows []Row, ttl int) [][]cql.Entry {
	rules := w.rules()
	if names, all := rules.indexed(rows[0].Series.Metric); !w.ks.Tables.TagIndexedRowKeys || len(names) == 0 && !all {
		return nil
	}
	groups := rowkey.Groups[string]{}
	for i := range rows {
		s := &rows[i].Series
		row := rules.row(s.Metric, s.Tags)
		for _, pair := range row.pairs {
			groups.Add(pair, insertTagIndexedRowKey,
				s.Metric, schema.DataPoints, rows[i].RowTimeMS, pair, string(s.Type), int(row.hash), cql.TagMap{Tags: s.Tags}, ttl)
		}
	}
	return groups.Batches()
}

// sendAll sends batches of one partition each, several at once, and waits for all of them.
// Failed batches are recorded in lost. After several failures in a row, the rest is not
// sent. sendAll returns the error of ctx, or of a row that all row keys share.
func (w *indexWriter) sendAll(ctx context.Context, p *indexPart, batches [][]cql.Entry, lost *lostRows) error {
	joined := slices.Collect(slices.Chunk(batches, 1))
	if !p.apart {
		joined = rowkey.JoinBatches(batches, w.ks.Session.Place)
	}
	lost.inRow = 0
	return work.Parallel(ctx, indexParallel, len(joined), "write index rows", func(ctx context.Context, i int) error {
		if lost.hopeless() {
			return lost.add(joined[i], nil)
		}
		rows, err := rowkey.SendJoined(ctx, w.ks.Session.Batch, p.stampMS, joined[i])
		w.metrics.indexRows.Add(float64(rows))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return lost.add(joined[i], err)
		}
		lost.wrote()
		return nil
	})
}

// lostRows are row keys of which an index row could not be written.
type lostRows struct {
	mu    sync.Mutex
	keys  map[rowkey.Key]bool
	err   error // why the first of them was not; that of a refusal, if there is one
	inRow int   // batches that failed since one was written
}

// keyPlaces says where statements have the type and the tags of their row key.
var keyPlaces = map[*cql.Statement][2]int{
	rowkey.InsertTagRow: {5, 6}, insertRowKey: {3, 4}, insertRowKeyMoved: {3, 4}, insertTagIndexedRowKey: {4, 6},
}

func (l *lostRows) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inRow = 0
}

// add notes that batches are not written; err is nil if they were not tried. It returns
// an error if a row is among them that all row keys need.
func (l *lostRows) add(batches [][]cql.Entry, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inRow++
	if l.err == nil || refusalOf(err) != nil && refusalOf(l.err) == nil {
		l.err = err
	}
	for _, e := range slices.Concat(batches...) {
		at, ok := keyPlaces[e.Statement]
		if !ok {
			return l.err
		}
		l.keys[rowkey.Key{Type: model.Type(e.Args[at[0]].(string)), Tags: e.Args[at[1]].(cql.TagMap).Tags}] = true
	}
	return nil
}

// hopeless reports whether the rest is not worth trying: the replicas of all that was
// tried lately are away.
func (l *lostRows) hopeless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inRow >= hopelessAfter
}

// rest returns the rows that are not lost.
func (l *lostRows) rest(rows []Row) []Row {
	if len(l.keys) == 0 {
		return rows
	}
	var rest []Row
	for i := range rows {
		if !l.keys[rows[i].key()] {
			rest = append(rest, rows[i])
		}
	}
	return rest
}

// places says where in rows those are that are lost.
func (l *lostRows) places(rows []Row) []int {
	var places []int
	for i := range rows {
		if l.keys[rows[i].key()] {
			places = append(places, i)
		}
	}
	return places
}
