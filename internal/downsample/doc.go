// Package downsample keeps derived buckets up to date: buckets of time that are
// computed from samples and stored as samples. It decides which buckets are due, and in
// which batches. Its users decide from which samples a bucket is computed, and how.
//
//	ingest --- Resolved, Appending ---> LateList --- Take ---+
//	                                                         v
//	Watermark -------------------------------------------> Batches --- Once ---> user
//
// # What is computed when
//
// A [Grid] cuts time into buckets. It never depends on when a bucket is computed.
// Recomputing a bucket replaces its result.
//
// Each target has a [Watermark]: a time W and the instant R at which a run began. All
// buckets that end at or before W include every sample that had arrived by R. The next
// run begins with the bucket of
//
//	min(W, R - horizon)
//
// where horizon is the longer of the present one and that of the previous run. It
// continues up to the current bucket, which it computes although it is incomplete, and
// it moves W no further than the start of that bucket. So the results of the next run
// include a sample that arrives at most one horizon after its own time. Buckets missed
// while the process was down lie after W, and the first run computes them. The
// watermark is stored after each batch, so that an interrupted run continues where it
// stopped.
//
// # Late samples
//
// If a sample arrives later (to be safe: later than half of the horizon), its bucket is
// noted in a LateList. The next run computes all noted buckets, however old they are.
// Notes are as durable as the samples, in one of two ways:
//
//   - If the store has a log of its own, it is a [Journal]: the embedded store, and the
//     store over Cassandra with its spool. Notes are in memory, and are stored before
//     the part of the log with their samples is released. So after a crash, each late
//     sample is in the log, or its note is stored. The start cannot know which samples
//     in the log were late, and notes the [Hours] of all of them. This recomputes some
//     buckets needlessly after a crash, but a batch needs only one sync. No log record
//     mentions notes, so the format of the log is the same, and earlier versions can
//     read it.
//   - Otherwise the user's [Keep] stores the notes before the samples are stored.
//
// Keep stores a Journal's notes in the key-values of the store. If these may be
// unavailable when the log is released, the notes are stored in files of this node
// (notebook). Keep then serves only when a file cannot be written, since the log must
// be released even on a full disk.
//
// Until all tasks are known, as on a node that starts while the store is unavailable,
// the hours of late samples are noted too (Journal.AddUnnoted). They are handled like
// the hours that a start has found in the log: [LateList.AllRead] turns both into
// buckets once the tasks are known.
package downsample
