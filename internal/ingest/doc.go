// Package ingest is where all samples enter. Front ends (the packages below it, one per wire
// format) parse; this package validates names, applies limits, counts, keeps the latest refused
// inputs for people to look at, and appends to the store.
//
//	connection or request                   shared by all
//	+----------------+  Find(kind, bytes)  +-----------------+
//	| front end      |-------------------->| alias cache     |
//	| parser         |   miss: Resolve     | bytes as sent   |
//	|   |            |-------------------->|  -> store.Ref   |--> Lookup, Create
//	|   v            |                     +-----------------+
//	| Writer.Batch   |   Ingest            +-----------------+
//	|                |-------------------->| gate: samples   |--> Append
//	+----------------+                     | in flight       |
//	                                       +-----------------+
//
// # Blocks
//
// A front end hands [Writer.Ingest] one block of input as a function that
// parses it. The function runs at least once, and again from the start when
// the store reports that series references have become void in between.
// Refusals inside the block are counted once, when the block is stored.
//
// # Aliases
//
// Senders repeat the same names for ever, in the same order. An [Alias] maps the bytes of a series
// as they were sent (not yet parsed, sorted or checked) to the store's reference, so that a known
// series costs one comparison. The Writer first tries the alias that followed the previous one last
// time. The cache is limited in bytes and forgets by generations.
//
// # What is refused
//
// Every refusal has one of the reasons of [Reason], a counter by protocol and
// reason, and a place among the latest ones in [Pipeline.Rejected]. The
// unit is the input refused: a line, a metric object, a point, or a body.
package ingest
