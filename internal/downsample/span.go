package downsample

import (
	"encoding/json"
	"slices"
)

// A Span is the time from one ms to another, the end excluded. In JSON it is [from,
// until].
type Span struct{ FromMS, UntilMS int64 }

func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal([2]int64{s.FromMS, s.UntilMS}) }

func (s *Span) UnmarshalJSON(text []byte) error {
	var ends [2]int64
	err := json.Unmarshal(text, &ends)
	s.FromMS, s.UntilMS = ends[0], ends[1]
	return err
}

// Spans are ascending and do not touch each other.
type Spans []Span

// Add returns s with x added, and whether that changed it. Beyond most spans, the two
// nearest to each other become one, including the time between them.
func (s Spans) Add(x Span, most int) (_ Spans, changed bool) {
	if x.UntilMS <= x.FromMS {
		return s, false
	}
	// from is the first span that x touches, until the first one after those.
	from, _ := slices.BinarySearchFunc(s, x.FromMS, func(o Span, ms int64) int {
		if o.UntilMS < ms {
			return -1
		}
		return 1
	})
	until := from
	for until < len(s) && s[until].FromMS <= x.UntilMS {
		until++
	}
	if from < until {
		whole := Span{min(x.FromMS, s[from].FromMS), max(x.UntilMS, s[until-1].UntilMS)}
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

func (s Spans) joinNearest() Spans {
	best := 1
	for i := 2; i < len(s); i++ {
		if s[i].FromMS-s[i-1].UntilMS < s[best].FromMS-s[best-1].UntilMS {
			best = i
		}
	}
	s[best-1].UntilMS = s[best].UntilMS
	return slices.Delete(s, best, best+1)
}

// without returns the part of s outside x.
func (s Spans) without(x Span) (left Spans) {
	if x.UntilMS <= x.FromMS {
		return s
	}
	for _, o := range s {
		if o.FromMS < x.FromMS {
			left = append(left, Span{o.FromMS, min(o.UntilMS, x.FromMS)})
		}
		if o.UntilMS > x.UntilMS {
			left = append(left, Span{max(o.FromMS, x.UntilMS), o.UntilMS})
		}
	}
	return left
}

// before returns the part of s before ms.
func (s Spans) before(ms int64) Spans { return s.without(Span{ms, 1<<63 - 1}) }
