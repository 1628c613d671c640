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
//   - What this process has written or removed is seen by all later requests: nothing
//     that was loaded before is kept after RowChanged and RowKeysChanged.
//   - What others write is seen as soon as varve_row_state or row_keys.mtime tells, but
//     for Config.KairosDBLag; what these do not tell, within the ages of the caches. Samples
//     that KairosDB nodes write are seen at once, but for Config.KairosDBLag, and those of
//     anybody by a Look that is Current.
//   - Reads are made at the configured consistency, those of a Look that is Current at a
//     quorum: row keys that were read at less do not answer it.
//   - All caches are bounded, and a Look by what matches.
package read
