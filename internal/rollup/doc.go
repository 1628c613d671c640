// Package rollup runs KairosDB's roll-up tasks: queries with range aggregators that are
// executed on a schedule and whose results are stored as new metrics. Package
// downsample decides which buckets are due.
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
// Time is cut into buckets that depend only on the sampling of a query's last range
// aggregator and on the zone (agg.Grid), never on when a run happens. A result has the
// time of its bucket's start or end, as the aggregator says. If the aggregator says
// neither, the result has the time of the bucket's start; on a store that KairosDB may
// use too, that of the bucket's first point, as in KairosDB. Recomputing a bucket
// overwrites its result, and deletes results of the bucket at other times.
//
// A target of package downsample is one metric of a roll-up. Its watermark is stored
// under Watermark and its late points under Late, or in files if the store is shared
// with other nodes and may be unavailable.
//
// # Neighbours
//
// One query computes a batch. If aggregators use neighbours (rate, diff, sampler, sma,
// trim), or one before the last has longer buckets, the query reads more than the
// batch, and results outside the batch are dropped. So results do not depend on how
// buckets are divided into batches.
//
// # Failures
//
// A failed run leaves the watermark at the last complete batch and records the reason
// in the status. It is repeated after RetryInterval or the task's own interval,
// whichever is shorter. If a batch exceeds a limit of a query, it is halved repeatedly,
// down to single buckets.
package rollup
