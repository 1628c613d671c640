package store

import (
	"context"
	"sync"
	"sync/atomic"
)

type recordedKey struct{}

// WithRecorded returns a context for a [Deleter]. The store calls recorded at most once: when the
// rest of the delete is recorded, so that it will be completed even if the caller leaves. From then
// on the caller only waits. A store that records no deletes never calls it. A nil recorded is not
// called.
func WithRecorded(ctx context.Context, recorded func()) context.Context {
	if recorded != nil {
		recorded = sync.OnceFunc(recorded)
	}
	return context.WithValue(ctx, recordedKey{}, recorded)
}

// Recorded tells the caller of a delete that the rest of it is recorded.
func Recorded(ctx context.Context) {
	if recorded, _ := ctx.Value(recordedKey{}).(func()); recorded != nil {
		recorded()
	}
}

// RecordedParts returns the contexts of n parts of a delete. The caller of the delete is told once
// all of them are recorded; [Recorded] is called with the context of a part that has ended, too.
func RecordedParts(ctx context.Context, n int) []context.Context {
	var left atomic.Int64
	left.Store(int64(n))
	parts := make([]context.Context, n)
	for i := range parts {
		parts[i] = WithRecorded(ctx, func() {
			if left.Add(-1) == 0 {
				Recorded(ctx)
			}
		})
	}
	return parts
}
