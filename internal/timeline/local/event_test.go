package local

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/timeline"
)

// TestPutIntoManyTimelines: the work of a Put grows with its events, however many timelines they are
// for. If each event were compared with all timelines, the test would take minutes.
func TestPutIntoManyTimelines(t *testing.T) {
	const n = 500_000
	s := open(t, vfs.NewMem(), Options{})
	defer s.Close()
	entries := make([]timeline.Placed, n)
	for i := range entries {
		name := fmt.Sprintf("timeline %06d", i)
		s.numbers.known[name] = number(i)
		entries[i] = timeline.Placed{Part: timeline.Part{Timeline: name}, Entry: timeline.Entry{Event: timeline.Event{ID: "x"}}, Fresh: true}
	}
	b := s.db.NewBatch()
	defer b.Close()
	arrived, err := s.stage(b, &references{}, entries)
	if err != nil || len(arrived) != n {
		t.Fatalf("events of %d timelines arrive, %v", len(arrived), err)
	}
	for i, a := range arrived {
		if a.number != number(i) || len(a.positions) != 1 {
			t.Fatalf("timeline %d: %+v", i, a)
		}
	}
}
