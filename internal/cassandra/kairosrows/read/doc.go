// Package read finds series in a keyspace of KairosDB and reads their rows. It writes
// nothing.
//
//	Reader     the caches between requests: row keys, finished rows, abandoned scans
//	Look       the index rows that one request has read, so that each is read once
//	RowCursor  the samples of one row
//	Inspector  the keyspace as text for people
//
// # How series are found
//
// A lookup first reads which row times of the metric there are, with their state. Each row time
// has a partition of row_keys, and in each the lookup goes down this list, to the first line
// that has an answer (Look.keysOf). The lines above the stamp cost no statement.
//
//	       this Look has read the whole partition           its list
//	          |
//	stamp     row_keys.mtime, read once per Look. With varve_row_state.changed
//	          |    it says whether cached lists are valid
//	          v
//	cached    the whole partition                           postingsCache
//	cached    the row keys with the values of a matcher     this Look, postingsCache
//	          |
//	          +-- no matcher by values:         full        readWhole
//	          |
//	          +-- the inverted index has all
//	          |   row keys of the partition:    indexed     contest: of the matcher with
//	          |                                             the fewest row keys
//	          +-- otherwise, as KairosDB may
//	              have added row keys:          scanned     skipScan: Cassandra's order
//	              (and the Coverer is asked)                leaves most of them out
//	                                            shared,     flights: whole, once for all
//	                                            full        lookups that need it at a time
//
// A partition that is read whole, or the row keys of a value, become a keyList: the Look and the
// cache keep it, and later matchers are applied to it. If it would be too large for that, only
// what each lookup wants is kept, see intake.
//
// Row keys that only the inverted index has shown may be gone from row_keys. Short lists are
// verified there before they are kept, other lists when few of their row keys match.
//
// # Invariants
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
