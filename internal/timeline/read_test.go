package timeline

import (
	"context"
	"testing"
	"time"
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
