package downsample

import (
	"context"

	"varve/internal/store"
)

// A Journal is a store that acknowledges samples once they are in a log, and that tells
// what a start has found there. Samples that are in the log need no notes on disk: a start
// finds them again. So notes are stored where the log is given up, not in the way of each
// batch.
type Journal interface {
	// BeforeTrim has f called before a part of the log is given up, after everything in it
	// was appended. An error keeps the log. What f is given takes changes on a full disk
	// too.
	BeforeTrim(f func(context.Context, store.KeyValues) error)

	// Unnoted returns of which metrics and hours there are samples whose buckets nobody
	// could note: they were in the log when the store was opened, this time or earlier, or
	// AddUnnoted told of them. Settle forgets them.
	Unnoted() *Hours

	// AddUnnoted adds hours, of samples that are about to be appended: they are stored
	// before the part of the log is given up that has these.
	AddUnnoted(*Hours)

	// Settle forgets what Unnoted has returned: it is noted.
	Settle(ctx context.Context) error
}
