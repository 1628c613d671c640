package rollup

import (
	"encoding/json"
	"slices"
)

// A span is a time from one ms to another, the end excluded. It is stored as
// [from, until].
type span struct{ fromMS, untilMS int64 }

func (s span) MarshalJSON() ([]byte, error) { return json.Marshal([2]int64{s.fromMS, s.untilMS}) }

func (s *span) UnmarshalJSON(text []byte) error {
	var ends [2]int64
	err := json.Unmarshal(text, &ends)
	s.fromMS, s.untilMS = ends[0], ends[1]
	return err
}

// spans are ascending and do not touch each other.
type spans []span

// add returns s with one more, and whether that changed it. At more than most
// spans the two that are nearest to each other become one, with what lies
// between them.
func (s spans) add(x span, most int) (_ spans, changed bool) {
	if x.untilMS <= x.fromMS {
		return s, false
	}
	// from is the first that x touches, until the first behind those.
	from, _ := slices.BinarySearchFunc(s, x.fromMS, func(o span, ms int64) int {
		if o.untilMS < ms {
			return -1
		}
		return 1
	})
	until := from
	for until < len(s) && s[until].fromMS <= x.untilMS {
		until++
	}
	if from < until {
		whole := span{min(x.fromMS, s[from].fromMS), max(x.untilMS, s[until-1].untilMS)}
		if until == from+1 && whole == s[from] {
			return s, false
		}
		return slices.Replace(s, from, until, whole), true
	}
	s = slices.Insert(s, from, x)
	if len(s) > most {
		s = s.joinNearest()
	}
	return s, true
}

func (s spans) joinNearest() spans {
	best := 1
	for i := 2; i < len(s); i++ {
		if s[i].fromMS-s[i-1].untilMS < s[best].fromMS-s[best-1].untilMS {
			best = i
		}
	}
	s[best-1].untilMS = s[best].untilMS
	return slices.Delete(s, best, best+1)
}

// without returns what is left of s outside of x.
func (s spans) without(x span) (left spans) {
	if x.untilMS <= x.fromMS {
		return s
	}
	for _, o := range s {
		if o.fromMS < x.fromMS {
			left = append(left, span{o.fromMS, min(o.untilMS, x.fromMS)})
		}
		if o.untilMS > x.untilMS {
			left = append(left, span{max(o.fromMS, x.untilMS), o.untilMS})
		}
	}
	return left
}

// before returns what of s lies before a time.
func (s spans) before(ms int64) spans { return s.without(span{ms, 1<<63 - 1}) }
