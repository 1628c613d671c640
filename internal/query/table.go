package query

import (
	"sort"

	"varve/internal/model"
	"varve/internal/store"
)

// A table folds series, one after the other, into the buckets of a group. Only
// buckets with samples are held, in order of time. It is used by one goroutine.
type table struct {
	run     *Run
	step    *foldStep
	buckets *buckets
	lease   *lease

	tallies []tally
	pos     int     // where the current series stands in tallies
	extra   []tally // buckets of the current series that are not in tallies
	spare   []tally // memory of the last merge
}

// addSeries folds the samples of one series and reports whether there were any.
// order is the position of the series in its group.
func (t *table) addSeries(s store.Series, o store.ReadOptions, order int32) (bool, error) {
	t.pos, t.extra = 0, t.extra[:0]
	o.Summarize = t.summarize()
	cursor := t.run.cursor(s, o)
	defer cursor.Close()
	kind, any := s.Type.Kind(), false
	for {
		if err := t.run.ctx.Err(); err != nil {
			return false, err
		}
		block, err := cursor.Next()
		if err != nil {
			return false, err
		}
		if block == nil {
			t.merge()
			return any, nil
		}
		n, err := t.addBlock(kind, block, order)
		if err != nil {
			return false, err
		}
		if err := t.run.addSamples(n); err != nil {
			return false, err
		}
		any = any || n > 0
	}
}

// summarize returns the question whether a run of samples lies in one bucket.
// Runs come in order, so the last bucket is likely to be that of the next.
func (t *table) summarize() func(firstMS, lastMS int64) bool {
	var b bucket
	known := false
	return func(firstMS, lastMS int64) bool {
		if !known || firstMS < b.startMS || firstMS >= b.endMS {
			b, known = t.bucketOf(firstMS), true
		}
		return lastMS < b.endMS
	}
}

// bucketOf finds a bucket in the table first: calendar arithmetic is slow.
func (t *table) bucketOf(ms int64) bucket {
	i := sort.Search(len(t.tallies), func(i int) bool { return t.tallies[i].endMS > ms })
	if i < len(t.tallies) && t.tallies[i].startMS <= ms {
		return bucket{t.tallies[i].startMS, t.tallies[i].endMS}
	}
	return t.buckets.find(ms)
}

// addBlock returns the number of samples in the block.
func (t *table) addBlock(kind model.Kind, block *store.Block, order int32) (int64, error) {
	if s := block.Stats; s != nil {
		if s.Count == 0 {
			return 0, nil
		}
		at, err := t.at(s.FirstMS)
		if err != nil {
			return 0, err
		}
		at.addStats(kind, s, order)
		t.run.engine.metrics.summarized.Inc()
		return int64(s.Count), nil
	}
	times := block.Times
	for i := 0; i < len(times); {
		at, err := t.at(times[i])
		if err != nil {
			return 0, err
		}
		j := runEnd(times, i, at.endMS)
		at.addRun(t.step.fold.needs, kind, &block.Columns, i, j, order)
		i = j
	}
	return int64(len(times)), nil
}

// runEnd returns the first index after i whose time is not before endMS. It
// doubles its stride, so that short runs cost little and long ones log n.
func runEnd(times []int64, i int, endMS int64) int {
	n := len(times)
	if times[n-1] < endMS {
		return n
	}
	lo, stride := i, 1
	for lo+stride < n && times[lo+stride] < endMS {
		lo += stride
		stride *= 2
	}
	hi := min(lo+stride, n)
	return lo + sort.Search(hi-lo, func(k int) bool { return times[lo+k] >= endMS })
}

// at returns the tally that a time belongs to. Times of one series ascend. The
// tally may move with the next call.
func (t *table) at(ms int64) (*tally, error) {
	if n := len(t.extra); n > 0 && ms < t.extra[n-1].endMS {
		return &t.extra[n-1], nil
	}
	if t.pos < len(t.tallies) && t.tallies[t.pos].endMS <= ms {
		rest := t.tallies[t.pos+1:]
		if len(rest) > 0 && rest[0].endMS <= ms {
			t.pos += sort.Search(len(rest), func(i int) bool { return rest[i].endMS > ms })
		}
		t.pos++
	}
	if t.pos < len(t.tallies) && t.tallies[t.pos].startMS <= ms {
		return &t.tallies[t.pos], nil
	}
	if err := t.lease.take(tallyBytes); err != nil {
		return nil, err
	}
	var fresh tally
	fresh.reset(t.buckets.find(ms))
	t.extra = append(t.extra, fresh)
	return &t.extra[len(t.extra)-1], nil
}

// merge moves the buckets of the finished series into the table.
func (t *table) merge() {
	switch {
	case len(t.extra) == 0:
	case len(t.tallies) == 0:
		t.tallies, t.extra = t.extra, t.tallies
	case t.tallies[len(t.tallies)-1].startMS < t.extra[0].startMS:
		t.tallies = append(t.tallies, t.extra...)
	default:
		merged := mergeTallies(t.spare[:0], t.tallies, t.extra)
		t.spare, t.tallies = t.tallies, merged
	}
}

// mergeTallies appends two ordered lists as one; equal buckets are added up.
func mergeTallies(dst, a, b []tally) []tally {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0].startMS < b[0].startMS:
			dst, a = append(dst, a[0]), a[1:]
		case a[0].startMS > b[0].startMS:
			dst, b = append(dst, b[0]), b[1:]
		default:
			sum := a[0]
			sum.addTally(&b[0])
			dst, a, b = append(dst, sum), a[1:], b[1:]
		}
	}
	return append(append(dst, a...), b...)
}

// tallyStream yields the results of the buckets.
type tallyStream struct {
	step    *foldStep
	tallies []tally
}

func (s *tallyStream) Next(p *Point) (bool, error) {
	if len(s.tallies) == 0 {
		return false, nil
	}
	s.step.result(&s.tallies[0], p)
	s.tallies = s.tallies[1:]
	return true, nil
}
