package timeline

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A largeShelf has one timeline of events with one id and data of 1 MiB each, which it generates
// when they are read. It records how much memory is in use when the first one is deleted.
type largeShelf struct {
	Shelf
	events  int64
	heap    uint64
	deleted int
	calls   int // of Delete
}

func (s *largeShelf) History(context.Context, string) (History, error) {
	return History{Version: 1, Layouts: []Layout{defaultLayout}}, nil
}

func (s *largeShelf) Slice(_ context.Context, _ Part, r Range, _ Direction, l Limit) (Slice, error) {
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

func (s *largeShelf) Delete(_ context.Context, _ Part, ranges []Range, _ time.Time) error {
	if s.deleted == 0 {
		s.heap = heapInUse()
	}
	s.deleted += len(ranges)
	s.calls++
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
	at := time.Now() // a clock that stands: on a busy machine the search takes longer than pageTime
	e, err := Open(s, Options{Upkeep: -1, Now: func() time.Time { return at }})
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
	if s.calls != 1 {
		t.Errorf("%d calls delete the events, each of which is a sync, want 1", s.calls)
	}
	if s.heap > before+20<<20 {
		t.Errorf("%d MiB are held while %d MiB of events are deleted, want 20 MiB at most", (s.heap-before)>>20, s.events)
	}
}

// An endlessShelf has a timeline that returns events until one is put. Their data is stored separately.
type endlessShelf struct {
	largeShelf
	put   chan struct{}
	begun chan struct{} // events are being deleted
	once  sync.Once
}

func (s *endlessShelf) History(context.Context, string) (History, error) {
	l := defaultLayout
	l.Mode = Index
	return History{Version: 1, Layouts: []Layout{l}}, nil
}

func (s *endlessShelf) Slice(ctx context.Context, _ Part, r Range, _ Direction, l Limit) (Slice, error) {
	select {
	case <-s.put:
		return Slice{}, nil
	default:
	}
	out := Slice{More: true}
	for i := range l.Entries {
		out.Entries = append(out.Entries, Entry{Event: Event{Time: r.From.Time + int64(i), ID: fmt.Sprint("e", i)}, Pointer: PayloadKey{1}})
	}
	return out, ctx.Err()
}

func (s *endlessShelf) DropPayloads(context.Context, []PayloadKey, string, time.Time) error {
	s.once.Do(func() { close(s.begun) })
	return nil
}

func (s *endlessShelf) Mark(context.Context, string, []int64, time.Time) error { return nil }

func (s *endlessShelf) Marks(context.Context, string, int64, int64, Direction, int) ([]int64, error) {
	return []int64{0}, nil
}

func (s *endlessShelf) Unmark(context.Context, string, []int64, time.Time) error { return nil }

func (s *endlessShelf) SetHistory(context.Context, string, uint64, History) error { return nil }

func (s *endlessShelf) Put(context.Context, []Placed) error {
	close(s.put)
	return nil
}

// TestAppendsBesideDeletes: an append does not wait until all events of a timeline are deleted.
func TestAppendsBesideDeletes(t *testing.T) {
	until := int64(MaxTime)
	for name, remove := range map[string]func(context.Context, *Engine) error{
		"events":   func(ctx context.Context, e *Engine) error { return e.Delete(ctx, "t", Deletion{Until: &until}) },
		"timeline": func(ctx context.Context, e *Engine) error { return e.DeleteTimeline(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			s := &endlessShelf{put: make(chan struct{}), begun: make(chan struct{})}
			e, err := Open(s, Options{Upkeep: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			deleted := make(chan error, 1)
			go func() { deleted <- remove(ctx, e) }()
			<-s.begun
			now := time.Now().UnixMicro()
			if _, err := e.Append(ctx, []Addressed{{Event: Event{Time: now, ID: "new"}, Timelines: []string{"t"}}}); err != nil {
				t.Error(err)
			}
			if err := <-deleted; err != nil {
				t.Error(err)
			}
		})
	}
}
