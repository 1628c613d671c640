// Package downsample keeps buckets of time up to date that are computed from samples and
// stored as samples: it knows which buckets are due, and has them computed batch by
// batch. What a bucket is computed from, and how, is its users' business.
//
//	ingest --- Resolved, Appending ---> LateList --- Take ---+
//	                                                         v
//	Watermark -------------------------------------------> Batches --- Once ---> user
//
// # What is computed when
//
// Time is cut into buckets by a [Grid], which never depends on when something is
// computed. Computing a bucket again replaces its result.
//
// For each target a [Watermark] is kept: a time W and the instant R at which a run
// began. It says: what had arrived by R is in all buckets that end at or before W. The
// next run begins with the bucket of
//
//	min(W, R - horizon)
//
// and goes on to the current bucket, which is computed although it is not complete and
// moves W no further than its start. So a sample is in the next run's results if it
// arrives at most one horizon after its own time; what was missed while the process was
// down lies after W and is computed by the first run; and the watermark is stored after
// each batch, so that a run that is broken off goes on where it was.
//
// # Late samples
//
// A sample that arrives later than that, to be safe later than half of the horizon, has
// its bucket noted (LateList). What is noted is computed by the next run, however old it
// is. They are as durable as the samples, in one of two ways:
//
//   - The store has a log of its own and is a [Journal]: the embedded one, and the one over
//     Cassandra with its spool. Notes are in memory, and stored before the part of the log
//     is given up that has their samples. So each late sample that a start finds is in the
//     log, or its note is stored. The start cannot tell which samples of the log were late,
//     and notes the [Hours] of all: some buckets are computed in vain after a crash, and a
//     batch costs one sync at all times. No record of the log says anything about notes. So
//     it has no new version, and builds that know nothing of this read it.
//   - Else the user's [Keep] stores them before the samples.
//
// A Journal's notes are stored by Keep, in its key-values. Where these may be away while
// the log is given up, they are in files of this node (notebook), and by Keep only when a
// file cannot be written: a full disk must get rid of the log.
//
// Until all tasks are known, as on a node that is started while the store is away, the
// hours of late samples are noted beside (Journal.AddUnnoted). These and what a start has
// found in the log are the same: [LateList.AllRead] makes buckets of them once the tasks
// are known.
package downsample
