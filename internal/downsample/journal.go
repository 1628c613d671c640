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
	// BeforeTrim registers f. The Journal calls f before it releases a part of the log,
	// and after everything in that part was appended. If f fails, the log is kept. The
	// KeyValues that f gets take changes on a full disk too.
	BeforeTrim(f func(context.Context, store.KeyValues) error)

	// Unnoted returns the metrics and hours of samples whose buckets could not be noted:
	// those of samples that were in the log when the store was opened, this time or
	// earlier, and those from AddUnnoted. Settle forgets them.
	Unnoted() *Hours

	// AddUnnoted adds the hours of samples that are about to be appended. The Journal
	// stores the hours before it releases the part of the log with these samples.
	AddUnnoted(*Hours)

	// Settle forgets the hours that Unnoted has returned, once they are noted.
	Settle(ctx context.Context) error
}
