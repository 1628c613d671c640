package downsample

import (
	"context"

	"varve/internal/store"
)

// Resolved implements ingest.Observer.
func (l *LateList) Resolved(epoch uint64, ref store.Ref, metric string) {
	l.mu.RLock()
	s := l.sources[metric]
	known := s == nil && !l.unknown || epoch < l.epoch || s != nil && l.epoch == epoch && l.refs[ref] == s // what is appended with an older epoch is refused
	l.mu.RUnlock()
	if known {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch < l.epoch {
		return
	}
	if epoch > l.epoch {
		l.epoch = epoch
		clear(l.refs)
	}
	if s = l.sources[metric]; s == nil {
		if !l.unknown {
			return
		}
		s = &source{metric: metric}
		l.sources[metric] = s
	}
	l.refs[ref] = s
}

// A note is a bucket that a batch has points for.
type note struct {
	target *target
	span   Span
}

func nothing() {}

// Appending implements ingest.Observer.
func (l *LateList) Appending(ctx context.Context, b *store.Batch) (done func(), err error) {
	before := l.now().UnixMilli() - l.ageMS
	first := 0
	for first < len(b.Samples) && b.Samples[first].TimeMS >= before {
		first++
	}
	if first == len(b.Samples) {
		return nothing, nil
	}
	notes, hours := l.notes(b, first, before)
	if len(notes) == 0 && hours.Empty() {
		return nothing, nil
	}
	kept, err := l.keepNotes(ctx, notes)
	switch {
	case hours.Empty():
		return kept, err
	case err != nil:
		l.early.Done()
		return nil, err
	}
	l.journal.AddUnnoted(&hours)
	return func() {
		kept()
		l.early.Done()
	}, nil
}

// notes finds the buckets of a batch's old samples, and their hours while there may be
// tasks that are not known. If there are hours, the batch is an early one.
func (l *LateList) notes(b *store.Batch, first int, before int64) (notes []note, hours Hours) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.refs) == 0 || l.epoch != b.Epoch {
		return nil, hours
	}
	var lastRef store.Ref
	var last *source
	for _, s := range b.Samples[first:] {
		if s.TimeMS >= before {
			continue
		}
		if s.Ref != lastRef || last == nil {
			lastRef, last = s.Ref, l.refs[s.Ref]
		}
		if last == nil {
			continue
		}
		if l.unknown {
			hours.Add(last.metric, s.TimeMS)
		}
		for _, x := range last.targets {
			notes = noteOf(notes, x, s.TimeMS)
		}
	}
	if !hours.Empty() {
		l.early.Add(1)
	}
	return notes, hours
}

// noteOf adds the bucket of a time. Neighbouring samples mostly share one, or
// are in one that follows.
func noteOf(notes []note, x *target, ms int64) []note {
	var near *note
	for i := len(notes) - 1; i >= 0 && near == nil; i-- {
		if notes[i].target == x {
			near = &notes[i]
		}
	}
	if near != nil && near.span.FromMS <= ms && ms < near.span.UntilMS {
		return notes
	}
	bucket := Span{x.grid.Start(ms), x.grid.Next(ms)}
	switch {
	case near != nil && bucket.FromMS == near.span.UntilMS:
		near.span.UntilMS = bucket.UntilMS
	case near != nil && bucket.UntilMS == near.span.FromMS:
		near.span.FromMS = bucket.FromMS
	default:
		notes = append(notes, note{x, bucket})
	}
	return notes
}
