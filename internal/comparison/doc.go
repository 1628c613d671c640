// Package comparison sends the same queries to two servers that speak KairosDB's HTTP API, or
// Graphite's, and reports where their answers differ. Either server may be KairosDB, Graphite
// or Varve. The package only reads.
//
//	names    the metrics of both servers
//	tags     the tags of each metric
//	queries  random queries of these metrics, drawn from a seed
//
// Only differences in stored data are reported. Queries that Varve answers differently on
// purpose (docs/compatibility.md) are not sent: each query has a time zone, no limit and no
// time before 1970. A name or a tag that only one side lists is a difference only if its
// points differ, because KairosDB keeps names whose points were deleted. Points may arrive
// during the comparison, so a difference that has disappeared at a later check is counted
// but not reported.
//
// Servers with Graphite's API are compared in the same way: the tree of paths, branch by
// branch, then random targets over random time ranges.
//
// # Limits
//
// If an answer exceeds maxAnswer or maxNames bytes, its query is sent again with a shorter
// time range. The comparison holds two answers at once, and the tags of maxKnown metrics. It
// ends at Options.Limit; the tags take at most half of that time.
package comparison
