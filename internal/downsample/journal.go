package downsample

import (
	"context"

	"varve/internal/store"
)

// A Journal is a store that acknowledges samples once they are in a log, and reports
// which samples it found in the log at its start. Samples in the log need no notes on
// disk, since a start finds them again. So notes are stored when a part of the log is
// released, not for each batch.
type Journal interface {
	// BeforeTrim registers f. The Journal calls f before it releases a part of the log,
	// and after everything in that part was appended. If f fails, the Journal keeps the
	// log. The KeyValues passed to f accept changes even on a full disk.
	BeforeTrim(f func(context.Context, store.KeyValues) error)

	// Unnoted returns the metrics and hours of samples whose buckets are not noted:
	// samples that were in the log at this or an earlier opening of the store, and
	// samples added by AddUnnoted. Settle forgets them.
	Unnoted() *Hours

	// AddUnnoted adds the hours of samples that are about to be appended. The Journal
	// stores the hours before it releases the part of the log with these samples.
	AddUnnoted(*Hours)

	// Settle forgets the hours that Unnoted returned, once they are noted.
	Settle(ctx context.Context) error
}
