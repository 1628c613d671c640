package timelinetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// testFactors is acceptance test 5: eras of 1, 3 and 2 partitions, and retries.
func testFactors(t *testing.T, s *suite) {
	now := time.Now()
	base := floor(now.Add(-time.Hour).UnixMicro(), 60*second)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 1},
		timeline.Layout{From: base, Size: 60 * second, Factor: 3}, timeline.Layout{From: base + 300*second, Size: 60 * second, Factor: 2})
	e := s.engine(s.shelf, time.Now)
	events, want := row(300, func(i int64) int64 { return base - 150*second + i*2*second }, name)
	for range 3 { // a storm of retries
		shuffled := slices.Clone(events)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		s.append(e, shuffled...)
	}
	s.want(e, timeline.Query{Timelines: []string{name}}, want)
	for p := range 3 { // the events of the second era are distributed
		out, err := s.shelf.Slice(s.ctx(), timeline.Part{Timeline: name, Start: base, EndExcl: base + 60*second, Partition: p}, timeline.All(), timeline.Ascending, large)
		if err != nil || len(out.Entries) == 0 || len(out.Entries) == 30 {
			t.Errorf("partition %d has %d of 30 events, %v", p, len(out.Entries), err)
		}
	}
	errPart := errors.New("this partition is unavailable")
	failing := &Hooked{Shelf: s.shelf, Before: Hooks{"Slice": func(c Call) error {
		if c.Part.Partition == 2 {
			return errPart
		}
		return nil
	}}}
	if _, err := s.engine(failing, time.Now).Read(s.ctx(), timeline.Query{Timelines: []string{name}, From: new(base), Until: new(base + second)}); !errors.Is(err, errPart) {
		t.Errorf("a partition that cannot be read was treated as empty: %v", err)
	}
}

// testRoundRobin: an event that is sent again is stored in the same partition, even with other data.
// Events whose id the engine generates are distributed over the partitions.
func testRoundRobin(t *testing.T, s *suite) {
	base := floor(time.Now().Add(-time.Hour).UnixMicro(), 60*second)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 3, Placement: timeline.RoundRobin})
	e := s.engine(s.shelf, time.Now)
	events, want := row(100, func(i int64) int64 { return base + i*second/3 }, name)
	for _, data := range []string{"first", "second", "third"} {
		for i := range events {
			events[i].Data = []byte(data)
		}
		s.append(e, events...)
		s.want(e, timeline.Query{Timelines: []string{name}}, want)
		all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
		for _, f := range all {
			if string(f.Data) != data {
				t.Errorf("the %s data was sent last, but %s has %q", data, f.ID, f.Data)
			}
		}
	}
	parts := map[int]int{}
	e = s.engine(&Hooked{Shelf: s.shelf, Before: Hooks{"Put": func(c Call) error {
		for i := range c.Entries {
			parts[c.Entries[i].Partition]++
		}
		return nil
	}}}, time.Now)
	for range 30 {
		s.append(e, event(base, "", name))
	}
	if parts[0] != 10 || parts[1] != 10 || parts[2] != 10 {
		t.Errorf("events by partition: %v, want 10 in each", parts)
	}
}

// testSizes is acceptance test 6: buckets of 1000 s, then of 10 s, from 1332959000 on.
func testSizes(t *testing.T, s *suite) {
	change := int64(1_332_959_000) * second
	c := &clock{at: time.UnixMicro(change - 10_000*second)}
	e := s.engine(s.shelf, c.now)
	name := s.name("a")
	h, err := e.Propose(s.ctx(), name, timeline.Proposal{Size: 1000 * second})
	s.must(err)
	for _, bad := range []int64{change + 5*second, change + 10*second, change - 9990*second, change - 20_000*second} {
		if _, err := e.Propose(s.ctx(), name, timeline.Proposal{From: bad, Size: 10 * second}); !errors.As(err, new(*store.InputError)) {
			t.Errorf("a change at %d was not refused: %v", bad/second, err)
		}
	}
	if _, err := e.Propose(s.ctx(), name, timeline.Proposal{Version: h.Version + 1, From: change, Size: 10 * second}); !errors.Is(err, timeline.ErrConflict) {
		t.Errorf("a proposal to another version: %v", err)
	}
	h, err = e.Propose(s.ctx(), name, timeline.Proposal{Version: h.Version, From: change, Size: 10 * second})
	s.must(err)
	if len(h.Layouts) != 2 || h.Layouts[1].From != change || h.Layouts[1].Factor != 1 {
		t.Errorf("history %+v", h)
	}
	c.at = time.UnixMicro(change + 2000*second)
	events, all := row(80, func(i int64) int64 { return change + (i-50)*37*second }, name) // e50 at the change
	s.append(e, events...)
	for _, w := range [][2]int{{0, 79}, {40, 60}, {49, 50}, {50, 51}, {50, 50}, {10, 20}, {60, 79}} {
		s.want(e, timeline.Query{Timelines: []string{name}, From: new(events[w[0]].Time), Until: new(events[w[1]].Time)}, all[w[0]:w[1]+1])
	}
	s.want(e, timeline.Query{Timelines: []string{name}, From: new(events[40].Time + 1), Until: new(events[60].Time - 1)}, all[41:60])
}

// testFence is acceptance test 7: processes that were frozen while the layout changed.
func testFence(t *testing.T, s *suite) {
	c := &clock{at: time.UnixMicro(floor(time.Now().UnixMicro(), 3600*second))}
	frozen, other := s.engine(s.shelf, c.now), s.engine(s.shelf, c.now)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 4})
	s.append(frozen, event(c.at.UnixMicro(), "before", name))
	s.want(frozen, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/before", c.at.UnixMicro())})

	// Within the lead time, some processes would not know the layout yet.
	if _, err := other.Propose(s.ctx(), name, timeline.Proposal{From: c.at.UnixMicro() + 60*second, Size: 10 * second}); !errors.As(err, new(*store.InputError)) {
		t.Fatalf("a change within the lead time: %v", err)
	}
	h, err := other.Propose(s.ctx(), name, timeline.Proposal{Size: 10 * second, Factor: 1})
	s.must(err)
	from := h.Layouts[1].From
	// No process writes to the new buckets until it knows a layout that is valid for them.
	r, err := frozen.Append(s.ctx(), []timeline.Addressed{event(from, "too early", name)})
	if err != nil || r.Accepted != 0 || len(r.Rejected) != 1 || !errors.As(r.Rejected[0].Err, new(*store.InputError)) {
		t.Errorf("an event in the future: %+v, %v", r, err)
	}

	c.at = time.UnixMicro(from + 25*second) // frozen until now
	s.append(frozen, event(c.at.UnixMicro(), "after", name))
	out, err := s.shelf.Slice(s.ctx(), timeline.Part{Timeline: name, Start: floor(c.at.UnixMicro(), 10*second), EndExcl: floor(c.at.UnixMicro(), 10*second) + 10*second}, timeline.All(), timeline.Ascending, large)
	if err != nil || len(out.Entries) != 1 {
		t.Errorf("the frozen writer used the old layout: %v, %v", out, err)
	}

	// A reader that was frozen sees the new buckets.
	reader := s.engine(s.shelf, c.now)
	all, _ := s.pages(reader, timeline.Query{Timelines: []string{name}}, nil)
	h, err = other.Propose(s.ctx(), name, timeline.Proposal{Factor: 8})
	s.must(err)
	c.at = time.UnixMicro(h.Layouts[2].From + 5*second)
	for i := range 20 {
		s.append(other, event(c.at.UnixMicro(), fmt.Sprint(i), name))
	}
	if now, _ := s.pages(reader, timeline.Query{Timelines: []string{name}}, nil); len(now) != len(all)+20 {
		t.Errorf("the reader found %d events, before that %d", len(now), len(all))
	}

	// If the storage does not answer, the engine rejects events.
	errAway := errors.New("the storage is unavailable")
	away := &Hooked{Shelf: s.shelf}
	lost := s.engine(away, c.now)
	s.append(lost, event(c.at.UnixMicro(), "lost", name))
	away.Before = Hooks{"History": failing(errAway)}
	c.at = c.at.Add(10 * time.Minute)
	r, err = lost.Append(s.ctx(), []timeline.Addressed{event(c.at.UnixMicro(), "late", name)})
	if err != nil || len(r.Rejected) != 1 || !errors.Is(r.Rejected[0].Err, errAway) {
		t.Errorf("with an old layout and no answer about a newer one: %+v, %v", r, err)
	}
}

// A timeline of Options.Own accepts events of any time at any rate, and its layout stays.
func testOwn(t *testing.T, s *suite) {
	name, config := s.name("own"), timeline.DefaultConfig()
	config.RateMax = 1
	layout := timeline.Layout{From: timeline.Beginning, Size: 86_400 * second, Factor: 8, Mode: timeline.Materialised, Placement: timeline.Hash}
	e, err := timeline.Open(s.shelf, timeline.Options{Config: config, Upkeep: -1, Own: map[string]timeline.Layout{name: layout}})
	s.must(err)
	t.Cleanup(func() { e.Close() })
	now := time.Now().UnixMicro()
	var want []string
	for day := range int64(40) { // more at once than the rate allows
		at := now + (day-20)*layout.Size
		s.append(e, event(at, "e", name))
		want = append(want, fmt.Sprintf("%d/e", at))
	}
	s.want(e, timeline.Query{Timelines: []string{name}}, want)
	if _, err := e.Propose(s.ctx(), name, timeline.Proposal{Factor: 3}); !errors.As(err, new(*store.InputError)) {
		t.Errorf("another layout: %v", err)
	}
	s.must(e.Upkeep(s.ctx()))
	if h, err := e.Layout(s.ctx(), name); err != nil || len(h.Layouts) != 1 || h.Layouts[0] != layout {
		t.Errorf("the layout is %+v, %v", h, err)
	}
	if !e.IsOwn(name) || e.IsOwn(s.name("other")) {
		t.Error("the wrong timelines are own ones")
	}
}
