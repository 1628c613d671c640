package downsample

import "context"

// Batches compute buckets of a target, many at a time.
type Batches struct {
	Grid Grid
	Most int // buckets of a batch

	// Once computes the buckets from one that begins at fromMS to one that ends at
	// untilMS.
	Once func(ctx context.Context, fromMS, untilMS int64) error

	// TooMuch reports whether fewer buckets may succeed where Once failed with an error.
	TooMuch func(error) bool
}

// Compute computes all buckets from that of startMS to that of endMS; done is told the
// end of each batch.
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

// Advance computes all buckets from that of startMS to the current one of a run that
// begins at nowMS. store is given the watermark after each batch.
func (b *Batches) Advance(ctx context.Context, startMS, nowMS int64, store func(Watermark) error) error {
	current := b.Grid.Start(nowMS)
	return b.Compute(ctx, startMS, nowMS, func(until int64) error {
		return store(Watermark{UntilMS: min(until, current), RunMS: nowMS})
	})
}

// batch returns the end of a batch of buckets from the start of one.
func (b *Batches) batch(from, end int64) (until int64, buckets int) {
	if run, bounded := b.Grid.Run(from); bounded {
		end = min(end, run)
	}
	for until = from; until < end && buckets < b.Most; buckets++ {
		until = b.Grid.Next(until)
	}
	return until, buckets
}

// divide computes a batch, in halves if it is too much as a whole.
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
