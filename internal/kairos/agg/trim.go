package agg

import (
	"strings"

	"varve/internal/clip"
)

// trimSpec drops the first point, the last one or both. Without an argument it
// drops nothing, as in KairosDB.
var trimSpec = AggregatorSpec{
	Name: "trim", Doc: "Removes the first point, the last point, or both.",
	Properties: []Property{{Name: "trim", Kind: TextProperty, Doc: "first, last or both"}},
	New: func(a Args) (Step, error) {
		s := &trimStep{}
		switch name := a.Text("trim", ""); strings.ToLower(name) {
		case "first":
			s.first = true
		case "last":
			s.last = true
		case "both":
			s.first, s.last = true, true
		default:
			if a.Has("trim") {
				return nil, &ArgumentError{[]string{clip.Text(name, clippedBytes) + " is not a valid trim type, must be 'first', 'last' or 'both'."}}
			}
		}
		return s, nil
	},
}

type trimStep struct {
	anyType
	first, last bool
}

func (s *trimStep) Apply(_ *Env, in Stream) Stream {
	return &trimStream{in: in, first: s.first, last: s.last}
}

// trimStream reads one point ahead to recognize the last one.
type trimStream struct {
	in          Stream
	first, last bool
	begun       bool
	held        Point
	data, out   []byte
}

func (s *trimStream) Next(p *Point) (bool, error) {
	if s.first {
		s.first = false
		if ok, err := s.in.Next(p); !ok || err != nil {
			return false, err
		}
	}
	if !s.last {
		return s.in.Next(p)
	}
	if !s.begun {
		s.begun = true
		if ok, err := s.hold(); !ok || err != nil {
			return false, err
		}
	}
	*p = s.held
	s.out, s.data = s.data, s.out
	p.Data = s.out[:len(p.Data)]
	return s.hold()
}

func (s *trimStream) hold() (bool, error) {
	ok, err := s.in.Next(&s.held)
	s.data = append(s.data[:0], s.held.Data...)
	return ok, err
}
