// Package query answers questions about stored samples. It knows nothing of
// HTTP or of a query language: a front end turns its request into a [Request]
// and encodes the [Group]s that come back while they are computed.
//
// # From request to result
//
//	Engine.ReadText     reads what the client sent, within the memory of queries
//	  Text.Parse        waits for a turn, lets the front end parse it
//	Engine.Start        waits for a free place, opens a store.View
//	  Run.Metric        selects series, sorts them into groups
//	    Result.Next     reads the series of the next group(s) in parallel
//	      Group.Points  merge -> limit -> split -> steps, pulled point by point
//
// Series are grouped by the type of their values (complex < number < text),
// then by tags. A group is computed in one of two ways:
//
//   - Folded: if the first step is sum, avg, min, max, count, first or last,
//     each series is reduced block by block into a table of buckets, by many
//     goroutines, without merging or sorting; runs of samples inside one bucket
//     come from the store as statistics and are never decoded.
//   - Merged: the series of the group are merged by time, equal times by
//     value, as a stream that the steps transform.
//
// Both give the same points (sums may differ in the last bits, since addition
// is done in another order, but neither overflows where the other does not); a
// test holds them together. A group that splitters cut into parts is merged. Parts
// are handed out one by one, and only one has its steps at a time.
//
// # Bounds
//
// A query is limited in series, samples, memory and time, and only so many run
// at once while a bounded number wait. Each limit is a *store.LimitError that
// names its configuration key. All loops look at the context at least once per
// block of samples, or per lookEvery steps of single points over all streams, so
// that a query stops within milliseconds of cancel, disconnect or timeout.
//
// # Writing and watching
//
// save_as hands points to the Saver of Engine.SaveTo; package query itself writes
// nothing. Run.Stats says what a query did and, for a Request with Trace, where
// its time went. Engine.WriteDown keeps a file of what runs for the start after a
// crash.
//
// # Adding an aggregator or a group-by
//
// One file with a constructor of its spec, one line in the list in registry.go,
// one test. Its form for people goes into features.json of package kairos.
package query
