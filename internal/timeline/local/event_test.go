package local

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

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

// TestPutOfWhatAnotherPuts: an event is not acknowledged before it is durable, also if another call has put it
// and waits for the disk.
func TestPutOfWhatAnotherPuts(t *testing.T) {
	var holds, goesOn atomic.Bool
	reached, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := open(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		syncs := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if holds.Load() && syncs && strings.HasSuffix(op.Path, ".log") {
			once.Do(func() { close(reached) })
			<-held
		}
		return nil
	})), Options{})
	defer s.Close()
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Append(t.Context(), []timeline.Addressed{{Event: timeline.Event{Time: 1, ID: "a"}, Timelines: []string{"t"}}}); err != nil {
		t.Fatal(err)
	}
	var puts sync.WaitGroup
	put := func() {
		event := timeline.Event{Time: 1, ID: "b"}
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: event}}}); err != nil {
			t.Error(err)
		}
		if !goesOn.Load() {
			t.Error("the event is acknowledged before the log is synced")
		}
	}
	holds.Store(true)
	puts.Go(put)
	<-reached
	logged := func() uint64 { return s.db.Metrics().WAL.BytesIn }
	before, returned := logged(), make(chan struct{})
	puts.Go(func() { defer close(returned); put() })
	for done := false; !done && logged() == before; time.Sleep(time.Millisecond) { // until it waits, too
		select {
		case <-returned:
			done = true
		default:
		}
	}
	goesOn.Store(true)
	close(held)
	puts.Wait()
}

// TestResentArrivesOnce: an event that is sent again does not arrive again at readers that follow, with its data in
// its row or stored apart from it.
func TestResentArrivesOnce(t *testing.T) {
	s := open(t, vfs.NewMem(), Options{})
	defer s.Close()
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Propose(t.Context(), "index", timeline.Proposal{Mode: timeline.Index}); err != nil {
		t.Fatal(err)
	}
	arrivals := func(size int, data string) uint64 {
		t.Helper()
		before := s.order.sequence
		event := timeline.Event{Time: 1, ID: fmt.Sprint(size), Data: []byte(strings.Repeat(data, size))}
		if r, err := e.Append(t.Context(), []timeline.Addressed{{Event: event, Timelines: []string{"plain", "index"}}}); err != nil || r.Accepted != 1 {
			t.Fatal(r, err)
		}
		return s.order.sequence - before
	}
	for _, size := range []int{1, 1000} {
		for _, data := range []string{"x", "y"} {
			if first, again := arrivals(size, data), arrivals(size, data); first != 2 || again != 0 {
				t.Errorf("an event of %d bytes arrives in %d timelines, and again in %d", size, first, again)
			}
		}
	}
}
