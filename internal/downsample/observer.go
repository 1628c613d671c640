package downsample

import (
	"context"
	"math"

	"varve/internal/store"
)

// Resolved implements ingest.Observer.
func (l *LateList) Resolved(epoch uint64, ref store.Ref, metric string) {
	l.mu.RLock()
	s := l.sources[metric]
	known := s == nil && !l.unknown || epoch < l.epoch || s != nil && l.epoch == epoch && l.refs[ref] == s // the store refuses batches of an older epoch
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

// A note is a range of buckets of a target for which a batch has samples.
type note struct {
	target *target
	span   Span
}

func nothing() {}

// ageMS is the age from which samples count as old.
func (l *LateList) ageMS() int64 { return l.o.Horizon.Milliseconds() / 2 }

// Appending implements ingest.Observer.
func (l *LateList) Appending(ctx context.Context, b *store.Batch) (done func(), err error) {
	nowMS := l.o.Now().UnixMilli()
	before := nowMS - l.ageMS()
	first := 0
	for first < len(b.Samples) && b.Samples[first].TimeMS >= before && !l.outlives(&b.Samples[first], nowMS) {
		first++
	}
	if first == len(b.Samples) {
		return nothing, nil
	}
	notes, hours := l.notes(b, first, nowMS)
	if len(notes) == 0 && hours.Empty() {
		return nothing, nil
	}
	kept, err := l.keepNotes(ctx, notes)
	if err != nil || hours.Empty() { // hours imply a journal, with which keepNotes cannot fail
		return kept, err
	}
	l.o.Journal.AddUnnoted(&hours)
	return func() {
		kept()
		l.early.Done()
	}, nil
}

// notes finds the buckets of a batch's old samples, and their hours while there may be
// unknown tasks. If there are hours, it adds the batch to l.early.
func (l *LateList) notes(b *store.Batch, first int, nowMS int64) (notes []note, hours Hours) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.refs) == 0 || l.epoch != b.Epoch {
		return nil, hours
	}
	before := nowMS - l.ageMS()
	found := batchNotes{moved: l.o.Stored != nil}
	var lastRef store.Ref
	var last *source
	for _, s := range b.Samples[first:] {
		inTime := s.TimeMS >= before
		if inTime && !l.outlives(&s, nowMS) {
			continue
		}
		if s.Ref != lastRef || last == nil {
			lastRef, last = s.Ref, l.refs[s.Ref]
		}
		if last == nil {
			continue
		}
		oldest := l.oldest(&s, nowMS)
		if l.unknown && !outlived(hourOf(s.TimeMS), oldest) {
			hours.Add(last.metric, s.TimeMS)
		}
		for _, x := range last.targets {
			if inTime && !l.leftAlone(x, s.TimeMS, nowMS) {
				continue
			}
			if !found.add(x, s.TimeMS, oldest, max(1, notesOfBatch/len(last.targets))) {
				l.outlived.Add(1)
			}
		}
	}
	if !hours.Empty() {
		l.early.Add(1)
	}
	return found.all, hours
}

// oldest returns the time up to which samples have expired that arrived in time and
// live as long as s; math.MinInt64 if they live for ever.
func (l *LateList) oldest(s *store.Sample, nowMS int64) int64 {
	if s.TTL == 0 || l.o.Lifetime == nil {
		return math.MinInt64
	}
	return nowMS - l.o.Lifetime(s, nowMS)
}

// outlives reports whether a sample lives longer than most.
func (l *LateList) outlives(s *store.Sample, nowMS int64) bool {
	return l.o.DefaultMS > 0 && (s.TTL == 0 || l.o.Lifetime(s, nowMS) > l.o.DefaultMS)
}

// pauseMS is the longest pause between runs after which the next run still includes
// all samples that arrived in time.
const pauseMS = 7 * 24 * hourMS

// leftAlone reports whether runs may omit the bucket of a sample that arrived in time:
// the bucket is complete, or will be when the sample is stored, and other samples of it
// may have expired by then.
func (l *LateList) leftAlone(x *target, ms, nowMS int64) bool {
	if x.grid.Next(ms) > nowMS+l.ageMS() {
		return false
	}
	return x.grid.Start(ms) <= nowMS+pauseMS-l.o.DefaultMS
}

// leave sets leftMS for a bucket if samples at its beginning have expired.
func (x *target) leave(bucket Span, oldest int64) {
	for outlived(bucket, oldest) {
		if left := x.leftMS.Load(); left >= bucket.FromMS || x.leftMS.CompareAndSwap(left, bucket.FromMS) {
			return
		}
	}
}

// outlived reports whether samples at the beginning of a span have expired. oldest is
// the result of LateList.oldest.
func outlived(s Span, oldest int64) bool { return s.FromMS <= oldest && oldest != math.MinInt64 }

// notesOfBatch approximately bounds the notes of one batch for all targets of one metric
// together.
const notesOfBatch = 1 << 16

type batchNotes struct {
	all    []note
	latest map[*target]latestNote
	moved  bool // the store may move samples to the previous bucket
}

// A latestNote is the last note of a target in a batch.
type latestNote struct {
	at int // in batchNotes.all
	n  int // notes of the target so far, including this one
}

// add notes the bucket of ms, unless samples at its beginning have expired (whole is
// false then). Neighbouring samples are mostly in the same bucket or in the next one.
// A target with most notes gets no further note: add extends its last note.
func (b *batchNotes) add(x *target, ms, oldest int64, most int) (whole bool) {
	last, there := b.latest[x]
	var near *Span
	if there {
		if near = &b.all[last.at].span; near.FromMS <= ms && ms < near.UntilMS {
			return true
		}
	}
	bucket := Span{x.grid.Start(ms), x.grid.Next(ms)}
	if outlived(bucket, oldest) {
		return false
	}
	if b.moved {
		x.leave(Span{FromMS: x.grid.Start(bucket.FromMS - 1)}, oldest)
	}
	switch {
	case there && (bucket.FromMS == near.UntilMS || bucket.UntilMS == near.FromMS || last.n >= most):
		near.FromMS, near.UntilMS = min(near.FromMS, bucket.FromMS), max(near.UntilMS, bucket.UntilMS)
		return true
	}
	if b.latest == nil {
		b.latest = map[*target]latestNote{}
	}
	b.latest[x] = latestNote{at: len(b.all), n: last.n + 1}
	b.all = append(b.all, note{x, bucket})
	return true
}
