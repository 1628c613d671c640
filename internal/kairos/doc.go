// Package kairos is KairosDB's REST API but for taking points in and roll-ups:
// queries, names, tags, deletes, metadata, features, the version and the list of
// running queries, as KairosDB 1.3 answers them. docs/compatibility.md lists
// where it answers otherwise.
//
// It turns lenient JSON into agg.Query values, and groups of points into
// KairosDB's JSON while they are computed. Sampling, grouping and aggregation
// are package agg's business; taking points in is package ingest's.
//
// # Answers and failures
//
// KairosDB builds an answer completely before it sends a status, so that a
// failure in any metric is a 4xx or 5xx. Here up to Config.ResponseBuffer bytes
// are held back for the same effect. A larger answer is sent while it is
// computed: its sample_size members then follow their results, and a failure
// breaks the connection, so that no client takes a part for the whole.
//
// # Cache
//
// A request with cache_time may get, metric by metric, what was answered to the
// same request before. Its identity is a hash over the times as written, the
// zone and the whole metric object (see identityOf), so that nothing that changes
// an answer can be forgotten. It is bounded by Config.QueryCache, 0 by default:
// KairosDB keeps no cache files by default either.
//
// # Statuses
//
//	400  the request is at fault, or hit a limit, or took too long, or was
//	     cancelled by the operator; always with a JSON body, the only error that
//	     KairosDB's Java client survives without losing a connection
//	403  the class of the method is turned off, see Config.ServerType
//	500  KairosDB's own 500s that clients match on (equal times in rate, NaN in
//	     an answer), damaged data, faults of the store
//	503  overload or a store that cannot answer now: Retry-After, no body
//
// KairosDB answers many faults of a request with 500. Here they are 400.
package kairos
