// Package cover copies row keys that KairosDB nodes wrote into Varve's inverted index, so
// that it can be relied on: see [Coverer].
//
// Invariant: varve_row_state.kairos_mtime is written last, and only if neither KairosDB
// nor a delete has changed the partition since the pass began to read it. Passes may be
// interrupted and repeated at any point, and two at once do no harm.
package cover
