// Package read finds series in a keyspace of KairosDB and reads their rows. It writes
// nothing.
//
//	Reader     what is kept between requests: row keys, finished rows, scans given up
//	Look       what one request has read of the index, so that it reads it once
//	RowCursor  the samples of one row
//	Inspector  the keyspace as text for people
//
// A partition of row keys is answered from memory; by the inverted index, if that holds
// all of its row keys; by leaping over most of them (skipScan); or by reading it whole,
// once for all who ask at that time (flights).
//
// Invariants:
//
//   - What a request finds was there when it asked, or came later: nothing that was
//     loaded before a change of this process is kept after it.
//   - All caches are bounded, and a Look by what matches.
package read
