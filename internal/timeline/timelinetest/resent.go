package timelinetest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/timeline"
)

// withPayload returns an event whose data is stored separately in modes Index and Hybrid.
func withPayload(time int64, id, data string, timelines ...string) timeline.Addressed {
	return timeline.Addressed{Event: timeline.Event{Time: time, ID: id, Data: []byte(strings.Repeat(data, 300))}, Timelines: timelines}
}

// payloadKey is the key of the data, as the format defines it.
func payloadKey(e *timeline.Event) timeline.PayloadKey {
	text := binary.BigEndian.AppendUint64(nil, uint64(e.Time))
	text = append(append(append(text, byte(len(e.ID))), e.ID...), e.Data...)
	sum := sha256.Sum256(text)
	return timeline.PayloadKey(sum[:16])
}

// payloads counts those of events that are stored.
func (s *suite) payloads(events ...timeline.Addressed) (n int) {
	s.t.Helper()
	for i := range events {
		switch _, err := s.shelf.Payload(s.ctx(), payloadKey(&events[i].Event)); {
		case err == nil:
			n++
		case !errors.Is(err, timeline.ErrNoPayload):
			s.t.Fatal(err)
		}
	}
	return n
}

func (s *suite) wantPayloads(what string, n int, events ...timeline.Addressed) {
	s.t.Helper()
	if got := s.payloads(events...); got != n {
		s.t.Errorf("%s: %d payloads, want %d", what, got, n)
	}
}

// wantData reads the only event of a timeline.
func (s *suite) wantData(e *timeline.Engine, name string, want ...timeline.Addressed) {
	s.t.Helper()
	all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
	if len(all) != 1 || all[0].Missing {
		s.t.Fatalf("%s: %d events: %+v", name, len(all), all)
	}
	for i := range want {
		if string(all[0].Data) == string(want[i].Data) {
			return
		}
	}
	s.t.Errorf("%s: data %.20q of %d bytes is not what was put last", name, all[0].Data, len(all[0].Data))
}

// testResent: if an event is sent again with other data, its earlier data is removed everywhere.
func testResent(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	base := time.Now().Add(-time.Hour).UnixMicro()
	for what, p := range map[string]timeline.Proposal{
		"index":       {Mode: timeline.Index},
		"round robin": {Mode: timeline.Index, Factor: 3, Placement: timeline.RoundRobin},
		"hybrid":      {Mode: timeline.Hybrid, Threshold: 100},
	} {
		name := s.name(what)
		s.propose(e, name, p)
		var all []timeline.Addressed
		for i := range 8 {
			all = append(all, withPayload(base, "e", fmt.Sprint(what, i), name))
			s.append(e, all[i])
		}
		s.append(e, all[7]) // a retry
		s.wantPayloads(what+", sent again", 1, all...)
		s.wantData(e, name, all[7])
		s.append(e, all[3])
		s.wantPayloads(what+", the data of before", 1, all...)
		s.wantData(e, name, all[3])

		none := withPayload(base, "e", "", name)
		s.append(e, none)
		s.wantPayloads(what+", without data", 0, all...)
		s.wantData(e, name, none)

		s.append(e, all[0])
		s.append(e, all[1])
		s.must(e.Delete(s.ctx(), name, timeline.Deletion{ID: "e"}))
		s.wantPayloads(what+", deleted", 0, all...)
		for i := range 3 {
			s.append(e, all[i], withPayload(base+1, "f", fmt.Sprint(i), name))
		}
		s.must(e.DeleteTimeline(s.ctx(), name))
		s.wantPayloads(what+", timeline deleted", 0, all...)
	}
}

// testResentMany: events that take several reads, in several partitions.
func testResentMany(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Mode: timeline.Index, Factor: 2})
	base := time.Now().Add(-time.Hour).UnixMicro()
	some := func(data string) (all []timeline.Addressed) {
		for i := range 70 {
			all = append(all, withPayload(base+int64(i)*second/2, fmt.Sprint("e", i), data+name, name))
		}
		return all
	}
	first, second := some("first"), some("second")
	s.append(e, first...)
	s.append(e, second[:60]...)
	s.wantPayloads("first", 10, first...)
	s.wantPayloads("second", 60, second...)
	all, _ := s.pages(e, timeline.Query{Timelines: []string{name}, Order: timeline.Ascending}, nil)
	if len(all) != 70 {
		t.Fatalf("%d events", len(all))
	}
	for i, f := range all {
		if want := slices.Concat(second[:60], first[60:])[i]; f.ID != want.ID || string(f.Data) != string(want.Data) {
			t.Errorf("event %d is %s with %.20q", i, f.ID, f.Data)
		}
	}
}

// testResentToOne: the data stays for the timelines that still have it.
func testResentToOne(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	a, b := s.name("a"), s.name("b")
	for _, name := range []string{a, b} {
		s.propose(e, name, timeline.Proposal{Mode: timeline.Index})
	}
	base := time.Now().Add(-time.Hour).UnixMicro()
	old, next := withPayload(base, "e", "old "+a, a, b), withPayload(base, "e", "next "+a, a)
	s.append(e, old)
	s.append(e, next)
	s.wantPayloads("one of two timelines", 2, old, next)
	s.wantData(e, a, next)
	s.wantData(e, b, old)

	// One request swaps their data.
	old.Timelines, next.Timelines = []string{a}, []string{b}
	s.append(e, old, next)
	s.wantPayloads("changed places", 2, old, next)
	s.wantData(e, a, old)
	s.wantData(e, b, next)

	// Both are replaced in one request.
	old.Timelines = []string{a, b}
	s.append(e, old)
	next.Timelines = []string{a, b}
	s.append(e, next)
	s.wantPayloads("both timelines", 1, old, next)
	s.wantPayloads("both timelines, old", 0, old)
	s.must(e.DeleteTimeline(s.ctx(), a))
	s.wantData(e, b, next)
	s.must(e.DeleteTimeline(s.ctx(), b))
	s.wantPayloads("deleted", 0, old, next)
}

// testResentAtOnce: several writers send an event with one of two data in turn. Readers always get one of
// the two.
func testResentAtOnce(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	a, b := s.name("a"), s.name("b")
	for _, name := range []string{a, b} {
		s.propose(e, name, timeline.Proposal{Mode: timeline.Index})
	}
	base := time.Now().Add(-time.Hour).UnixMicro()
	both := []timeline.Addressed{withPayload(base, "e", "one "+a, a, b), withPayload(base, "e", "two "+a, a, b)}
	s.append(e, both[0])
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				event := both[(w+i)%2]
				if w >= 2 { // in one of the timelines
					event.Timelines = event.Timelines[i/2%2:][:1]
				}
				if r, err := e.Append(s.ctx(), []timeline.Addressed{event}); err != nil || r.Accepted != 1 {
					t.Error(r.Rejected, err)
				}
			}
		})
	}
	done := make(chan struct{})
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			p, err := e.Read(s.ctx(), timeline.Query{Timelines: []string{a, b}})
			if err != nil || len(p.Events) != 2 || p.Events[0].Missing || p.Events[1].Missing {
				t.Errorf("while it is sent again: %d events, %v", len(p.Events), err)
				return
			}
		}
	})
	writers.Wait()
	close(done)
	readers.Wait()
	s.wantData(e, a, both...)
	s.wantData(e, b, both...)
	for i := range both {
		s.append(e, both[i])
		s.wantData(e, a, both[i])
		s.wantData(e, b, both[i])
		s.wantPayloads("at the end", 1, both...)
	}
}

// testExpiredPayloads: retention removes data that is stored separately.
func testExpiredPayloads(t *testing.T, s *suite) {
	c := &clock{at: time.Now()}
	e := s.engine(s.shelf, c.now)
	name := s.name("a")
	s.propose(e, name, timeline.Proposal{Mode: timeline.Index})
	var all []timeline.Addressed
	for i := range 5 {
		all = append(all, withPayload(c.at.Add(-time.Hour).UnixMicro()+int64(i), "e", fmt.Sprint(name, i), name))
	}
	s.append(e, all...)
	young := withPayload(c.at.UnixMicro(), "e", name, name)
	s.append(e, young)
	s.retain(e, name, 5*time.Minute)
	c.at = c.at.Add(10 * time.Second) // events that were just put stay until the next time
	s.must(e.Upkeep(s.ctx()))
	s.wantPayloads("past the retention", 0, all...)
	s.wantPayloads("within the retention", 1, young)
	s.wantData(e, name, young)
}
