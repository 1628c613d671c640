// Package whisper reads and writes the files in which Graphite keeps its points, one
// file a path. It knows nothing of directories beyond the names of files.
//
//	0         4         8         12        16
//	+---------+---------+---------+---------+
//	| method  | longest | xFiles- | number  |   header, all big-endian
//	| u32     | keep u32| Factor  | of arch-|
//	|         |         | f32     | ives u32|
//	+---------+---------+---------+---------+
//	| offset  | step    | points  |             once for each archive,
//	| u32     | u32, s  | u32     |             from the finest to the coarsest
//	+---------+---------+---------+
//	| time u32, s | value f64     | ...         points of the first archive,
//	+-------------+---------------+             then of the next one
//
// An archive is a ring: the point of a time stands (time - base) / step slots behind
// the first one, modulo the number of points, where base is the time in the first slot.
// A slot that was never written has time 0, and a ring whose base is 0 is empty.
// docs/formats/whisper.md has more.
//
// # Untrusted files
//
// A header is checked against the length of the file before anything is made of it, and
// points are read in pieces of a fixed size, so memory does not grow with what a file
// says. What is not in its place is counted, not used.
package whisper
