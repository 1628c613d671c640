package read

import (
	"sync/atomic"

	"varve/internal/store"
)

// counters count how the lookups of a Look were answered, and what was read.
type counters struct {
	lookups    atomic.Int64 // calls of Lookup and Names
	statements atomic.Int64 // statements that read indexes
	indexRows  atomic.Int64 // rows of index tables
	indexBytes atomic.Int64 // bytes of row keys in them

	// Partitions of row keys, one for each metric and row time, by how they were answered: from
	// the cache; by the inverted index; by a scan of some pages; by a complete read. Uncovered
	// partitions could not be answered by the inverted index although the lookup was selective,
	// since it may lack row keys that KairosDB wrote.
	cachedPartitions, indexedPartitions, scannedPartitions, fullPartitions, uncoveredPartitions atomic.Int64

	slices     atomic.Int64 // slices of data rows, one statement each
	cells      atomic.Int64 // cells in these slices
	cellBytes  atomic.Int64
	cachedRows atomic.Int64 // slices found in the cache of packed chunks
}

// How a partition of row keys was answered.
const (
	byCache   = "cached"
	byIndex   = "indexed"
	byScan    = "scanned"
	byReading = "full"
	byOthers  = "shared"    // read completely by a concurrent Look
	uncovered = "uncovered" // counted in addition
)

// answer counts how a partition was answered.
func (l *Look) answer(how string) {
	l.reader.answered.WithLabelValues(how).Inc()
	switch how {
	case byCache:
		l.trace.cachedPartitions.Add(1)
	case byIndex:
		l.trace.indexedPartitions.Add(1)
	case byScan:
		l.trace.scannedPartitions.Add(1)
	case byReading, byOthers:
		l.trace.fullPartitions.Add(1)
	case uncovered:
		l.trace.uncoveredPartitions.Add(1)
	}
}

// Counts implements layout.Look.
func (l *Look) Counts() []store.Count {
	t := &l.trace
	return []store.Count{
		{Name: "lookups", N: t.lookups.Load()},
		{Name: "index_statements", N: t.statements.Load()},
		{Name: "index_rows", N: t.indexRows.Load()},
		{Name: "index_bytes", N: t.indexBytes.Load()},
		{Name: "partitions_cached", N: t.cachedPartitions.Load()},
		{Name: "partitions_indexed", N: t.indexedPartitions.Load()},
		{Name: "partitions_scanned", N: t.scannedPartitions.Load()},
		{Name: "partitions_full", N: t.fullPartitions.Load()},
		{Name: "partitions_uncovered", N: t.uncoveredPartitions.Load()},
		{Name: "slices", N: t.slices.Load()},
		{Name: "slices_cached", N: t.cachedRows.Load()},
		{Name: "cells", N: t.cells.Load()},
		{Name: "cell_bytes", N: t.cellBytes.Load()},
	}
}
