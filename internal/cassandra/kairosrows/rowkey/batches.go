package rowkey

import (
	"context"
	"slices"

	"varve/internal/cassandra/cql"
)

const (
	// BatchPartitions is the maximum number of partitions of a batch. By default, Cassandra
	// logs a warning from 11 on.
	BatchPartitions = 10

	// indexBatchRows and indexBatchBytes bound a batch of index rows of one partition.
	indexBatchRows  = 200
	indexBatchBytes = 64 << 10
)

// Groups are entries grouped by partition.
type Groups[K comparable] map[K][]cql.Entry

// Add adds a statement to a partition.
func (g Groups[K]) Add(k K, st *cql.Statement, args ...any) {
	g[k] = append(g[k], cql.Entry{Statement: st, Args: args})
}

// Batches returns the entries in batches of one partition.
func (g Groups[K]) Batches() [][]cql.Entry {
	var batches [][]cql.Entry
	for _, entries := range g {
		batches = append(batches, CutBatches(entries)...)
	}
	return batches
}

// BatchFunc is the type of cql.Session.Batch.
type BatchFunc func(ctx context.Context, stampMS int64, entries []cql.Entry) error

// CutBatches splits entries of one partition into batches.
func CutBatches(entries []cql.Entry) [][]cql.Entry {
	var batches [][]cql.Entry
	from, size := 0, 0
	for i := range entries {
		n := entries[i].Bytes()
		if i > from && (i-from == indexBatchRows || size+n > indexBatchBytes) {
			batches = append(batches, entries[from:i])
			from, size = i, 0
		}
		size += n
	}
	return append(batches, entries[from:])
}

// JoinBatches combines up to most small batches of one partition each whose partitions have the
// same replicas: most index rows are alone in their partition, and a statement costs more than
// the rows in it. most is at most BatchPartitions.
func JoinBatches(most int, batches [][]cql.Entry, replicaSet func(cql.Entry) string) [][][]cql.Entry {
	var joined [][][]cql.Entry
	type open struct{ at, bytes int }
	sets := make(map[string]open)
	for _, batch := range batches {
		size := 0
		for _, e := range batch {
			size += e.DataBytes()
		}
		set := replicaSet(batch[0])
		last, ok := sets[set]
		if ok && len(joined[last.at]) < most && last.bytes+size <= cql.JoinedBytes {
			joined[last.at] = append(joined[last.at], batch)
			sets[set] = open{last.at, last.bytes + size}
			continue
		}
		joined = append(joined, [][]cql.Entry{batch})
		if size < cql.JoinedBytes {
			sets[set] = open{len(joined) - 1, size}
		}
	}
	return joined
}

// SendJoined sends batches as one, or in halves if that is too large for a node. It returns how
// many rows were written.
func SendJoined(ctx context.Context, batch BatchFunc, stampMS int64, batches [][]cql.Entry) (rows int, err error) {
	all := slices.Concat(batches...)
	err = batch(ctx, stampMS, all)
	if err == nil {
		return len(all), nil
	}
	if len(batches) == 1 || !cql.IsRefused(err, cql.BatchTooLarge) {
		return 0, err
	}
	half := len(batches) / 2
	first, err := SendJoined(ctx, batch, stampMS, batches[:half])
	if err != nil {
		return first, err
	}
	second, err := SendJoined(ctx, batch, stampMS, batches[half:])
	return first + second, err
}
