package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/query"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
)

// A watched shelf calls a function before each read.
type watched struct {
	*local.Shelf
	read atomic.Pointer[func()]
}

func (w *watched) look() {
	if f := w.read.Load(); f != nil {
		(*f)()
	}
}

func (w *watched) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	w.look()
	return w.Shelf.Slice(ctx, p, r, d, l)
}

// Other queries begin while a page is read, although there is one slot only: between two reads
// of many events, and between some and some of many timelines.
func TestReadsYieldTheirSlot(t *testing.T) {
	for _, path := range []string{
		"/many/events?type=none&limit=10",
		"/many/events?type=none&order=asc",
		"/events?timeline=many&timeline=n0&type=none&limit=9",
		"?prefix=n&limit=1000",
	} {
		t.Run(path, func(t *testing.T) { yields(t, path) })
	}
}

// yields looks whether another query begins while a request is answered, so that the request still
// reads after that.
func yields(t *testing.T, path string) {
	files, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	must(t, err)
	shelf := &watched{Shelf: files}
	limits := query.DefaultConfig()
	limits.MaxConcurrent = 1
	s := serveShelf(t, shelf, limits)
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, "{\"time\":%d,\"data\":1,\"timelines\":[\"many\",\"n%d\"]}\n", i, i%40)
	}
	if status, answer := s.send("POST", "/events", lines.String(), "Content-Type: application/x-ndjson"); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	began := make(chan struct{})
	other := func() {
		session, err := s.api.queries.Begin(t.Context(), query.Request{})
		if err != nil {
			t.Error(err)
			return
		}
		close(began)
		session.Close(nil)
	}
	var beside atomic.Bool
	var once sync.Once
	read := func() { // takes a turn, unless the other query has begun
		once.Do(func() { go other() })
		for entered := time.Now(); s.api.queries.Queued() == 0 || time.Since(entered) < 25*time.Millisecond; {
			select {
			case <-began:
				beside.Store(true)
				return
			default:
				time.Sleep(time.Millisecond)
			}
		}
	}
	shelf.read.Store(&read)
	if status, answer := s.send("GET", path, ""); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	if !beside.Load() {
		t.Error("the request was answered before another query began")
	}
	<-began
}

// A page counts as memory of queries while it is read, not only once it is complete: those of
// many requests that wait for their turns would take any memory.
func TestPagesCountWhileTheyAreRead(t *testing.T) {
	files, err := local.Open(vfs.NewMem(), "timelines", local.Options{})
	must(t, err)
	shelf := &watched{Shelf: files}
	limits := query.DefaultConfig()
	limits.MaxMemory = 1 << 20
	s := serveShelf(t, shelf, limits)
	line := `{"time":1,"data":"` + strings.Repeat("x", 1000) + `"}` + "\n"
	if status, answer := s.send("POST", "/many/events", strings.Repeat(line, 8000), "Content-Type: application/x-ndjson"); status != http.StatusOK {
		t.Fatalf("%d %s", status, answer)
	}
	var seen atomic.Int64
	read := func() { seen.Add(1) }
	shelf.read.Store(&read)
	s.wantPart(http.StatusBadRequest, "limit query.max_memory", "GET", "/many/events?limit=10000", "")
	if n := seen.Load(); n != 1 {
		t.Errorf("the shelf was read %d times, want once: 4 MiB are too much already", n)
	}
}
