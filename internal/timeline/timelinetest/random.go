package timelinetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/store"
	"varve/internal/timeline"
)

// Random compares an engine with the simplest model, a sorted list of events for each
// timeline: under appends and retries, changes of layouts, passing time, deletes, storage
// that fails before or after it has stored, and restarts. open opens a shelf over the
// stored data; the test closes the shelves.
func Random(t *testing.T, seed uint64, steps int, open func(t *testing.T) timeline.Shelf) {
	m := &random{
		suite: &suite{t: t, prefix: t.Name() + "/"}, open: open, random: rand.New(rand.NewPCG(seed, 1)),
		clock: clock{at: time.UnixMicro(floor(time.Now().UnixMicro(), 60*second))}, model: map[string][]timeline.Event{},
	}
	defer func() {
		if t.Failed() {
			t.Logf("seed %d:\n%s", seed, strings.Join(m.script[max(0, len(m.script)-30):], "\n"))
		}
	}()
	m.restart()
	defer func() { m.end() }()
	for range steps {
		m.step()
		if t.Failed() {
			return
		}
	}
	for _, name := range m.names() {
		m.compare(name)
	}
}

type random struct {
	*suite
	open   func(t *testing.T) timeline.Shelf
	random *rand.Rand
	clock  clock
	shelf  timeline.Shelf
	before atomic.Bool // the next call that changes something fails before it has done so
	after  atomic.Bool // or after that
	e      *timeline.Engine
	model  map[string][]timeline.Event // sorted by position
	script []string
	number int
}

func (m *random) say(format string, args ...any) {
	m.script = append(m.script, fmt.Sprintf(format, args...))
}

var errInjected = errors.New("injected")

// fault is a hook that fails once after f was set.
func fault(f *atomic.Bool) func(Call) error {
	return func(Call) error {
		if f.Swap(false) {
			return errInjected
		}
		return nil
	}
}

func (m *random) end() {
	m.must(m.e.Close())
	m.must(m.shelf.Close())
}

func (m *random) restart() {
	if m.e != nil {
		m.end()
	}
	m.shelf = m.open(m.t)
	before, after := fault(&m.before), fault(&m.after)
	faulty := &Hooked{
		Shelf:  m.shelf,
		Before: Hooks{"Put": before, "Mark": before, "SetHistory": before},
		After:  Hooks{"Put": after, "Mark": after, "SetHistory": after},
	}
	e, err := timeline.Open(faulty.whole(), timeline.Options{Now: m.clock.now, Upkeep: -1, Config: timeline.Config{Adapt: m.random.IntN(2) == 0}})
	m.must(err)
	m.e = e
}

func (m *random) names() []string { return []string{m.name("a"), m.name("b"), m.name("c")} }

func (m *random) one() string { return m.names()[m.random.IntN(3)] }

// time is one of the last quarter of an hour, often the same, sometimes slightly in the future.
func (m *random) time() int64 {
	now := m.clock.at.UnixMicro()
	switch m.random.IntN(4) {
	case 0:
		return floor(now-m.random.Int64N(900*second), 30*second)
	case 1:
		return now + m.random.Int64N(20*second)
	}
	return now - m.random.Int64N(900*second)
}

func (m *random) step() {
	switch n := m.random.IntN(100); {
	case n < 45:
		m.append()
	case n < 75:
		m.compare(m.one())
	case n < 82:
		m.propose()
	case n < 88:
		m.clock.at = m.clock.at.Add(time.Duration(m.random.Int64N(int64(4 * time.Minute))))
		m.say("time passes: %v", m.clock.at)
	case n < 93:
		m.delete()
	case n < 94:
		m.deleteTimeline()
	case n < 97:
		m.say("upkeep")
		m.must(m.e.Upkeep(m.ctx()))
	default:
		m.say("restart")
		m.restart()
	}
}

// append appends events, and retries until they are accepted.
func (m *random) append() {
	var events []timeline.Addressed
	for range 1 + m.random.IntN(20) {
		m.number++
		id := fmt.Sprint(m.random.IntN(10), "-", m.number)
		to := m.names()[:1+m.random.IntN(3)]
		if m.random.IntN(2) == 0 {
			to = []string{m.one()}
		}
		e := event(m.time(), id, to...)
		e.Data = []byte(strings.Repeat("x", m.random.IntN(50)) + id)
		e.Type = []string{"", "t", "u"}[m.random.IntN(3)]
		events = append(events, e)
	}
	if m.random.IntN(5) == 0 {
		m.before.Store(m.random.IntN(2) == 0)
		m.after.Store(m.random.IntN(2) == 0)
	}
	for try := 0; ; try++ {
		r, err := m.e.Append(m.ctx(), events)
		m.say("append %d, try %d: %d accepted, %v", len(events), try, r.Accepted, err)
		failed := err != nil
		for _, r := range r.Rejected {
			if !errors.Is(r.Err, errInjected) && !errors.Is(r.Err, timeline.ErrConflict) {
				m.t.Fatalf("rejected: %+v", r)
			}
			failed = true
		}
		if err != nil && !errors.Is(err, errInjected) || try > 5 {
			m.t.Fatal(err)
		}
		if !failed {
			break
		}
	}
	for _, e := range events {
		for _, name := range e.Timelines {
			m.model[name] = append(m.model[name], e.Event)
			slices.SortFunc(m.model[name], func(a, b timeline.Event) int { return a.Position().Compare(b.Position()) })
		}
	}
}

func (m *random) window() (from, until *int64) {
	if m.random.IntN(2) == 0 {
		from = new(m.time())
	}
	if m.random.IntN(2) == 0 {
		until = new(m.time())
	}
	return from, until
}

func outside(e timeline.Event, from, until *int64) bool {
	return from != nil && e.Time < *from || until != nil && e.Time > *until
}

// compare reads a window of one or several timelines by pages.
func (m *random) compare(name string) {
	q := timeline.Query{Timelines: []string{name}, Limit: 1 + m.random.IntN(40), Order: timeline.Direction(m.random.IntN(2)), Type: []string{"", "", "t"}[m.random.IntN(3)]}
	if m.random.IntN(3) == 0 {
		q.Timelines = m.names()
	}
	q.From, q.Until = m.window()
	m.say("read %+v", q)
	var want []string
	for _, name := range q.Timelines {
		for _, e := range m.model[name] {
			if !outside(e, q.From, q.Until) && (q.Type == "" || e.Type == q.Type) {
				want = append(want, fmt.Sprintf("%020d/%s/%s/%s", e.Time, e.ID, name, e.Data))
			}
		}
	}
	found, _ := m.pages(m.e, q, nil)
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%020d/%s/%s/%s", f.Time, f.ID, f.Timeline, f.Data))
		if f.Missing {
			m.t.Errorf("the data of %s is missing", f.ID)
		}
	}
	if !slices.IsSortedFunc(found, func(a, b timeline.Found) int {
		c := a.Position().Compare(b.Position())
		if q.Order == timeline.Descending {
			return -c
		}
		return c
	}) {
		m.t.Error("the events are not in order")
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		m.t.Error(difference(got, want))
	}
}

func (m *random) propose() {
	p := timeline.Proposal{
		Size: []int64{0, 10 * second, 60 * second, 20 * second}[m.random.IntN(4)], Factor: m.random.IntN(5),
		Mode:      []timeline.Mode{"", timeline.Materialised, timeline.Index, timeline.Hybrid}[m.random.IntN(4)],
		Threshold: 25, Placement: []timeline.Placement{"", timeline.Hash, timeline.RoundRobin}[m.random.IntN(3)],
	}
	name := m.one()
	h, err := m.e.Propose(m.ctx(), name, p)
	m.say("propose %s %+v: %+v, %v", name, p, h, err)
	if err != nil && !errors.As(err, new(*store.InputError)) {
		m.t.Fatal(err)
	}
}

func (m *random) delete() {
	name := m.one()
	d := timeline.Deletion{}
	d.From, d.Until = m.window()
	if all := m.model[name]; len(all) > 0 && m.random.IntN(2) == 0 {
		e := all[m.random.IntN(len(all))]
		d.ID = e.ID
		if m.random.IntN(2) == 0 {
			d.From, d.Until = new(e.Time), new(e.Time)
		}
	}
	if d == (timeline.Deletion{}) {
		return
	}
	m.say("delete %s %+v", name, d)
	m.must(m.e.Delete(m.ctx(), name, d))
	m.model[name] = slices.DeleteFunc(m.model[name], func(e timeline.Event) bool {
		return !outside(e, d.From, d.Until) && (d.ID == "" || e.ID == d.ID)
	})
}

func (m *random) deleteTimeline() {
	name := m.one()
	m.say("delete timeline %s", name)
	m.must(m.e.DeleteTimeline(m.ctx(), name))
	delete(m.model, name)
}
