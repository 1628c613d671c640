package kairosrows

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/work"
)

const (
	// indexBatchRows and indexBatchBytes bound a batch of index rows, all of
	// one partition.
	indexBatchRows  = 200
	indexBatchBytes = 64 << 10
)

// entryGroups are entries by what names their partition.
type entryGroups[K comparable] map[K][]cql.Entry

func (g entryGroups[K]) add(k K, st *cql.Statement, args ...any) {
	g[k] = append(g[k], cql.Entry{Statement: st, Args: args})
}

// batches returns the entries in batches of one partition.
func (g entryGroups[K]) batches() [][]cql.Entry {
	var batches [][]cql.Entry
	for _, entries := range g {
		batches = append(batches, cutBatches(entries)...)
	}
	return batches
}

// A tagPlace names a partition of varve_row_index, within its metric and row
// time.
type tagPlace struct {
	tag, value string
	shard      int
}

// tagPlaces yields those that have a row of a row key with these tags.
func tagPlaces(tags model.Tags, shards int) iter.Seq[tagPlace] {
	return func(yield func(tagPlace) bool) {
		shard := indexShard(tags, shards)
		for name, value := range tags.All() {
			if !yield(tagPlace{name, value, shard}) {
				return
			}
		}
	}
}

// tagRowBatches are the rows of varve_row_index for row keys of one metric and
// row time.
func tagRowBatches(metric string, rowTimeMS int64, keys iter.Seq[rowKey], shards, ttl int) [][]cql.Entry {
	groups := entryGroups[tagPlace]{}
	for k := range keys {
		for at := range tagPlaces(k.tags, shards) {
			groups.add(at, insertTagRow, metric, rowTimeMS, at.tag, at.value, at.shard, string(k.typ), cql.TagMap{Tags: k.tags}, ttl)
		}
	}
	return groups.batches()
}

// tagRows are the rows of varve_row_index.
func (w *indexWriter) tagRows(p *indexPart, rows []pendingRow, ttl int) [][]cql.Entry {
	if !w.tables.Own {
		return nil
	}
	keys := func(yield func(rowKey) bool) {
		for i := range rows {
			if !yield(rows[i].key()) {
				return
			}
		}
	}
	return tagRowBatches(p.metric, p.timeMS, keys, w.shards, ttl)
}

// rowKeys are the rows of row_keys, in batches, with the mark if it may be
// missing. Who does not write varve_row_index moves mtime, as KairosDB does: another
// node, which opened the keyspace when it had that table, may take the index for complete.
func (w *indexWriter) rowKeys(p *indexPart, rows []pendingRow, ttl int) [][]cql.Entry {
	entries := make([]cql.Entry, 0, len(rows)+1)
	insert := insertRowKey
	switch {
	case !w.tables.Own:
		insert = insertRowKeyMoved
	case !p.known:
		entries = append(entries, cql.Entry{Statement: insertRowKeysMark, Args: []any{ttl, schema.WroteHere, p.metric, schema.DataPoints, p.timeMS}})
	}
	for i := range rows {
		s := &rows[i].series
		entries = append(entries, cql.Entry{Statement: insert,
			Args: []any{p.metric, schema.DataPoints, p.timeMS, string(s.Type), cql.TagMap{Tags: s.Tags}, ttl}})
	}
	return cutBatches(entries)
}

// tagIndexed are the rows of tag_indexed_row_keys, in batches of one partition.
func (w *indexWriter) tagIndexed(rows []pendingRow, ttl int) [][]cql.Entry {
	rules := w.rules()
	if names, all := rules.indexed(rows[0].series.Metric); !w.tables.TagIndexedRowKeys || len(names) == 0 && !all {
		return nil
	}
	groups := entryGroups[string]{}
	for i := range rows {
		s := &rows[i].series
		row := rules.row(s.Metric, s.Tags)
		for _, pair := range row.pairs {
			groups.add(pair, insertTagIndexedRowKey,
				s.Metric, schema.DataPoints, rows[i].rowTimeMS, pair, string(s.Type), int(row.hash), cql.TagMap{Tags: s.Tags}, ttl)
		}
	}
	return groups.batches()
}

// cutBatches splits entries of one partition into batches.
func cutBatches(entries []cql.Entry) [][]cql.Entry {
	var batches [][]cql.Entry
	from, size := 0, 0
	for i := range entries {
		n := entrySize(&entries[i])
		if i > from && (i-from == indexBatchRows || size+n > indexBatchBytes) {
			batches = append(batches, entries[from:i])
			from, size = i, 0
		}
		size += n
	}
	return append(batches, entries[from:])
}

func entrySize(e *cql.Entry) int {
	n := 0
	for _, a := range e.Args {
		switch a := a.(type) {
		case string:
			n += len(a)
		case cql.TagMap:
			n += mapBytes(a.Tags)
		default:
			n += 8
		}
	}
	return n
}

// sendAll sends batches of one partition each, several at once, and waits for all.
// lost is told which fail. When several have failed in a row the rest is not tried. An
// error is that of ctx, or of a row that all row keys share.
func (w *indexWriter) sendAll(ctx context.Context, p *indexPart, batches [][]cql.Entry, lost *lostRows) error {
	joined := slices.Collect(slices.Chunk(batches, 1))
	if !p.apart {
		joined = joinBatches(batches, w.session.Place)
	}
	lost.inRow = 0
	return work.Parallel(ctx, indexParallel, len(joined), func(ctx context.Context, i int) error {
		if lost.hopeless() {
			return lost.add(joined[i], nil)
		}
		rows, err := sendJoined(ctx, w.session.Batch, p.stampMS, joined[i])
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
	keys  map[rowKey]bool
	err   error // why the first of them was not; that of a refusal, if there is one
	inRow int   // batches that failed since one was written
}

// keyPlaces says where statements have the type and the tags of their row key.
var keyPlaces = map[*cql.Statement][2]int{
	insertTagRow: {5, 6}, insertRowKey: {3, 4}, insertRowKeyMoved: {3, 4}, insertTagIndexedRowKey: {4, 6},
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
		l.keys[rowKey{model.Type(e.Args[at[0]].(string)), e.Args[at[1]].(cql.TagMap).Tags}] = true
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
func (l *lostRows) rest(rows []pendingRow) []pendingRow {
	if len(l.keys) == 0 {
		return rows
	}
	var rest []pendingRow
	for i := range rows {
		if !l.keys[rows[i].key()] {
			rest = append(rest, rows[i])
		}
	}
	return rest
}

// places says where in rows those are that are lost.
func (l *lostRows) places(rows []pendingRow) []int {
	var places []int
	for i := range rows {
		if l.keys[rows[i].key()] {
			places = append(places, i)
		}
	}
	return places
}

// joinBatches puts batches of one partition each together that the same nodes
// hold and that are small: most index rows are alone in their partition, and a
// statement costs more than what is in it.
func joinBatches(batches [][]cql.Entry, place func(cql.Entry) string) [][][]cql.Entry {
	var joined [][][]cql.Entry
	type open struct{ at, bytes int }
	places := make(map[string]open)
	for _, batch := range batches {
		size := 0
		for _, e := range batch {
			size += e.DataBytes()
		}
		where := place(batch[0])
		last, ok := places[where]
		if ok && len(joined[last.at]) < batchPartitions && last.bytes+size <= cql.JoinedBytes {
			joined[last.at] = append(joined[last.at], batch)
			places[where] = open{last.at, last.bytes + size}
			continue
		}
		joined = append(joined, [][]cql.Entry{batch})
		if size < cql.JoinedBytes {
			places[where] = open{len(joined) - 1, size}
		}
	}
	return joined
}

// sendJoined sends batches as one, or in halves where that is too large for a
// node. It returns how many rows were written.
func sendJoined(ctx context.Context, batch batchFunc, stampMS int64, batches [][]cql.Entry) (rows int, err error) {
	all := slices.Concat(batches...)
	err = batch(ctx, stampMS, all)
	var refused *cql.RefusedError
	if len(batches) == 1 || !errors.As(err, &refused) || refused.Reason != cql.BatchTooLarge {
		if err != nil {
			return 0, err
		}
		return len(all), nil
	}
	half := len(batches) / 2
	first, err := sendJoined(ctx, batch, stampMS, batches[:half])
	if err != nil {
		return first, err
	}
	second, err := sendJoined(ctx, batch, stampMS, batches[half:])
	return first + second, err
}
