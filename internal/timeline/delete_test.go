package timeline

import (
	"context"
	"runtime"
	"testing"
)

// A largeShelf has one timeline of events with one id and data of 1 MiB each, which it makes as
// they are read. It notes how much memory is in use when the first one is deleted.
type largeShelf struct {
	Shelf
	events  int64
	heap    uint64
	deleted int
}

func (s *largeShelf) History(context.Context, string) (History, error) {
	return History{Version: 1, Layouts: []Layout{defaultLayout}}, nil
}

func (s *largeShelf) SliceAll(_ context.Context, _ string, r Range, _ Direction, l Limit) (Slice, error) {
	var out Slice
	for at := max(0, r.From.Time); at < s.events; at++ {
		e := Entry{Event: Event{Time: at, ID: "x", Data: make([]byte, 1<<20)}}
		if !r.Contains(e.Position()) {
			continue
		}
		if l.Entries <= 0 || l.Bytes <= 0 {
			out.More = true
			break
		}
		out.Entries = append(out.Entries, e)
		l.Entries, l.Bytes = l.Entries-1, l.Bytes-e.Bytes()
	}
	return out, nil
}

func (s *largeShelf) DeleteAll(context.Context, string, Range) error {
	if s.deleted == 0 {
		s.heap = heapInUse()
	}
	s.deleted++
	return nil
}

func (s *largeShelf) Alone() bool { return true }

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestDeleteByIDKeepsNoData: the memory of a delete by id does not grow with the data of the
// events that it finds.
func TestDeleteByIDKeepsNoData(t *testing.T) {
	s := &largeShelf{events: 100}
	e, err := Open(s, Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before := heapInUse()
	if err := e.Delete(t.Context(), "t", Deletion{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if s.deleted != int(s.events) {
		t.Errorf("%d events were deleted, want %d", s.deleted, s.events)
	}
	if s.heap > before+20<<20 {
		t.Errorf("%d MiB are held while %d MiB of events are deleted, want 20 MiB at most", (s.heap-before)>>20, s.events)
	}
}
