// Package agg computes KairosDB's queries: groups of series, merged points, group-bys,
// aggregators over calendar buckets, save_as. It knows nothing of HTTP or JSON: package
// kairos turns a request into a [Query] and encodes the resulting [Group]s while they
// are computed.
//
// # From query to result
//
//	Engine.Start        waits for a slot: a Run, which is a query.Session
//	  Run.Metric        selects series, sorts them into groups
//	    Result.Next     reads the series of the next group(s) in parallel
//	      Group.Points  merge -> limit -> split -> steps, pulled point by point
//
// Series are grouped by the type of their values (complex < number < text), then by
// tags. A group is computed in one of two ways:
//
//   - Folded: if the first step is sum, avg, min, max, count, first or last, each
//     series is reduced block by block into a table of buckets, by many goroutines,
//     without merging or sorting; runs of samples inside one bucket come from the store
//     as statistics and are never decoded.
//   - Merged: the series of the group are merged by time, equal times by value, as a
//     stream that the steps transform.
//
// Both give the same points (sums may differ in the last bits, since values are added
// in another order, but neither overflows where the other does not); a test compares
// them. A group that splitters divide into parts is merged. Parts are returned one by
// one, and only one at a time has its steps.
//
// # Why query.GridFold does not serve
//
// A table holds only the buckets that have samples, and all series of a group share it.
// Columns of a query.Grid hold every bucket of every series. Here a bucket is 1 ms long
// unless the request says otherwise, days and months have no fixed length, a group may
// have 100,000 series of few samples each, and a result is stamped with the time of its
// first sample. So the two share only lower layers: query.Scan reads, replaces
// samples with statistics and counts, and query.Sum adds.
//
// # Bounds
//
// The bounds are those of package query. Points that gaps adds and points that
// save_as writes count against query.max_samples as if they had been read. A step
// checks the context with query.Session.Tick.
//
// # Writing
//
// save_as passes points to a [Saver]; this package itself writes nothing.
//
// # Adding an aggregator or a group-by
//
// Add a constructor of its spec, a line in the list in registry.go, and a test. Its form
// for people goes into features.json of package kairos, its row into docs/api.md.
package agg
