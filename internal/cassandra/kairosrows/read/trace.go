package read

import (
	"sync/atomic"

	"varve/internal/store"
)

// A Trace says how lookups were answered, and what was read.
type Trace struct {
	Lookups    int64 // calls of Lookup and Names
	Statements int64 // statements that read indexes
	IndexRows  int64 // rows of index tables
	IndexBytes int64 // of row keys in them

	// Partitions of row keys, one for each metric and row time, by how they were
	// answered: from memory; by the inverted index; by some pages of them; read
	// whole. Uncovered could not be answered by the inverted index although the
	// lookup was selective, since it may lack what KairosDB wrote.
	CachedPartitions, IndexedPartitions, ScannedPartitions, FullPartitions, UncoveredPartitions int64

	Slices     int64 // of data rows, each a statement
	Cells      int64 // in them
	CellBytes  int64
	CachedRows int64 // slices that the cache of packed chunks had
	Samples    int64 // handed out
}

type counters struct {
	lookups, statements, indexRows, indexBytes    atomic.Int64
	cachedPartitions, indexedPartitions           atomic.Int64
	scannedPartitions                             atomic.Int64
	fullPartitions, uncoveredPartitions           atomic.Int64
	slices, cells, cellBytes, cachedRows, samples atomic.Int64
}

// Trace returns what was done so far.
func (l *Look) Trace() Trace {
	t := &l.trace
	return Trace{
		Lookups: t.lookups.Load(), Statements: t.statements.Load(), IndexRows: t.indexRows.Load(), IndexBytes: t.indexBytes.Load(),
		CachedPartitions: t.cachedPartitions.Load(), IndexedPartitions: t.indexedPartitions.Load(),
		ScannedPartitions: t.scannedPartitions.Load(), FullPartitions: t.fullPartitions.Load(), UncoveredPartitions: t.uncoveredPartitions.Load(),
		Slices: t.slices.Load(), Cells: t.cells.Load(), CellBytes: t.cellBytes.Load(), CachedRows: t.cachedRows.Load(),
		Samples: t.samples.Load(),
	}
}

// How a partition of row keys was answered.
const (
	byCache   = "cached"
	byIndex   = "indexed"
	byScan    = "scanned"
	byReading = "full"
	byOthers  = "shared"    // read whole by another Look at that time
	uncovered = "uncovered" // counted besides
)

// answer counts that a partition was answered.
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
	t := l.Trace()
	return []store.Count{
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
	}
}
