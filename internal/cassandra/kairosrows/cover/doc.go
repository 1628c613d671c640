// Package cover copies row keys that KairosDB nodes wrote into Varve's inverted index, so
// that the index is complete: see [Coverer].
//
// Invariant: a pass over a partition ends by writing varve_row_state.kairos_mtime, with the
// value that row_keys.mtime had before the pass, and only if no delete was announced meanwhile.
// So a partition to which KairosDB has added row keys since does not count as covered. Passes
// may be interrupted and repeated at any point, and two simultaneous passes do no harm.
//
// Each server covers the partitions that its own queries need, and one server at a time walks
// over all metrics: see [walkNote]. There is no lease on a partition: its three rounds of
// lightweight transactions would cost more than most passes. From the progress that long passes
// record, two servers notice each other; if they do not, index rows are written twice, which is
// harmless. Leases are not needed for correctness either: at its end a pass checks mtime and the
// announced removals.
package cover
