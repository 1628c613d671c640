// Package cover copies row keys that KairosDB nodes wrote into Varve's inverted index, so
// that the index is complete: see [Coverer].
//
// Invariant: a pass over a partition ends by writing varve_row_state.kairos_mtime, with the
// value that row_keys.mtime had before the pass, and only if no delete was announced
// meanwhile. So a partition to which KairosDB has added row keys since does not count as
// covered. Passes may be interrupted and repeated at any point, and two passes at once do
// no harm.
//
// Each server covers the partitions that its own queries need, and one server at a time
// walks over all metrics: see [walkNote]. There is no lease on a partition, because to take
// and release it would cost three rounds of a lightweight transaction, more than most
// passes. A pass of more than coverSave records its progress anyway, so that another server
// can continue it, and by these records two servers notice each other. If they do not, for
// example because clocks differ by a minute, index rows are written twice, which is
// harmless. That no partition wrongly counts as covered does not depend on a lease: at its
// end a pass compares mtime and the announced removals.
package cover
