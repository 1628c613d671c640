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
// is. Notes are stored before the samples: by the user ([Keep]), or in files where the
// user's store may be away (Notebook).
package downsample
