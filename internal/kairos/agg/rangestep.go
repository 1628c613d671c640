package agg

import (
	"time"

	"varve/internal/model"
)

// A Range holds what all range aggregators have in common: how time is cut into
// buckets and how their results are stamped.
type Range struct {
	Sampling   Sampling
	Align      bool   // origin moved back to the beginning of the unit
	AlignStart bool   // stamp is the bucket's start; wins over AlignEnd
	AlignEnd   bool   // stamp is the bucket's end
	StartMS    *int64 // origin before alignment; nil is the query's start
	EndMS      *int64 // nil is the query's end; used only by `gaps`
	Trim       bool   // used only by `gaps`
	Zone       *time.Location
}

// rangeProperties are the properties of every range aggregator.
var rangeProperties = []Property{
	{Name: "sampling", Kind: SamplingProperty, Doc: "length of a bucket"},
	{Name: "align_sampling", Kind: BoolProperty, Doc: "align buckets to the unit", Hidden: true},
	{Name: "align_start_time", Kind: BoolProperty, Doc: "stamp results with the start of the bucket"},
	{Name: "align_end_time", Kind: BoolProperty, Doc: "stamp results with the end of the bucket"},
	{Name: "start_time", Kind: LongProperty, Doc: "origin of buckets, ms", Hidden: true},
	{Name: "end_time", Kind: LongProperty, Doc: "end of the buckets of gaps, ms", Hidden: true},
	{Name: "time_zone", Kind: ZoneProperty, Doc: "zone of days and longer units", Hidden: true},
	{Name: "trim", Kind: BoolProperty, Doc: "gaps: no nulls before the first and after the last point"},
}

// rangeOf reads the common properties.
func rangeOf(a Args) Range {
	r := Range{
		Sampling:   a.Sampling("sampling"),
		Align:      a.Bool("align_sampling", true),
		AlignStart: a.Bool("align_start_time", false),
		AlignEnd:   a.Bool("align_end_time", false),
		Trim:       a.Bool("trim", false),
		Zone:       a.Zone("time_zone"),
	}
	if a.Has("start_time") {
		v := a.Long("start_time", 0)
		r.StartMS = &v
	}
	if a.Has("end_time") {
		v := a.Long("end_time", 0)
		r.EndMS = &v
	}
	return r
}

// buckets returns the buckets for a group.
func (r *Range) buckets(env *Env) *buckets {
	b := &buckets{cal: calendar{env.zone(r.Zone)}, sampling: r.Sampling, originMS: env.Range.StartMS}
	if r.StartMS != nil {
		b.originMS = *r.StartMS
	}
	if r.Align {
		b.originMS = b.cal.alignDown(b.originMS, r.Sampling.Unit)
	} else if r.Sampling.Unit.fixedMS() == 0 {
		b.originMS = clampMS(b.originMS)
	}
	return b
}

// stamp returns the time of a bucket's result: ownMS, unless an alignment is set.
func (r *Range) stamp(b bucket, ownMS int64) int64 {
	switch {
	case r.AlignStart:
		return b.startMS
	case r.AlignEnd:
		return b.endMS()
	}
	return ownMS
}

// A foldStep is a range aggregator that is a fold.
type foldStep struct {
	Range
	fold fold
}

func (s *foldStep) Accepts(groupType string) bool {
	return s.fold.any || groupType == TypeNumber
}

func (s *foldStep) Yields(groupType string) string {
	if s.fold.number {
		return TypeNumber
	}
	return groupType
}

// result fills p with the aggregate of a bucket, except a value in Data.
func (s *foldStep) result(t *tally, p *Point) {
	own := t.firstMS
	if s.fold.ownStamp {
		own = t.last.ms
	}
	kind, bits := s.fold.value(t)
	*p = Point{TimeMS: s.stamp(t.bucket, own), Kind: kind, Bits: bits}
}

func (s *foldStep) Apply(env *Env, in Stream) Stream {
	return &foldStream{step: s, in: in, buckets: s.buckets(env), wholes: env.first}
}

// foldStream folds a stream in order. It reads one point ahead.
type foldStream struct {
	step    *foldStep
	in      Stream
	buckets *buckets
	wholes  bool // points may stand for buckets of the store
	mixed   bool // such a point is in the tally

	ahead Point // first point of the next bucket, if begun
	begun bool
	done  bool
	tally tally
	first []byte // values of variable kinds
	last  []byte
}

func (f *foldStream) Next(p *Point) (bool, error) {
	if !f.begun {
		f.begun = true
		ok, err := f.in.Next(&f.ahead)
		if !ok || err != nil {
			f.done = true
			return false, err
		}
		if err := f.buckets.check(); err != nil {
			return false, err
		}
	}
	if f.done {
		return false, nil
	}
	f.mixed = false
	f.tally.reset(f.buckets.find(f.ahead.TimeMS))
	f.first = append(f.first[:0], f.ahead.Data...)
	openedMS := f.ahead.TimeMS
	if err := f.fill(); err != nil {
		return false, err
	}
	if f.tally.count == 0 { // nulls only
		return false, errNull
	}
	f.tally.firstMS = openedMS // even if that is the time of a null
	f.step.result(&f.tally, p)
	if p.Kind.Variable() {
		p.Data = f.last
		if f.step.fold.needs&model.StatFirst != 0 {
			p.Data = f.first
		}
	}
	return true, nil
}

// fill adds points up to the end of the bucket and leaves the first one of the next
// bucket in f.ahead. A bucket is open to its end even if points from before its start
// follow, as they can after another aggregator.
func (f *foldStream) fill() error {
	need, keep := f.step.fold.needs, f.step.fold.needs&model.StatLast != 0
	for {
		null := f.ahead.Kind == model.Null && need&(model.StatSum|model.StatMin|model.StatMax) != 0
		if null && !f.step.fold.skipsNulls {
			return errNull
		}
		switch {
		case null:
		case f.mixed || f.wholes && f.ahead.Whole != nil:
			f.mixed = true
			f.tally.addStored(need, &f.ahead)
		default:
			f.tally.addPoint(need, &f.ahead)
		}
		if keep && f.ahead.Kind.Variable() {
			f.last = append(f.last[:0], f.ahead.Data...)
		}
		ok, err := f.in.Next(&f.ahead)
		if err != nil {
			return err
		}
		if !ok {
			f.done = true
			return nil
		}
		if f.ahead.TimeMS > f.tally.finalMS {
			return nil
		}
	}
}
