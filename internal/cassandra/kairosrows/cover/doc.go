// Package cover copies row keys that KairosDB nodes wrote into Varve's inverted index, so
// that it can be relied on: see [Coverer].
//
// Invariant: varve_row_state.kairos_mtime is written last, as row_keys.mtime was before the
// pass, and only if no delete was announced meanwhile. So a partition that KairosDB has
// added to since does not count as covered. Passes may be interrupted and repeated at any
// point, and two at once do no harm.
//
// Of several servers each covers what its own queries asked for, and one walks over all
// metrics: see [walkNote]. There is no lease on a partition. To get and give back one takes three rounds of
// a lightweight transaction, which is more than most passes take; a pass of more than
// coverSave has to write down how far it has come in any case, so that another one can go on
// there, and by that two notice each other. Where they do not, for example since clocks
// differ by a minute, index rows are written twice. What would be wrong, that a partition
// counts as covered which is not, no lease keeps from happening: mtime and the announced
// removals do, which a pass compares at its end.
package cover
