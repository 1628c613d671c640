// Package kairos is KairosDB's REST API except ingest and roll-ups: queries, names,
// tags, deletes, metadata, features, the version and the list of running queries, as
// KairosDB 1.3 answers them. docs/compatibility.md lists the differences.
//
// It turns lenient JSON into agg.Query values, and groups of points into KairosDB's
// JSON while they are computed. Package agg samples, groups and aggregates; package
// ingest accepts points.
//
// # Answers and failures
//
// KairosDB builds an answer completely before it sends a status, so that a failure in
// any metric is a 4xx or 5xx. Varve holds back up to Config.ResponseBuffer bytes for
// the same effect. A larger answer is sent while it is computed: its sample_size
// members then follow their results, and a failure closes the connection, so that no
// client mistakes a partial answer for a complete one.
//
// # Cache
//
// A request with cache_time may get, metric by metric, an earlier answer to the same
// request. The key of the cache is a hash over the times as written, the zone and the
// whole metric object (see identityOf): everything that affects an answer.
// Config.QueryCache bounds the cache. Its default is 0: KairosDB keeps no cache files
// by default either.
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
// KairosDB answers many invalid requests with 500. Here they get 400.
package kairos
