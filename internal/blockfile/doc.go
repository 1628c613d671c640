// Package blockfile reads and writes the immutable files that hold the embedded store's
// samples. It knows nothing of tags, partitions or deletions.
//
// # Layout
//
// Fixed-width integers are little-endian.
//
//	+----------------------------------------------------------+
//	| header: magic "VARVEBLK", version u32, step u32          |
//	+----------------------------------------------------------+
//	| page 0: chunks of one or more series (package chunk),    |
//	|         about 16 KiB, checksummed by itself              |
//	| page 1 ...                                               |
//	+----------------------------------------------------------+
//	| page index: per page                                     |
//	|   first series u32 | length u32 | first ms i64 |         |
//	|   offset u64                                             |
//	| series: roaring bitmap, portable serialised form         |
//	| properties: JSON                                         |
//	+----------------------------------------------------------+
//	| trailer: offset of the page index u64, number of pages   |
//	|   u32, length of series u32, length of properties u32,   |
//	|   crc32c u32 of page index to here, magic "VARVEEND"     |
//	+----------------------------------------------------------+
//
// The index comes last because it is known last. The trailer has a fixed size, so a
// reader finds everything from the end with two reads.
//
// # Invariants
//
//   - Chunks are ordered by (series, time) over the whole file; within a series they do
//     not overlap.
//   - A page index entry is the (series, first time) of the page's first chunk, so a
//     search for (series, time) ends at the last entry that is not greater.
//   - Properties describe exactly the chunks in the file.
package blockfile
