package downsample

import "context"

// Batches compute the buckets of a target in batches.
type Batches struct {
	Grid Grid
	Most int // buckets per batch

	// Once computes the buckets of [fromMS, untilMS), which begins and ends with a
	// bucket.
	Once func(ctx context.Context, fromMS, untilMS int64) error

	// TooMuch reports whether fewer buckets may succeed after Once failed with this
	// error.
	TooMuch func(error) bool
}

// Compute computes all buckets from that of startMS to that of endMS. done is called
// with the end of each batch.
func (b *Batches) Compute(ctx context.Context, startMS, endMS int64, done func(untilMS int64) error) error {
	end := b.Grid.Next(endMS)
	for from := b.Grid.Start(startMS); from < end; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		until, buckets := b.batch(from, end)
		if err := b.divide(ctx, from, until, buckets); err != nil {
			return err
		}
		if err := done(until); err != nil {
			return err
		}
		from = until
	}
	return nil
}

// Advance computes all buckets from that of startMS to that of nowMS, when the run
// began. store is called with the new watermark after each batch.
func (b *Batches) Advance(ctx context.Context, startMS, nowMS int64, store func(Watermark) error) error {
	current := b.Grid.Start(nowMS)
	return b.Compute(ctx, startMS, nowMS, func(until int64) error {
		return store(Watermark{UntilMS: min(until, current), RunMS: nowMS})
	})
}

// batch returns the end of the batch that begins with the bucket at from, and its
// number of buckets.
func (b *Batches) batch(from, end int64) (until int64, buckets int) {
	if run, bounded := b.Grid.Run(from); bounded {
		end = min(end, run)
	}
	for until = from; until < end && buckets < b.Most; buckets++ {
		until = b.Grid.Next(until)
	}
	return until, buckets
}

// divide computes a batch; if it is too much, recursively in halves.
func (b *Batches) divide(ctx context.Context, from, until int64, buckets int) error {
	err := b.Once(ctx, from, until)
	if err == nil || buckets <= 1 || !b.TooMuch(err) {
		return err
	}
	half := from
	for range buckets / 2 {
		half = b.Grid.Next(half)
	}
	if err := b.divide(ctx, from, half, buckets/2); err != nil {
		return err
	}
	return b.divide(ctx, half, until, buckets-buckets/2)
}
