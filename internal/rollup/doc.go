// Package rollup runs KairosDB's roll-up tasks: queries with range aggregators
// that are executed on a schedule and whose results are stored as new metrics.
// Package downsample tells which buckets are due.
//
//	HTTP: API -------> Scheduler --- due ---> run of a task
//	 tasks, status,     one goroutine,          for each roll-up and metric:
//	 backfill           at most                 downsample.Batches -> pass
//	    |               MaxConcurrent runs        query -> points -> ingest
//	    |                    |                    watermark      late points |
//	    v                    v                                               v
//	store.KeyValues, service _Rollups: Config, Status, Watermark, Late <- lateNotes
//
// # Buckets and their results
//
// Time is cut into buckets that depend only on the sampling of a query's last
// range aggregator and on the zone (agg.Grid), never on when a run happens.
// A result carries the time of its bucket's start, or of its end, as the aggregator
// says. If it says nothing: on a store that KairosDB may use too, the time of the
// bucket's first point, as KairosDB does; else the start. Computing a bucket again
// overwrites the result, and deletes what was stored for this bucket at other times.
//
// A target of package downsample is one metric of a roll-up. Its watermark is under
// Watermark, its late points under Late, or in files where the store is shared with
// other nodes and may be away.
//
// # Neighbours
//
// A batch is computed by one query. Where aggregators look at neighbours (rate,
// diff, sampler, sma, trim), or one before the last has longer buckets, the query
// reads more than the batch, and results beside it are dropped. So what comes
// out does not depend on how buckets were put into batches.
//
// # Failures
//
// A failed run leaves the watermark at the last complete batch and records the reason
// in the status. It is repeated after RetryInterval or the task's own interval,
// whichever is shorter. If a batch exceeds a limit of a query, it is halved
// repeatedly, down to single buckets.
package rollup
