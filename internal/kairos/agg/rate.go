package agg

import "time"

// rateSpec is the change between neighbouring points per sampling.
func rateSpec() AggregatorSpec {
	return AggregatorSpec{
		Name: "rate", Doc: "Change between two points per unit of time.",
		Properties: []Property{
			{Name: "sampling", Kind: SamplingProperty, Doc: "time for which the change is computed"},
			{Name: "unit", Kind: UnitProperty, Doc: "the same as a sampling of one unit", Hidden: true},
			{Name: "time_zone", Kind: ZoneProperty, Doc: "zone of days and longer units", Hidden: true},
		},
		New: func(a Args) (Step, error) {
			return perTime("rate", a.SamplingOrUnit(), a.Zone("time_zone"), func(was, now *Point) float64 {
				return now.Float() - was.Float()
			}), nil
		},
	}
}

// perTime divides the result of change by the time between two points and scales it to
// a sampling that starts at the first of them.
func perTime(name string, sampling Sampling, zone *time.Location, change func(was, now *Point) float64) *pairStep {
	return &pairStep{bind: func(env *Env) func(was, now *Point) (float64, error) {
		span := span{sampling, calendar{env.zone(zone)}}
		return func(was, now *Point) (float64, error) {
			if now.TimeMS == was.TimeMS {
				return 0, sameTime(name)
			}
			return change(was, now) / elapsedMS(was.TimeMS, now.TimeMS) * span.lengthMS(was.TimeMS), nil
		}
	}}
}

// elapsedMS is the time from one instant to another, negative if that is earlier. The
// difference may exceed int64.
func elapsedMS(fromMS, toMS int64) float64 {
	if toMS < fromMS {
		return -elapsedMS(toMS, fromMS)
	}
	return float64(uint64(toMS) - uint64(fromMS))
}

// A span is the length of a sampling that starts at a given time.
type span struct {
	sampling Sampling
	cal      calendar
}

func (s span) lengthMS(startMS int64) float64 {
	if f := s.sampling.Unit.fixedMS(); f > 0 {
		return float64(saturatingMul(f, s.sampling.Value))
	}
	if clampMS(startMS) != startMS { // beyond the calendar
		startMS = 0
	}
	return float64(s.cal.add(startMS, s.sampling.Value, s.sampling.Unit) - startMS)
}
