package timelinetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// engine opens an engine over a shelf.
func (s *suite) engine(shelf timeline.Shelf, now func() time.Time) *timeline.Engine {
	s.t.Helper()
	e, err := timeline.Open(shelf, timeline.Options{Now: now, Upkeep: -1, TailPoll: 20 * time.Millisecond})
	s.must(err)
	s.t.Cleanup(func() { e.Close() })
	return e
}

// propose proposes a layout, which must be accepted.
func (s *suite) propose(e *timeline.Engine, name string, p timeline.Proposal) {
	s.t.Helper()
	_, err := e.Propose(s.ctx(), name, p)
	s.must(err)
}

// retain sets how long the events of a timeline are kept.
func (s *suite) retain(e *timeline.Engine, name string, d time.Duration) {
	s.t.Helper()
	_, err := e.SetRetention(s.ctx(), name, d)
	s.must(err)
}

// append appends events that must all be accepted.
func (s *suite) append(e *timeline.Engine, events ...timeline.Addressed) {
	s.t.Helper()
	r, err := e.Append(s.ctx(), events)
	s.must(err)
	if len(r.Rejected) > 0 || r.Accepted != len(events) {
		s.t.Fatalf("%d of %d accepted, rejected: %+v", r.Accepted, len(events), r.Rejected)
	}
}

func event(time int64, id string, timelines ...string) timeline.Addressed {
	return timeline.Addressed{Event: timeline.Event{Time: time, ID: id, Type: "t", Data: []byte("data of " + id)}, Timelines: timelines}
}

// pages reads to the end and returns what it found, and the number of pages.
func (s *suite) pages(e *timeline.Engine, q timeline.Query, each func(timeline.Page)) (all []timeline.Found, n int) {
	s.t.Helper()
	for {
		p, err := e.Read(s.ctx(), q)
		s.must(err)
		n++
		all = append(all, p.Events...)
		if each != nil {
			each(p)
		}
		if p.End {
			return all, n
		}
		if p.Cursor == "" || p.Cursor == q.Cursor {
			s.t.Fatalf("page %d does not end and does not go on: %q", n, p.Cursor)
		}
		q.Cursor = p.Cursor
	}
}

// names writes events as time/id.
func names(found []timeline.Found) []string {
	all := make([]string, len(found))
	for i, f := range found {
		all[i] = fmt.Sprintf("%d/%s", f.Time, f.ID)
	}
	return all
}

// want reads a timeline in both directions, by pages of several sizes.
func (s *suite) want(e *timeline.Engine, q timeline.Query, want []string) {
	s.t.Helper()
	for _, limit := range []int{3, 1000} {
		q.Limit, q.Order = limit, timeline.Ascending
		up, _ := s.pages(e, q, nil)
		q.Order = timeline.Descending
		down, _ := s.pages(e, q, nil)
		slices.Reverse(down)
		if got := names(up); !slices.Equal(got, want) {
			s.t.Errorf("ascending by %d: %s", limit, difference(got, want))
		}
		if got := names(down); !slices.Equal(got, want) {
			s.t.Errorf("descending by %d, reversed: %s", limit, difference(got, want))
		}
	}
}

func difference(got, want []string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	cut := func(s []string) string { return strings.Join(s[i:min(len(s), i+5)], " ") }
	return fmt.Sprintf("got %d, want %d events, from number %d on: got %s ..., want %s ...", len(got), len(want), i, cut(got), cut(want))
}

func testPage(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	name := s.name("a")
	base := time.Now().Add(-time.Hour).UnixMicro()
	var want []string
	for i := range 50 {
		at := base + int64(i)*7*second
		s.append(e, event(at, fmt.Sprint("e", i), name))
		want = append(want, fmt.Sprintf("%d/e%d", at, i))
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

// A recorder counts the calls of an engine to a shelf.
type recorder struct {
	timeline.Shelf
	marks, slices, puts atomic.Int64
	put                 func() error // called before a Put; its error fails the Put
	after               func() error
	mark                func() error // called after a Mark
}

func (r *recorder) Mark(ctx context.Context, name string, starts []int64, now time.Time) error {
	r.marks.Add(int64(len(starts)))
	err := r.Shelf.Mark(ctx, name, starts, now)
	if err == nil && r.mark != nil {
		return r.mark()
	}
	return err
}

func (r *recorder) Slice(ctx context.Context, p timeline.Part, g timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	r.slices.Add(1)
	return r.Shelf.Slice(ctx, p, g, d, l)
}

func (r *recorder) Put(ctx context.Context, entries []timeline.Placed) error {
	r.puts.Add(1)
	if r.put != nil {
		if err := r.put(); err != nil {
			return err
		}
	}
	err := r.Shelf.Put(ctx, entries)
	if err == nil && r.after != nil {
		return r.after()
	}
	return err
}

// testStart is acceptance tests 1 and 2: the start of a timeline that many write to, back
// in time, and writers that die between mark, event and acknowledgement.
func testStart(t *testing.T, s *suite) {
	name := s.name("a")
	base := floor(time.Now().UnixMicro(), 1000*second)
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, timeline.History{Version: 1, Layouts: []timeline.Layout{layout}}))
	var least atomic.Int64
	least.Store(base)
	var group sync.WaitGroup
	for w := range 8 {
		e := s.engine(s.shelf, time.Now)
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			at := base
			for i := range 12 {
				at -= random.Int64N(20 * second)
				r, err := e.Append(s.ctx(), []timeline.Addressed{event(at, fmt.Sprintf("w%d-%d", w, i), name)})
				if err != nil || r.Accepted != 1 {
					t.Errorf("append: %+v, %v", r, err)
					return
				}
				for old := least.Load(); at < old && !least.CompareAndSwap(old, at); old = least.Load() {
				}
			}
		})
	}
	group.Wait()
	e := s.engine(s.shelf, time.Now)
	start, err := e.Start(s.ctx(), name)
	s.must(err)
	if start.First.Time != least.Load() || start.Bucket != floor(least.Load(), 10*second) {
		t.Errorf("the start is %+v, the first event at %d", start, least.Load())
	}
	all, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
	if len(all) != 8*12 {
		t.Errorf("%d events", len(all))
	}
	marks, err := s.shelf.Marks(s.ctx(), name, timeline.MinTime, base+second, timeline.Ascending, 1000)
	s.must(err)
	occupied := map[int64]bool{}
	for _, f := range all {
		occupied[floor(f.Time, 10*second)] = true
	}
	if len(marks) != len(occupied) {
		t.Errorf("%d marks for %d buckets", len(marks), len(occupied))
	}

	// A writer that dies after the mark leaves an empty bucket, which costs a read; the events
	// beyond it are found. One that dies before the acknowledgement has put the event.
	killed := errors.New("killed")
	dead := s.engine(&recorder{Shelf: s.shelf, put: func() error { return killed }}, time.Now)
	if _, err := dead.Append(s.ctx(), []timeline.Addressed{event(least.Load()-100*second, "never", name)}); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	dead = s.engine(&recorder{Shelf: s.shelf, after: func() error { return killed }}, time.Now)
	early := event(least.Load()-200*second, "early", name)
	if _, err := dead.Append(s.ctx(), []timeline.Addressed{early}); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	s.append(e, early) // the client sends it again
	again, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
	if len(again) != len(all)+1 || again[len(all)].ID != "early" {
		t.Errorf("%d events, the last %+v", len(again), again[len(again)-1])
	}
	start, err = e.Start(s.ctx(), name)
	if err != nil || start.First.ID != "early" {
		t.Errorf("start %+v, %v", start, err)
	}
}

func floor(t, size int64) int64 { return t - ((t%size)+size)%size }

// testSparse is acceptance test 3: three events in ten thousand buckets.
func testSparse(t *testing.T, s *suite) {
	name := s.name("a")
	r := &recorder{Shelf: s.shelf}
	e := s.engine(r, time.Now)
	base := time.Now().UnixMicro() - 20_000*10*second
	var want []string
	for i := range 3 {
		at := base + int64(i)*4999*10*second
		s.append(e, event(at, fmt.Sprint(i), name))
		want = append([]string{fmt.Sprintf("%d/%d", at, i)}, want...)
	}
	var reads []int64
	all, n := s.pages(e, timeline.Query{Timelines: []string{name}, Limit: 1}, func(timeline.Page) { reads = append(reads, r.slices.Swap(0)) })
	if got := names(all); !slices.Equal(got, want) || n < 3 || n > 4 {
		t.Errorf("%d pages: %v, want %v", n, got, want)
	}
	if most := slices.Max(reads); most > 4 {
		t.Errorf("buckets read for each page: %v, want 4 at most", reads)
	}
}

// testOneTime is acceptance test 4: a thousand events at one time, read in pages of seven
// while newer ones come.
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

// eras creates a timeline with a history.
func (s *suite) eras(n string, layouts ...timeline.Layout) string {
	s.t.Helper()
	name := s.name(n)
	for i := range layouts {
		layouts[i].Mode, layouts[i].Placement = timeline.Materialised, max(layouts[i].Placement, timeline.Hash)
		layouts[i].Factor = max(1, layouts[i].Factor)
	}
	s.must(s.shelf.SetHistory(s.ctx(), name, 0, timeline.History{Version: 1, Layouts: layouts}))
	return name
}

// testFactors is acceptance test 5: eras of 1, 3 and 2 partitions, and retries.
func testFactors(t *testing.T, s *suite) {
	now := time.Now()
	base := floor(now.Add(-time.Hour).UnixMicro(), 60*second)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 1},
		timeline.Layout{From: base, Size: 60 * second, Factor: 3}, timeline.Layout{From: base + 300*second, Size: 60 * second, Factor: 2})
	e := s.engine(s.shelf, time.Now)
	var events []timeline.Addressed
	var want []string
	for i := range 300 {
		at := base - 150*second + int64(i)*2*second
		events = append(events, event(at, fmt.Sprint("e", i), name))
		want = append(want, fmt.Sprintf("%d/e%d", at, i))
	}
	for range 3 { // a storm of retries
		shuffled := slices.Clone(events)
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		s.append(e, shuffled...)
	}
	s.want(e, timeline.Query{Timelines: []string{name}}, want)
	for p := range 3 { // the events of the second era are spread
		out, err := s.shelf.Slice(s.ctx(), timeline.Part{Timeline: name, Start: base, EndExcl: base + 60*second, Partition: p}, timeline.All(), timeline.Ascending, large)
		if err != nil || len(out.Entries) == 0 || len(out.Entries) == 30 {
			t.Errorf("partition %d has %d of 30 events, %v", p, len(out.Entries), err)
		}
	}
	failing := &failingPart{Shelf: s.shelf, partition: 2}
	if _, err := s.engine(failing, time.Now).Read(s.ctx(), timeline.Query{Timelines: []string{name}, From: new(base), Until: new(base + second)}); !errors.Is(err, errPart) {
		t.Errorf("a partition that cannot be read was taken for empty: %v", err)
	}
}

var errPart = errors.New("this partition is away")

type failingPart struct {
	timeline.Shelf
	partition int
}

func (f *failingPart) Slice(ctx context.Context, p timeline.Part, g timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if p.Partition == f.partition {
		return timeline.Slice{}, errPart
	}
	return f.Shelf.Slice(ctx, p, g, d, l)
}

// testRoundRobin: an event that is sent again goes to the same partition, also with other data.
// Events whose id the engine makes are spread.
func testRoundRobin(t *testing.T, s *suite) {
	base := floor(time.Now().Add(-time.Hour).UnixMicro(), 60*second)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 3, Placement: timeline.RoundRobin})
	e := s.engine(s.shelf, time.Now)
	var events []timeline.Addressed
	var want []string
	for i := range 100 {
		at := base + int64(i)*second/3
		events = append(events, event(at, fmt.Sprintf("e%02d", i), name))
		want = append(want, fmt.Sprintf("%d/e%02d", at, i))
	}
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
	spy := &placing{Shelf: s.shelf, put: func(p timeline.Placed) { parts[p.Partition]++ }}
	e = s.engine(Buckets(spy), time.Now)
	for range 30 {
		s.append(e, event(base, "", name))
	}
	if parts[0] != 10 || parts[1] != 10 || parts[2] != 10 {
		t.Errorf("events by partition: %v, want 10 in each", parts)
	}
}

// A placing shelf reports the entries that are put.
type placing struct {
	timeline.Shelf
	put func(timeline.Placed)
}

func (p *placing) Put(ctx context.Context, entries []timeline.Placed) error {
	for i := range entries {
		p.put(entries[i])
	}
	return p.Shelf.Put(ctx, entries)
}

// testReplaced: of the events of a call with the same time and id the last one stays, also if it
// equals the stored one, and if their data is large. A shelf may give all of them the same write
// timestamp.
func testReplaced(t *testing.T, s *suite) {
	at := time.Now().Add(-time.Hour).UnixMicro()
	e := s.engine(s.shelf, time.Now)
	of := func(name, data string, n int) timeline.Addressed {
		a := event(at, "x", name)
		a.Data = bytes.Repeat([]byte(data), n)
		return a
	}
	for i, test := range []struct {
		first string // "" if nothing is stored before
		then  string // one letter an event
		n     []int  // how often
	}{
		{"", "ba", []int{1, 1}},
		{"", "zam", []int{1, 1, 1}},
		{"a", "ba", []int{1, 1}},
		{"", "ab", []int{600_000, 300_000}},
		{"", "ba", []int{600_000, 300_000}},
		{"", "ba", []int{300_000, 600_000}},
		{"", "ba", []int{600_000, 5}},
	} {
		for _, placement := range []timeline.Placement{timeline.Hash, timeline.RoundRobin} {
			name, other := s.eras(fmt.Sprint(i, placement), timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 3, Placement: placement}), s.name(fmt.Sprint(i, placement, "other"))
			if test.first != "" {
				s.append(e, of(name, test.first, 1))
			}
			var events []timeline.Addressed
			for at, letter := range test.then {
				events = append(events, of(name, string(letter), test.n[at]))
			}
			events[0].Timelines = append(events[0].Timelines, other) // which has the first one only
			s.append(e, events...)
			s.acceptsOnce(e, events)
			last := events[len(events)-1]
			want := map[string][]byte{name: last.Data, other: events[0].Data}
			for name, data := range want {
				found, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil)
				if len(found) != 1 || !bytes.Equal(found[0].Data, data) {
					t.Errorf("%v: %d events in %s, want the last one", test, len(found), name)
				}
			}
		}
	}
}

// acceptsOnce: of the events accepted in one call, no two have the same position in a timeline.
func (s *suite) acceptsOnce(e *timeline.Engine, events []timeline.Addressed) {
	s.t.Helper()
	sound, r, err := e.Accept(s.ctx(), events)
	s.must(err)
	if r.Accepted != len(events) {
		s.t.Errorf("%d of %d events were accepted", r.Accepted, len(events))
	}
	data := map[string][]byte{}
	for _, a := range sound {
		for _, name := range a.Timelines {
			if data[name] != nil {
				s.t.Errorf("two events with the same time and id are accepted for %s", name)
			}
			data[name] = a.Data
		}
	}
	if last := events[len(events)-1]; !bytes.Equal(data[last.Timelines[0]], last.Data) {
		s.t.Error("the event that is accepted is not the last one")
	}
}

// A slowHistories lets other goroutines run before it sets a history, as a disk does.
type slowHistories struct{ timeline.Shelf }

func (s slowHistories) SetHistory(ctx context.Context, name string, old uint64, h timeline.History) error {
	for range 1000 {
		runtime.Gosched()
	}
	return s.Shelf.SetHistory(ctx, name, old, h)
}

// testCreatedAtOnce: of many concurrent appends to timelines that do not exist, the first one
// creates them, and no other changes their history.
func testCreatedAtOnce(t *testing.T, s *suite) {
	e := s.engine(slowHistories{s.shelf}, time.Now)
	names := []string{s.name("a"), s.name("b"), s.name("c")}
	const many = 100
	var group sync.WaitGroup
	begin := make(chan struct{})
	for i := range many {
		group.Go(func() {
			<-begin
			r, err := e.Append(s.ctx(), []timeline.Addressed{event(int64(i), "x", names...)})
			if err != nil || r.Accepted != 1 {
				t.Errorf("%d accepted, %v, %+v", r.Accepted, err, r.Rejected)
			}
		})
	}
	close(begin)
	group.Wait()
	for _, name := range names {
		if h, err := e.Layout(s.ctx(), name); err != nil || h.Version != 1 {
			t.Errorf("%s has version %d, %v", name, h.Version, err)
		}
		if found, _ := s.pages(e, timeline.Query{Timelines: []string{name}}, nil); len(found) != many {
			t.Errorf("%s has %d events, want %d", name, len(found), many)
		}
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
	var events []timeline.Addressed
	var all []string
	var times []int64
	for i := range 80 {
		at := change + int64(i-50)*37*second
		if i == 50 {
			at = change
		}
		times = append(times, at)
		events = append(events, event(at, fmt.Sprint("e", i), name))
		all = append(all, fmt.Sprintf("%d/e%d", at, i))
	}
	s.append(e, events...)
	for _, w := range [][2]int{{0, 79}, {40, 60}, {49, 50}, {50, 51}, {50, 50}, {10, 20}, {60, 79}} {
		s.want(e, timeline.Query{Timelines: []string{name}, From: new(times[w[0]]), Until: new(times[w[1]])}, all[w[0]:w[1]+1])
	}
	s.want(e, timeline.Query{Timelines: []string{name}, From: new(times[40] + 1), Until: new(times[60] - 1)}, all[41:60])
}

// testFence is acceptance test 7: processes that were frozen while the layout changed.
func testFence(t *testing.T, s *suite) {
	c := &clock{at: time.UnixMicro(floor(time.Now().UnixMicro(), 3600*second))}
	frozen, other := s.engine(s.shelf, c.now), s.engine(s.shelf, c.now)
	name := s.eras("a", timeline.Layout{From: timeline.Beginning, Size: 60 * second, Factor: 4})
	s.append(frozen, event(c.at.UnixMicro(), "before", name))
	s.want(frozen, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/before", c.at.UnixMicro())})

	// Too soon: not every process would know it.
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

	// Without the storage's answer it refuses.
	cut := &noHistory{Shelf: s.shelf}
	lost := s.engine(cut, c.now)
	s.append(lost, event(c.at.UnixMicro(), "lost", name))
	cut.cut.Store(true)
	c.at = c.at.Add(10 * time.Minute)
	r, err = lost.Append(s.ctx(), []timeline.Addressed{event(c.at.UnixMicro(), "late", name)})
	if err != nil || len(r.Rejected) != 1 || !errors.Is(r.Rejected[0].Err, errAway) {
		t.Errorf("with an old layout and no other: %+v, %v", r, err)
	}
}

var errAway = errors.New("the storage is away")

type noHistory struct {
	timeline.Shelf
	cut atomic.Bool
}

func (n *noHistory) History(ctx context.Context, name string) (timeline.History, error) {
	if n.cut.Load() {
		return timeline.History{}, errAway
	}
	return n.Shelf.History(ctx, name)
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

// testRefusedFirst: events that are rejected because of their times neither create a timeline nor
// revive a deleted one.
func testRefusedFirst(t *testing.T, s *suite) {
	e := s.engine(s.shelf, time.Now)
	now := time.Now().UnixMicro()
	name, other := s.name("a"), s.name("b")
	refused := func(events ...timeline.Addressed) {
		t.Helper()
		r, err := e.Append(s.ctx(), events)
		if err != nil || r.Accepted != 0 || len(r.Rejected) != len(events) {
			t.Errorf("%+v, %v", r, err)
		}
		for i, one := range r.Rejected {
			if !errors.As(one.Err, new(*store.InputError)) {
				t.Errorf("event %d: %v", i, one.Err)
			}
		}
		if _, err := e.Stats(s.ctx(), name); !errors.Is(err, timeline.ErrNotFound) {
			t.Errorf("the timeline: %v", err)
		}
	}
	refused(event(now+3600*second, "x", name), event(now+7200*second, "y", name))
	if list, err := s.shelf.Names(s.ctx(), s.prefix, "", 10); err != nil || len(list) > 0 {
		t.Errorf("names %v, %v", list, err)
	}
	if r, err := e.Append(s.ctx(), []timeline.Addressed{event(now+3600*second, "x", name), event(now, "y", other)}); err != nil || r.Accepted != 1 {
		t.Errorf("beside another timeline: %+v, %v", r, err)
	}

	s.append(e, event(now, "y", name))
	s.retain(e, name, time.Hour)
	s.must(e.DeleteTimeline(s.ctx(), name))
	refused(event(now+3600*second, "x", name))
	h, err := s.shelf.History(s.ctx(), name)
	s.must(err)
	if h.Version > 0 { // its history stays for a while
		refused(event(now-7200*second, "x", name))
	}
	s.append(e, event(now, "y", name))
	s.want(e, timeline.Query{Timelines: []string{name}}, []string{fmt.Sprintf("%d/y", now)})
}
