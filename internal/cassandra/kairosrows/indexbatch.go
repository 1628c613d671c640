package kairosrows

import (
	"context"

	"varve/internal/cassandra/cql"
)

const (
	// indexBatchRows and indexBatchBytes bound a batch of index rows, all of
	// one partition.
	indexBatchRows  = 200
	indexBatchBytes = 64 << 10
)

// tagRows are the rows of varve_row_index, in batches of one partition.
func (w *indexWriter) tagRows(rows []pendingRow, ttl int) [][]cql.Entry {
	if !w.tables.Own {
		return nil
	}
	type key struct {
		tag, value string
		shard      int
	}
	groups := make(map[key][]cql.Entry)
	for i := range rows {
		s := &rows[i].series
		shard := indexShard(s.Tags, w.shards)
		for name, value := range s.Tags.All() {
			k := key{name, value, shard}
			groups[k] = append(groups[k], cql.Entry{Statement: insertTagRow,
				Args: []any{s.Metric, rows[i].rowTimeMS, name, value, shard, string(s.Type), cql.TagMap{Tags: s.Tags}, ttl}})
		}
	}
	var batches [][]cql.Entry
	for _, entries := range groups {
		batches = append(batches, cutBatches(entries)...)
	}
	return batches
}

// rowKeys are the rows of row_keys, in batches, with the mark if it may be
// missing.
func (w *indexWriter) rowKeys(p *indexPart, rows []pendingRow, ttl int) [][]cql.Entry {
	entries := make([]cql.Entry, 0, len(rows)+1)
	if !p.known {
		entries = append(entries, cql.Entry{Statement: insertRowKeysMark, Args: []any{WroteHere, p.metric, dataPointsTable, p.rowTimeMS}})
	}
	for i := range rows {
		s := &rows[i].series
		entries = append(entries, cql.Entry{Statement: insertRowKey,
			Args: []any{p.metric, dataPointsTable, p.rowTimeMS, string(s.Type), cql.TagMap{Tags: s.Tags}, ttl}})
	}
	return cutBatches(entries)
}

// tagIndexed are the rows of tag_indexed_row_keys, in batches of one partition.
func (w *indexWriter) tagIndexed(rows []pendingRow, ttl int) [][]cql.Entry {
	rules := w.rules()
	if names, all := rules.indexed(rows[0].series.Metric); !w.tables.TagIndexedRowKeys || len(names) == 0 && !all {
		return nil
	}
	groups := make(map[string][]cql.Entry)
	for i := range rows {
		s := &rows[i].series
		row := rules.row(s.Metric, s.Tags)
		for _, pair := range row.pairs {
			groups[pair] = append(groups[pair], cql.Entry{Statement: insertTagIndexedRowKey,
				Args: []any{s.Metric, dataPointsTable, rows[i].rowTimeMS, pair, string(s.Type), int(row.hash), cql.TagMap{Tags: s.Tags}, ttl}})
		}
	}
	var batches [][]cql.Entry
	for _, entries := range groups {
		batches = append(batches, cutBatches(entries)...)
	}
	return batches
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

// sendAll sends batches, several at once, and waits for all.
func (w *indexWriter) sendAll(ctx context.Context, stampMS int64, batches [][]cql.Entry) error {
	return parallel(ctx, indexParallel, len(batches), func(ctx context.Context, i int) error {
		if err := w.session.Batch(ctx, stampMS, batches[i]); err != nil {
			return err
		}
		w.metrics.indexRows.Add(float64(len(batches[i])))
		return nil
	})
}
