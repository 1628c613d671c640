// Package rollup runs KairosDB's roll-up tasks: queries with range aggregators
// that are executed on a schedule and whose results are stored as new metrics.
//
//	HTTP: API -------> Scheduler --- due ---> run of a task
//	 tasks, status,     one goroutine,          for each roll-up and metric:
//	 backfill           at most                 grid of buckets -> batches
//	    |               MaxConcurrent runs        query -> points -> ingest
//	    |                    |                    watermark      late points |
//	    v                    v                                               v
//	store.KeyValues, service _Rollups: Config, Status, Watermark, Late <- lateList
//
// # What is computed when
//
// Time is cut into buckets that depend only on the sampling of a query's last
// range aggregator and on the zone (agg.Grid), never on when a run happens.
// A result carries the time of its bucket's start, or of its end, as the aggregator
// says. If it says nothing: on a store that KairosDB may use too, the time of the
// bucket's first point, as KairosDB does; else the start. Computing a bucket again
// overwrites the result, and deletes what was stored for this bucket at other times.
//
// For each roll-up and metric a watermark is kept: a time W and the instant R
// at which a run began. It says: what had arrived by R is in all buckets that
// end at or before W. The next run begins with the bucket of
//
//	min(W, R - LateHorizon)
//
// and goes on to the current bucket, which is written although it is not
// complete and moves W no further than its start. So a point is in the next
// run's results if it arrives at most LateHorizon after its own time; windows
// missed while the server was down lie after W and are computed by the first
// run; and the watermark is stored after each batch, so that a run that is
// broken off goes on where it was.
//
// # Late points
//
// A point that arrives later than half of LateHorizon after its own time has its
// bucket noted when it is stored (lateList), and the next run computes what is
// noted, however old. Notes are stored before the points: under Late, or in files
// where the store is shared with other nodes and may be away (notebook).
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
// A failed run leaves the watermark at the last complete batch, says why in the
// status, and is tried again after RetryInterval or the task's own interval,
// whichever is shorter. A batch that exceeds a limit of a query is halved down
// to single buckets.
package rollup
