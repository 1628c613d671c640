package read

import (
	"sync/atomic"

	"varve/internal/store"
)

// A Look counts how its lookups were answered, and what was read.
const (
	countLookups    = iota // calls of Lookup and Names
	countStatements        // statements that read indexes
	countIndexRows         // rows of index tables
	countIndexBytes        // bytes of row keys in them

	// Partitions of row keys, one for each metric and row time, by how they were answered: from
	// the cache; by the inverted index; by a scan of some pages; by a complete read. Uncovered
	// partitions could not be answered by the inverted index although the lookup was selective,
	// since it may lack row keys that KairosDB wrote.
	countCached
	countIndexed
	countScanned
	countFull
	countUncovered

	countSlices       // slices of data rows, one statement each
	countCachedSlices // slices found in the cache of packed chunks
	countCells        // cells in the slices that were read
	countCellBytes
)

var countNames = [...]string{
	countLookups: "lookups", countStatements: "index_statements", countIndexRows: "index_rows", countIndexBytes: "index_bytes",
	countCached: "partitions_cached", countIndexed: "partitions_indexed", countScanned: "partitions_scanned", countFull: "partitions_full",
	countUncovered: "partitions_uncovered",
	countSlices:    "slices", countCachedSlices: "slices_cached", countCells: "cells", countCellBytes: "cell_bytes",
}

type counters [len(countNames)]atomic.Int64

// How a partition of row keys was answered.
const (
	byCache   = "cached"
	byIndex   = "indexed"
	byScan    = "scanned"
	byReading = "full"
	byOthers  = "shared"    // read completely by a concurrent Look
	uncovered = "uncovered" // counted in addition
)

var countOf = map[string]int{
	byCache: countCached, byIndex: countIndexed, byScan: countScanned, byReading: countFull, byOthers: countFull, uncovered: countUncovered,
}

// answer counts how a partition was answered.
func (l *Look) answer(how string) {
	l.reader.answered.WithLabelValues(how).Inc()
	l.trace[countOf[how]].Add(1)
}

// Counts implements layout.Look.
func (l *Look) Counts() []store.Count {
	counts := make([]store.Count, len(countNames))
	for i, name := range countNames {
		counts[i] = store.Count{Name: name, N: l.trace[i].Load()}
	}
	return counts
}
