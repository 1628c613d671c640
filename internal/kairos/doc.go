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
// Package failure maps errors to statuses. A request that is at fault, hit a limit, took too
// long or was cancelled by the operator always gets a 400 with a JSON body, the only error that
// KairosDB's Java client survives without losing a connection. 500s have KairosDB's texts where
// clients match on them (equal times in rate, NaN in an answer).
//
// KairosDB answers many invalid requests with 500. Here they get 400.
package kairos
