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

// tagRows returns the rows of varve_row_index.
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

// rowKeys returns the rows of row_keys, in batches, with the mark schema.WroteHere if it may be
// missing. A node that does not write varve_row_index updates mtime, as KairosDB does.
// Otherwise another node, which opened the keyspace when that table existed, might consider the
// index complete.
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

// tagIndexed returns the rows of tag_indexed_row_keys, in batches of one partition.
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
// Failed batches are recorded in lost. After several failures in a row, the rest is not sent.
// sendAll returns an error only if ctx has ended or a row failed that all row keys share.
func (w *indexWriter) sendAll(ctx context.Context, p *indexPart, batches [][]cql.Entry, lost *lostRows) error {
	joined := slices.Collect(slices.Chunk(batches, 1))
	if !p.apart {
		joined = rowkey.JoinBatches(rowkey.BatchPartitions, batches, w.ks.Session.ReplicaSet)
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

// lostRows are the row keys for which an index row could not be written.
type lostRows struct {
	mu    sync.Mutex
	keys  map[rowkey.Key]bool
	err   error // the first error, but a refusal takes precedence
	inRow int   // batches that have failed since the last success
}

// keyArgs has the positions of the row key's type and tags among a statement's arguments.
var keyArgs = map[*cql.Statement][2]int{
	rowkey.InsertTagRow: {5, 6}, insertRowKey: {3, 4}, insertRowKeyMoved: {3, 4}, insertTagIndexedRowKey: {4, 6},
}

func (l *lostRows) wrote() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inRow = 0
}

// add records batches that were not written; err is nil if they were not sent. It returns an
// error if they contain a row that all row keys need.
func (l *lostRows) add(batches [][]cql.Entry, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inRow++
	if l.err == nil || refusalOf(err) != nil && refusalOf(l.err) == nil {
		l.err = err
	}
	for _, e := range slices.Concat(batches...) {
		at, ok := keyArgs[e.Statement]
		if !ok {
			return l.err
		}
		l.keys[rowkey.Key{Type: model.Type(e.Args[at[0]].(string)), Tags: e.Args[at[1]].(cql.TagMap).Tags}] = true
	}
	return nil
}

// hopeless reports whether to skip the rest: the last batches all failed, so their replicas are
// probably down.
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

// positions returns the positions in rows of the lost ones.
func (l *lostRows) positions(rows []Row) []int {
	var positions []int
	for i := range rows {
		if l.keys[rows[i].key()] {
			positions = append(positions, i)
		}
	}
	return positions
}
