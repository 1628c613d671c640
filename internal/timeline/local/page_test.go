package local

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/timeline"
)

// TestPageOfLargeEvents: a page ends when its data has PageBytes, wherever the data is stored.
func TestPageOfLargeEvents(t *testing.T) {
	now := time.Now() // the time to read a page is limited too
	const n, size = 20, 1_000_000
	want := (int(timeline.PageBytes) + size - 1) / size // the last one exceeds it
	if want >= n {
		t.Fatalf("%d events of %d bytes fit into a page", n, size)
	}
	for _, mode := range []timeline.Mode{timeline.Materialised, timeline.Index} {
		s := open(t, vfs.NewMem(), Options{})
		e, err := timeline.Open(s, timeline.Options{Upkeep: -1, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Propose(t.Context(), "t", timeline.Proposal{Mode: mode}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			r, err := e.Append(t.Context(), []timeline.Addressed{{Timelines: []string{"t"}, Event: timeline.Event{Time: int64(i), ID: fmt.Sprint(i), Data: bytes.Repeat([]byte{'x'}, size)}}})
			if err != nil || r.Accepted != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		q := timeline.Query{Timelines: []string{"t"}, Limit: 1000, Order: timeline.Ascending}
		for _, want := range []int{want, n - want} {
			p, err := e.Read(t.Context(), q)
			if err != nil || len(p.Events) != want || p.End != (q.Cursor != "") {
				t.Errorf("mode %v: a page of %d events, want %d, end: %v, %v", mode, len(p.Events), want, p.End, err)
			}
			for _, f := range p.Events {
				if len(f.Data) != size {
					t.Errorf("mode %v: event %s has %d bytes", mode, f.ID, len(f.Data))
				}
			}
			q.Cursor = p.Cursor
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
