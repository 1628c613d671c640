// Package cover copies row keys that KairosDB nodes wrote into Varve's inverted index, so
// that it can be relied on: see [Coverer].
//
// Invariant: varve_row_state.kairos_mtime is written last, as row_keys.mtime was before the
// pass, and only if no delete was announced meanwhile. So a partition that KairosDB has
// added to since does not count as covered. Passes may be interrupted and repeated at any
// point, and two at once do no harm.
package cover
