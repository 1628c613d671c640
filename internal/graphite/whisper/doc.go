// Package whisper reads and writes the files in which Graphite stores its points, one
// file per path. It does not access directories; it only converts paths to file names.
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
// An archive is a ring buffer: the point of a time is in the slot (time - base) / step
// modulo the number of points, counted from 0, where base is the time in the first slot.
// A slot that was never written has time 0, and a ring whose base is 0 is empty.
// docs/formats/whisper.md has more.
//
// # Untrusted files
//
// A header is checked against the length of the file before it is used, and points are
// read in pieces of a fixed size, so memory does not depend on what a header claims. A
// point in a slot that is not that of its time is counted, not used.
package whisper
