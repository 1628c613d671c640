package graphite

import (
	"math"
	"sort"
	"sync"

	"varve/internal/graphite/function"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/store"
)

// read computes the points of series on one grid, in parallel. Their memory has been
// charged.
func (s *source) read(g *grid, list []*read) error {
	for _, one := range list {
		one.fetched = function.Fetched{Name: one.name, Start: g.start, Step: g.step}
	}
	lease := s.session.Lease()
	defer lease.Release()
	idle := readers{session: s.session, lease: &lease}
	return s.session.Cause(s.session.Parallel(len(list), "read series", func(i int) (bool, error) {
		r := idle.take()
		defer idle.put(r)
		if list[i].at == 0 {
			list[i].fetched.Values = make([]float64, g.n)
		}
		err := r.series(g, list[i])
		return list[i].at == g.n, err
	}))
}

// readers is the pool of a fetch: the readers that no goroutine uses.
type readers struct {
	session *query.Session
	lease   *query.Lease

	mu   sync.Mutex
	idle []*reader // mu
}

func (l *readers) take() *reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.idle) - 1; n >= 0 {
		r := l.idle[n]
		l.idle = l.idle[:n]
		return r
	}
	return &reader{session: l.session, lease: l.lease, samples: l.session.GridFold(l.lease)}
}

// keptBuckets is the number of buckets for which an idle reader keeps its buffer: 256 KiB,
// which are not charged to the query.
const keptBuckets = 1 << 12

func (l *readers) put(r *reader) {
	if cap(r.buckets.StartMS) > keptBuckets {
		r.buckets = store.Buckets{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, r)
}

// A reader computes the points of series from their samples and buckets, one series after
// the other. It holds the memory of one series, and is not safe for concurrent use.
type reader struct {
	session *query.Session
	lease   *query.Lease

	samples     *query.GridFold
	buckets     store.Buckets  // downsampled by the store
	mixed       []store.Bucket // buckets of a window in which a point is computed from several buckets
	stagePoints []stagePoint
	values      []float64 // buffer for a window without samples
}

// windowSteps limits the steps of the finest stage that are folded at once.
const windowSteps = 1 << 16

// series computes the points of a series from one.at on, until other queries get their turn. The
// time with buckets and the time after it are in separate windows, because there are rarely samples
// in the time with buckets.
func (r *reader) series(g *grid, one *read) (err error) {
	lease := r.session.Lease()
	defer lease.Release()
	r.buckets.Reset()
	if err := r.session.AppendBuckets(&r.buckets, one.number, g.within(0, g.n), one.policy.Aggregation.Method.Needs(), &lease); err != nil {
		return err
	}
	folded := g.pointsOf(&r.buckets)
	from := sort.Search(r.buckets.Len(), func(i int) bool { return r.buckets.StartMS[i] > g.within(0, one.at).EndMS })
	if one.at == 0 {
		from = 0
	}
	for first := one.at; one.at < g.n; {
		at := one.at
		if at > first && r.session.Due() {
			return nil
		}
		n := min(g.n-at, max(windowSteps*g.finest/g.step, 1))
		if at < folded {
			n = min(n, folded-at)
		}
		begin, end := r.buckets.StartMS[from:], g.within(at, n).EndMS
		to := from + sort.Search(len(begin), func(i int) bool { return begin[i] > end })
		made := r.buckets.Slice(from, to)
		if err := r.window(g, one, at, n, &made); err != nil {
			return err
		}
		from, one.at = to, at+n
	}
	return nil
}

// within returns the time range of n points, the first of which is at.
func (g *grid) within(at, n int64) model.TimeRange {
	startMS := (g.start + at*g.step) * 1000
	return model.TimeRange{StartMS: startMS, EndMS: startMS + n*g.step*1000 - 1}
}

// pointsOf returns the number of points that begin before the end of the last bucket.
func (g *grid) pointsOf(buckets *store.Buckets) int64 {
	end := g.start * 1000
	for i, startMS := range buckets.StartMS {
		end = max(end, startMS+buckets.StepMS[i])
	}
	return min(g.n, (end-g.start*1000+g.step*1000-1)/(g.step*1000))
}

// window computes n points, the first of which is at, from samples and from the buckets
// that begin in this window.
func (r *reader) window(g *grid, one *read, at, n int64, buckets *store.Buckets) error {
	points := one.fetched.Values[at : at+n]
	fine := query.Grid{StartMS: (g.start + at*g.step) * 1000, StepMS: g.finest * 1000, N: int(n * (g.step / g.finest))}
	columns, err := r.samples.Fold(one.number, fine, model.StatLast)
	if err != nil {
		return err
	}
	values := columns.Last
	for k, count := range columns.Count {
		if count == 0 {
			values[k] = math.NaN()
		}
	}
	t := resampler{policy: one.policy, stage: g.stage, startMS: fine.StartMS, stepMS: fine.StepMS}
	_, percentile := one.policy.Aggregation.Method.Percentile()
	switch {
	case values == nil && buckets.Len() == 0:
		fill(points)
		return nil
	case buckets.Len() == 0 && g.stage == 0:
		copy(points, values)
		return nil
	case values == nil:
		scratch, err := r.blank(buckets.Len())
		if err != nil || t.direct(points, buckets, scratch) {
			return err
		}
	}
	if err := r.mix(buckets); err != nil {
		return err
	}
	if percentile {
		if values == nil {
			if values, err = r.blank(fine.N); err != nil {
				return err
			}
		}
		t.percentiles(points, values, r.mixed, g.now*1000)
		return nil
	}
	exact := t.bySamples(buckets.Len() > 0)
	if exact {
		t.whole(points, values, r.mixed, g.now*1000)
		if one.policy.Enforced {
			return nil
		}
	}
	stagePoints, base := t.points(r.stagePoints[:0], values, r.mixed), 0
	if values == nil {
		base = finest(stagePoints)
		if values, err = r.blank(int(n * (t.step(g.stage) / t.step(base)))); err != nil {
			return err
		}
	}
	for k, v := range g.archive(values, base, fine.StartMS/1000, one.policy, stagePoints) {
		if !exact || v != v {
			points[k] = v
		}
	}
	return nil
}

// mix copies buckets to r.mixed, where they are processed one by one, and makes room in
// r.stagePoints.
func (r *reader) mix(buckets *store.Buckets) error {
	n := buckets.Len()
	if more := n - cap(r.mixed); more > 0 {
		if err := r.lease.Take(int64(more) * (bucketBytes + stagePointBytes)); err != nil {
			return err
		}
		r.mixed, r.stagePoints = make([]store.Bucket, 0, n), make([]stagePoint, 0, n)
	}
	r.mixed = r.mixed[:0]
	for i := range n {
		r.mixed = append(r.mixed, buckets.At(i))
	}
	return nil
}

// blank returns n points without a value.
func (r *reader) blank(n int) ([]float64, error) {
	if more := n - cap(r.values); more > 0 {
		if err := r.lease.Take(int64(more) * 8); err != nil {
			return nil, err
		}
		r.values = make([]float64, n)
	}
	values := r.values[:n]
	fill(values)
	return values, nil
}

func fill(points []float64) {
	for i := range points {
		points[i] = math.NaN()
	}
}

// finest returns the finest stage of points, which must not be empty.
func finest(points []stagePoint) int {
	stage := points[0].stage
	for _, p := range points {
		stage = min(stage, p.stage)
	}
	return stage
}

// archive computes the points of the grid's stage, stage by stage, from the points of a
// finer stage, base, which begin at start. In each stage, points of buckets replace the
// computed ones. It overwrites values.
func (g *grid) archive(values []float64, base int, start int64, p retention.Policy, stagePoints []stagePoint) []float64 {
	place(values, stagePoints, base)
	for i := base + 1; i <= g.stage; i++ {
		finer, step := p.Rule.Stages[i-1], p.Rule.Stages[i].Step
		ratio := int(step / finer.Step)
		for k := range len(values) / ratio {
			old := start+int64(k)*step < g.now-finer.Keep
			values[k] = p.Aggregation.Merge(values[k*ratio:(k+1)*ratio], old)
		}
		values = values[:len(values)/ratio]
		place(values, stagePoints, i)
	}
	return values
}
