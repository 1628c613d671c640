package timelinetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/timeline"
)

var errCall = errors.New("this call fails")

// A failingCall is a shelf in which call number at of the methods that readers use fails.
type failingCall struct {
	timeline.Shelf
	at, calls atomic.Int64
}

func (f *failingCall) fault() error {
	if f.calls.Add(1) == f.at.Load() {
		return errCall
	}
	return nil
}

func (f *failingCall) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if err := f.fault(); err != nil {
		return timeline.Slice{}, err
	}
	return f.Shelf.Slice(ctx, p, r, d, l)
}

func (f *failingCall) Marks(ctx context.Context, name string, from, toExcl int64, d timeline.Direction, limit int) ([]int64, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.Shelf.Marks(ctx, name, from, toExcl, d, limit)
}

func (f *failingCall) History(ctx context.Context, name string) (timeline.History, error) {
	if err := f.fault(); err != nil {
		return timeline.History{}, err
	}
	return f.Shelf.History(ctx, name)
}

func (f *failingCall) Payload(ctx context.Context, key timeline.PayloadKey) ([]byte, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.Shelf.Payload(ctx, key)
}

// testReadErrors: whichever call fails, a reader gets an error or all events, with their data.
func testReadErrors(t *testing.T, s *suite) {
	name, base := s.name("a"), floor(time.Now().Add(-time.Hour).UnixMicro(), 60*second)
	e := s.engine(s.shelf, time.Now)
	s.propose(e, name, timeline.Proposal{Size: 60 * second, Factor: 2, Mode: timeline.Index})
	var all []timeline.Addressed
	for i := range int64(12) {
		all = append(all, event(base+i*25*second, fmt.Sprint("e", i), name))
	}
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
			f := &failingCall{Shelf: s.shelf}
			f.at.Store(n)
			got, err := read(f, d)
			if err != nil && !errors.Is(err, errCall) {
				t.Errorf("call %d fails: %v", n, err)
			}
			if err == nil && !slices.Equal(got, want) {
				t.Errorf("call %d fails: no error, and\n%q, want\n%q", n, got, want)
			}
			if f.calls.Load() < n {
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
