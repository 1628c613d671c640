// Package downsample keeps time buckets up to date that are computed from samples and
// stored as samples. It knows which buckets are due, and has them computed in batches.
// Its users decide from which samples a bucket is computed, and how.
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
// Each target has a [Watermark]: a time W and the instant R at which a run began. It
// means that all buckets that end at or before W include every sample that had arrived
// by R. The next run begins with the bucket of
//
//	min(W, R - horizon)
//
// with the longer of the present horizon and that of the run before, and continues up to the current bucket, which is computed although it is incomplete; it
// moves W no further than its own start. So a sample is in the results of the next run if
// it arrives at most one horizon after its own time. Buckets that were missed while the
// process was down lie after W, and the first run computes them. The watermark is stored
// after each batch, so that an interrupted run continues where it stopped.
//
// # Late samples
//
// If a sample arrives later than that (to be safe: later than half of the horizon), its
// bucket is noted in a LateList. The next run computes all noted buckets, however old they
// are. Notes are as durable as the samples, in one of two ways:
//
//   - If the store has a log of its own, it is a [Journal]: the embedded store, and the
//     store over Cassandra with its spool. Notes are in memory, and are stored before the
//     part of the log with their samples is released. So after a crash, each late sample is
//     still in the log, or its note is stored. The start cannot know which samples in the
//     log were late, and notes the [Hours] of all of them. This costs some needless
//     computing after a crash, and keeps a batch at one sync. No log record mentions notes,
//     so the format of the log is the same, and earlier versions can read it.
//   - Otherwise the user's [Keep] stores the notes before the samples are stored.
//
// Keep stores a Journal's notes in the key-values of the store. If these may be unavailable
// when the log is released, the notes are stored in files of this node (notebook). Keep
// then serves only when a file cannot be written, since a full disk must not keep the log
// from being released.
//
// Until all tasks are known, as on a node that starts while the store is unavailable, the
// hours of late samples are noted too (Journal.AddUnnoted). They are handled like the
// hours that a start has found in the log: [LateList.AllRead] turns both into buckets once
// the tasks are known.
package downsample
