package timelinetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/timeline"
)

var errCall = errors.New("this call fails")

// testReadErrors: whichever call fails, a reader gets an error or all events, with their data.
func testReadErrors(t *testing.T, s *suite) {
	name, base := s.name("a"), floor(time.Now().Add(-time.Hour).UnixMicro(), 60*second)
	e := s.engine(s.shelf, time.Now)
	s.propose(e, name, timeline.Proposal{Size: 60 * second, Factor: 2, Mode: timeline.Index})
	all, _ := row(12, func(i int64) int64 { return base + i*25*second }, name)
	s.append(e, all...)
	read := func(shelf timeline.Shelf, d timeline.Direction) (list []string, err error) {
		e := s.engine(shelf, time.Now)
		for q := (timeline.Query{Timelines: []string{name}, Order: d, Limit: 5}); ; {
			p, err := e.Read(s.ctx(), q)
			if err != nil {
				return nil, err
			}
			for _, f := range p.Events {
				list = append(list, fmt.Sprintf("%d/%s=%s %v", f.Time, f.ID, f.Data, f.Missing))
			}
			if p.End {
				return list, nil
			}
			q.Cursor = p.Cursor
		}
	}
	for _, d := range []timeline.Direction{timeline.Ascending, timeline.Descending} {
		want, err := read(Buckets(s.shelf), d)
		s.must(err)
		if len(want) != len(all) {
			t.Fatalf("%d events, want %d", len(want), len(all))
		}
		for n := int64(1); ; n++ {
			var calls atomic.Int64
			fault := func(Call) error {
				if calls.Add(1) == n {
					return errCall
				}
				return nil
			}
			got, err := read(&Hooked{Shelf: s.shelf, Before: Hooks{"Slice": fault, "Marks": fault, "History": fault, "Payload": fault}}, d)
			if err != nil && !errors.Is(err, errCall) {
				t.Errorf("call %d fails: %v", n, err)
			}
			if err == nil && !slices.Equal(got, want) {
				t.Errorf("call %d fails: no error, and\n%q, want\n%q", n, got, want)
			}
			if calls.Load() < n {
				if n < 10 {
					t.Errorf("a reader makes %d calls", n-1)
				}
				break
			}
			if t.Failed() {
				return
			}
		}
	}
}
