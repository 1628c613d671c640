package timelinetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

func testPage(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	base := time.Now().Add(-time.Hour).UnixMicro()
	events, want := row(50, func(i int64) int64 { return base + i*7*second }, name)
	for _, one := range events {
		s.append(e, one)
	}
	s.want(e, timeline.Query{Timelines: []string{name}}, want)
	s.want(e, timeline.Query{Timelines: []string{name}, From: new(base + 7*second), Until: new(base + 10*7*second)}, want[1:11])
	s.want(e, timeline.Query{Timelines: []string{name}, Type: "other"}, nil)
	s.want(e, timeline.Query{Timelines: []string{s.name("none")}}, nil)
	p, err := e.Read(s.ctx(), timeline.Query{Timelines: []string{name}, Limit: 2})
	s.must(err)
	if f := p.Events[0]; string(f.Data) != "data of e49" || f.Type != "t" || f.Timeline != name {
		t.Errorf("event %+v", f)
	}
	if _, err := e.Read(s.ctx(), timeline.Query{Timelines: []string{name}, Order: timeline.Ascending, Cursor: p.Cursor}); !errors.As(err, new(*store.InputError)) {
		t.Errorf("the cursor of the other direction: %v", err)
	}
	latest, err := e.Latest(s.ctx(), name)
	if err != nil || latest.ID != "e49" {
		t.Errorf("latest %+v, %v", latest, err)
	}
	if _, err := e.Latest(s.ctx(), s.name("none")); !errors.Is(err, timeline.ErrNotFound) {
		t.Errorf("latest of none: %v", err)
	}
	stats, err := e.Stats(s.ctx(), name)
	if err != nil || stats.Rate < 0.14 || stats.Rate > 0.15 || stats.Start.First.ID != "e0" || stats.Newest.ID != "e49" {
		t.Errorf("stats %+v, %v", stats, err)
	}
	all, next, err := e.Names(s.ctx(), s.prefix, "", 10, nil)
	if err != nil || next != "" || len(all) != 1 || all[0].Name != name || all[0].Newest.ID != "e49" {
		t.Errorf("names %+v, %q, %v", all, next, err)
	}
}

// testSparse is acceptance test 3: three events in ten thousand buckets.
func testSparse(t *testing.T, s *suite) {
	name := s.name("a")
	var calls atomic.Int64
	e := s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"Slice": Doing(func() { calls.Add(1) })}}, time.Now)
	base := time.Now().UnixMicro() - 20_000*10*second
	events, want := row(3, func(i int64) int64 { return base + i*4999*10*second }, name)
	for _, one := range events {
		s.append(e, one)
	}
	slices.Reverse(want)
	var reads []int64
	all, n := s.pages(e, timeline.Query{Timelines: []string{name}, Limit: 1}, func(timeline.Page) { reads = append(reads, calls.Swap(0)) })
	if got := names(all); !slices.Equal(got, want) || n < 3 || n > 4 {
		t.Errorf("%d pages: %v, want %v", n, got, want)
	}
	if most := slices.Max(reads); most > 4 {
		t.Errorf("buckets read for each page: %v, want 4 at most", reads)
	}
}

// testOneTime is acceptance test 4: a thousand events at one time, read in pages of seven
// while newer ones arrive.
func testOneTime(t *testing.T, s *suite) {
	name := s.name("a")
	e := s.engine(s.shelf, time.Now)
	base := time.Now().Add(-time.Minute).UnixMicro()
	var events []timeline.Addressed
	var want []string
	for i := range 1000 {
		events = append(events, event(base, fmt.Sprintf("%04d", i), name))
		want = append(want, fmt.Sprintf("%d/%04d", base, 999-i))
	}
	s.append(e, events...)
	newer := 0
	all, _ := s.pages(e, timeline.Query{Timelines: []string{name}, Limit: 7}, func(timeline.Page) {
		if newer++; newer%10 == 0 {
			s.append(e, event(base+int64(newer), "newer", name))
		}
	})
	if got := names(all); !slices.Equal(got, want) {
		t.Error(difference(got, want))
	}
}

func testMerge(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	a, b, c := s.name("a"), s.name("b"), s.name("c")
	base := time.Now().Add(-time.Hour).UnixMicro()
	var want []string
	var events []timeline.Addressed
	for i := range 60 {
		to := [][]string{{a}, {b}, {a, b, c}, {c, a}}[i%4]
		at := base + int64(i/2)*5*second
		events = append(events, event(at, fmt.Sprintf("%02d", i), to...))
		for range to {
			want = append(want, fmt.Sprintf("%d/%02d", at, i))
		}
	}
	s.append(e, events...)
	s.want(e, timeline.Query{Timelines: []string{c, a, b}}, want)
	all, _ := s.pages(e, timeline.Query{Timelines: []string{c, a, b}, Limit: 1}, nil)
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.Timeline+f.ID] = true
	}
	if len(seen) != len(want) || len(all) != len(want) {
		t.Errorf("%d different of %d events one by one, want %d", len(seen), len(all), len(want))
	}
	r, err := e.Append(s.ctx(), []timeline.Addressed{event(base, "x", a, "\x00"), event(base, "y", a), event(base, "z"), event(base, "z", a, a), {Event: timeline.Event{Time: base}, Timelines: []string{a}}})
	if err != nil || r.Accepted != 2 || len(r.Rejected) != 3 || r.IDs[4] == "" || r.Rejected[0].Index != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
