// Package read finds series in a keyspace of KairosDB and reads their rows. It writes
// nothing.
//
//	Reader     the caches between requests: row keys, finished rows, abandoned scans
//	Look       the index rows that one request has read, so that each is read once
//	RowCursor  the samples of one row
//	Inspector  the keyspace as text for people
//
// A lookup in a partition of row keys uses the cache; or the inverted index, if that has all
// row keys of the partition; or a scan that skips most of them (skipScan); or it reads all of
// them, once for all concurrent requests (flights).
//
// Invariants:
//
//   - Later requests see all writes and deletes of this process: RowChanged and
//     RowKeysChanged discard what was loaded before.
//   - Requests see row keys of other processes as soon as varve_row_state or row_keys.mtime
//     shows a change, or after Config.KairosDBLag. They see changes that these do not show when
//     cache entries reach their maximum age. They see samples of KairosDB nodes at once, or
//     after Config.KairosDBLag. A Look that is Current sees all samples at once.
//   - Reads use the configured consistency, those of a Look that is Current a quorum. Such
//     a Look does not use row keys that were read at a lower consistency.
//   - All caches are bounded. The memory of a Look is bounded by the matching series.
package read
