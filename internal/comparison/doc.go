// Package comparison asks two servers that speak KairosDB's HTTP API, or Graphite's, the same
// questions and says where their answers differ. Either may be KairosDB or Varve. It
// only reads.
//
//	names      the metrics of both
//	tags       of each metric
//	questions  random ones about these metrics, drawn from a seed
//
// Only differences in what is stored are reported. Questions on which Varve answers
// otherwise on purpose (docs/compatibility.md) are not asked: none without a time
// zone, with a limit, or of times before 1970. A name or a tag that only one side
// lists is a difference if the points behind it differ: KairosDB keeps names whose
// points were deleted. A difference that is gone when it is asked for again is
// counted, not reported: points come in meanwhile.
//
// Servers of Graphite's API are compared in the same way: the tree of paths, branch by
// branch, then random targets over random times.
//
// # Bounds
//
// An answer is refused beyond maxAnswer or maxNames bytes, and a question whose answer
// is refused is asked about a shorter time. Two answers are held at once, and the tags
// of maxKnown metrics. Everything ends at Options.Limit; the tags take half of it at
// most.
package comparison
