package agg

import (
	"math"

	"varve/internal/model"
)

// gapsSpec puts a null at the start of each empty bucket, from the one that contains
// the query's start to the last one that begins by its end, and further to the last
// point if an earlier aggregator has put points beyond it. Points that an earlier
// aggregator has put before the query's start count as in the first bucket. All as in
// KairosDB.
var gapsSpec = AggregatorSpec{
	Name: "gaps", Doc: "Marks buckets without points with null.", Properties: rangeProperties,
	New: func(a Args) (Step, error) { return &gapsStep{Range: rangeOf(a)}, nil },
}

type gapsStep struct {
	Range
	anyType
}

func (s *gapsStep) Apply(env *Env, in Stream) Stream {
	within := s.within(env)
	return &gapsStream{in: in, buckets: s.buckets(env), trim: s.Trim, nextMS: within.StartMS, endMS: within.EndMS}
}

// within is the range in which empty buckets are marked.
func (s *gapsStep) within(env *Env) model.TimeRange {
	within := model.TimeRange{StartMS: env.Range.StartMS, EndMS: min(env.Range.EndMS, env.NowMS)}
	if s.StartMS != nil {
		within.StartMS = *s.StartMS
	}
	if s.EndMS != nil {
		within.EndMS = *s.EndMS
	}
	return within
}

// least is a lower bound of the number of resulting points: each bucket of the range
// has at least one. It is 0 if the bound depends on the points.
func (s *gapsStep) least(env *Env) int64 {
	within := s.within(env)
	if s.Trim || s.Sampling.Value <= 0 || within.EndMS < within.StartMS {
		return 0
	}
	cal := calendar{env.zone(s.Zone)}
	return max(0, cal.unitsBetween(within.StartMS, within.EndMS, s.Sampling.Unit)/s.Sampling.Value-1)
}

// gapsStream walks points and buckets in parallel. It reads one point ahead.
type gapsStream struct {
	in      Stream
	buckets *buckets
	trim    bool
	endMS   int64 // buckets that begin later get a null only if a point follows

	nextMS int64 // in the next bucket
	ahead  Point
	more   bool // ahead has a point
	begun  bool
	open   bucket // the bucket whose points are passed on
	ended  bool   // open is the last bucket
	data   []byte
}

func (s *gapsStream) Next(p *Point) (bool, error) {
	if !s.begun {
		if err := s.begin(); err != nil {
			return false, err
		}
	}
	if s.more && s.ahead.TimeMS <= s.open.finalMS {
		return s.pass(p)
	}
	if !s.more && (s.trim || s.ended || s.nextMS > s.endMS) {
		return false, nil
	}
	b := s.buckets.find(s.nextMS)
	s.open, s.nextMS, s.ended = b, b.endMS(), b.finalMS == math.MaxInt64
	if s.more && s.ahead.TimeMS <= b.finalMS {
		return s.pass(p)
	}
	*p = Point{TimeMS: b.startMS, Kind: model.Null}
	return true, nil
}

func (s *gapsStream) begin() (err error) {
	s.begun = true
	if err := s.buckets.check(); err != nil {
		return err
	}
	s.more, err = s.in.Next(&s.ahead)
	if s.more && s.trim {
		s.nextMS = s.ahead.TimeMS
	}
	s.open = bucket{math.MinInt64, math.MinInt64} // none is open
	return err
}

// pass returns the point ahead unchanged, with a copy of its Data.
func (s *gapsStream) pass(p *Point) (bool, error) {
	*p = s.ahead
	s.data = append(s.data[:0], s.ahead.Data...)
	p.Data = s.data
	var err error
	s.more, err = s.in.Next(&s.ahead)
	return true, err
}
