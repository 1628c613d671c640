package timeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"varve/internal/store"
)

// A costly stream uses up a budget at each read, and returns one event.
type costly struct {
	d    Direction
	rest Range
}

func (s *costly) fill(_ context.Context, b *budget) ([]Entry, Position, bool, error) {
	b.buckets, b.rows = 0, 0
	e := Entry{Event: Event{Time: s.d.edge(s.rest).Time - 1, ID: "x"}}
	s.rest = s.d.beyond(s.rest, e.Position())
	return []Entry{e}, s.d.edge(s.rest), false, nil
}

// TestEverySourceIsAsked merges timelines. Reading the first ones uses up the budget of a page, but
// each page makes progress.
func TestEverySourceIsAsked(t *testing.T) {
	r := &reading{query: Query{Limit: 10}, bytesMax: 1 << 20, budget: &budget{buckets: pageBuckets, rows: pageRows, until: time.Now().Add(time.Hour), now: time.Now}}
	for _, name := range []string{"a", "b", "c"} {
		rest := Range{At(0), At(1000)}
		r.sources = append(r.sources, &source{line: &line{name: name}, stream: &costly{Descending, rest}, rest: rest, seen: rest.To})
	}
	if err := r.collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.found) == 0 {
		t.Fatal("the page has no event")
	}
	if at := r.nextCursor().at; at.Compare(At(1000)) >= 0 {
		t.Errorf("the next page begins at %v, where this one began", at)
	}
	if !r.budget.spent() {
		t.Error("the budget of the page does not include the cost of its sources")
	}
}

// TestQueriesThatAreRefused: a query is within the bounds of a page.
func TestQueriesThatAreRefused(t *testing.T) {
	e, err := Open(&bucketsShelf{fail: func(string, int64) error { return nil }}, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	many := make([]string, FanoutMax+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for _, q := range []Query{
		{}, {Timelines: []string{""}}, {Timelines: []string{"t", "u", "t"}}, {Timelines: many},
		{Timelines: []string{"t"}, Limit: -1}, {Timelines: []string{"t"}, Limit: PageEventsMax + 1}, {Timelines: []string{"t"}, Cursor: "made up"},
	} {
		if _, err := e.Read(t.Context(), q); !errors.As(err, new(*store.InputError)) && !errors.As(err, new(*store.LimitError)) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	if _, err := e.Read(t.Context(), Query{Timelines: many[1:], Limit: PageEventsMax}); err != nil {
		t.Errorf("at the bounds: %v", err)
	}
}

// TestBudget: a page ends when it has used up its buckets, its rows or its time.
func TestBudget(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		buckets, rows int
		left          time.Duration
		want          bool
	}{{1, 1, 1, false}, {0, 1, 1, true}, {1, 0, 1, true}, {1, 1, 0, true}, {-1, -1, -1, true}} {
		b := budget{c.buckets, c.rows, now.Add(c.left), func() time.Time { return now }}
		if b.spent() != c.want {
			t.Errorf("%d buckets, %d rows and %v left: spent %t", c.buckets, c.rows, c.left, b.spent())
		}
	}
}

// TestAcceptSameEventTwice: of several events of a call at one position, the last one is accepted for
// each timeline, and one that is left without a timeline is not passed on.
func TestAcceptSameEventTwice(t *testing.T) {
	e, err := Open(&bucketsShelf{}, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	at := time.Now().UnixMicro()
	one := func(data string, names ...string) Addressed {
		return Addressed{Event{Time: at, ID: "x", Data: []byte(data)}, names}
	}
	accepted, r, err := e.Accept(t.Context(), []Addressed{one("1", "a"), one("2", "a", "b"), one("3", "b", "c")})
	if err != nil || r.Accepted != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	var got []string
	for _, a := range accepted {
		got = append(got, fmt.Sprintf("%s %v", a.Data, a.Timelines))
	}
	if want := "[2 [a] 3 [b c]]"; fmt.Sprint(got) != want {
		t.Errorf("passed on: %v, want %s", got, want)
	}
}

// TestRightTimes: of a clock that was set back, only times of before that are still ahead are moved.
func TestRightTimes(t *testing.T) {
	const now, hour = 1_000_000 * second, 3600 * second
	lead := clockLead.Microseconds()
	back := SetBack{last: now + 2*hour, by: 2 * hour}
	for _, c := range []struct {
		s        SetBack
		at, want int64
	}{
		{SetBack{}, now + hour, now + hour},
		{back, now + hour, now - hour},
		{back, back.last, now},
		{back, back.last + 1, back.last + 1},
		{back, now + lead, now + lead},
		{back, now + lead + 1, now + lead + 1 - back.by},
		{back, now - hour, now - hour},
	} {
		if got := c.s.right(c.at, now); got != c.want {
			t.Errorf("%+v: %d became %d, want %d", c.s, c.at-now, got-now, c.want-now)
		}
	}
}
