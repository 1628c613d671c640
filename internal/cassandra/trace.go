package cassandra

import (
	"varve/internal/cassandra/kairosrows"
	"varve/internal/store"
)

// Trace implements store.Tracer. What was done in a cluster that is only read
// has its name before it.
func (v *view) Trace() []store.Count {
	var counts []store.Count
	for i, k := range v.keyspaces {
		if k.look == nil {
			continue
		}
		t := k.look.Trace()
		prefix := ""
		if i > 0 {
			if t == (kairosrows.Trace{}) {
				continue // it was not asked
			}
			prefix = k.cluster.name + "."
		}
		counts = appendTrace(counts, prefix, t)
	}
	return counts
}

func appendTrace(counts []store.Count, prefix string, t kairosrows.Trace) []store.Count {
	for _, c := range []store.Count{
		{Name: "lookups", N: t.Lookups},
		{Name: "index_statements", N: t.Statements},
		{Name: "index_rows", N: t.IndexRows},
		{Name: "index_bytes", N: t.IndexBytes},
		{Name: "partitions_cached", N: t.CachedPartitions},
		{Name: "partitions_indexed", N: t.IndexedPartitions},
		{Name: "partitions_scanned", N: t.ScannedPartitions},
		{Name: "partitions_full", N: t.FullPartitions},
		{Name: "partitions_uncovered", N: t.UncoveredPartitions},
		{Name: "slices", N: t.Slices},
		{Name: "slices_cached", N: t.CachedRows},
		{Name: "cells", N: t.Cells},
		{Name: "cell_bytes", N: t.CellBytes},
	} {
		counts = append(counts, store.Count{Name: prefix + c.Name, N: c.N})
	}
	return counts
}
