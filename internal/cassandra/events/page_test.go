package events

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/store"
	"varve/internal/timeline"
)

// A watch notes the statements about a timeline that reach a node.
type watch struct {
	name string

	mu   sync.Mutex
	seen []cqltest.Bound
}

func (w *watch) note(r cqltest.Request) *cqltest.Trouble {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range r.Statements {
		if len(b.Values) > 0 && bytes.HasSuffix(b.Values[0], []byte(w.name)) {
			w.seen = append(w.seen, b)
		}
	}
	return nil
}

// during returns the statements about a timeline that reach the node while f runs.
func during(node *cqltest.FailingNode, name string, f func()) []cqltest.Bound {
	w := &watch{name: name}
	node.Fail(w.note)
	f()
	node.Fail(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// reads counts the statements that read a table.
func reads(all []cqltest.Bound, table string) (n int) {
	for _, b := range all {
		if strings.HasPrefix(b.Text, "SELECT") && strings.Contains(b.Text, table) {
			n++
		}
	}
	return n
}

func sameStatement(a, b cqltest.Bound) bool {
	if a.Text != b.Text || len(a.Values) != len(b.Values) {
		return false
	}
	for i := range a.Values {
		if !bytes.Equal(a.Values[i], b.Values[i]) {
			return false
		}
	}
	return true
}

// openLong makes a timeline of three partitions with 400 events in the bucket of now and one
// bucket on each of the 300 days before.
func openLong(t *testing.T, s *Shelf, now func() time.Time) (name string) {
	t.Helper()
	name = t.Name()
	e := openEngine(t, s, func(o *timeline.Options) { o.Now = now })
	if _, err := e.Propose(t.Context(), name, timeline.Proposal{Factor: 3, Size: 3600 * second}); err != nil {
		t.Fatal(err)
	}
	start := now().Truncate(time.Hour)
	var events []timeline.Addressed
	for i := range int64(400) {
		events = append(events, event(start.UnixMicro()+i*second, fmt.Sprint(i), "data", name))
	}
	appendAll(t, e, events...)
	var days []int64
	for i := range 300 {
		days = append(days, start.AddDate(0, 0, -1-i).UnixMicro())
	}
	if err := s.Mark(t.Context(), name, days, now()); err != nil {
		t.Fatal(err)
	}
	return name
}

// newest reads a page of the 100 newest, which must be whole.
func newest(t *testing.T, e *timeline.Engine, name, cursor string) timeline.Page {
	t.Helper()
	p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}, Cursor: cursor})
	if err != nil || len(p.Events) != timeline.PageEvents {
		t.Fatalf("%d events, %v", len(p.Events), err)
	}
	return p
}

// noon is a time in the middle of a block of the directory.
func noon() time.Time { return time.Date(2026, 1, 5, 12, 30, 0, 0, time.UTC) }

// A page of the newest costs two statements on the directory, however long the timeline is, and
// one on each partition.
func testPageStatements(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	s = openShelf(t, s.session, Options{Node: "first", Now: noon})
	name := openLong(t, s, noon)
	e := openEngine(t, s, func(o *timeline.Options) { o.Now = noon })
	cursor := ""
	for n, layouts := range []int{1, 0, 0} { // the second page goes on behind the first one
		all := during(node, name, func() {
			if p := newest(t, e, name, cursor); n == 0 {
				cursor = p.Cursor
			}
		})
		for table, want := range map[string]int{"varve_registers": layouts, "timeline_buckets": 2, "timeline_events": 3} {
			if got := reads(all, table); got != want {
				t.Errorf("page %d: %d statements read %s, want %d", n, got, table, want)
			}
		}
		if want := layouts + 5; len(all) != want {
			t.Errorf("page %d: %d statements, want %d", n, len(all), want)
		}
	}
}

// Whichever statement of a page fails, the answer is that the storage is unavailable, never a
// page that lacks events.
func testPageFails(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	s = openShelf(t, s.session, Options{Node: "first", Now: noon})
	name := openLong(t, s, noon)
	for _, reader := range []string{"that reads for the first time", "that has read before"} {
		open := func() *timeline.Engine {
			e := openEngine(t, s, func(o *timeline.Options) { o.Now = noon })
			if reader == "that has read before" {
				newest(t, e, name, "")
			}
			return e
		}
		e := open()
		statements := during(node, name, func() { newest(t, e, name, "") })
		for i, victim := range statements {
			for _, trouble := range []*cqltest.Trouble{cqltest.Unavailable, cqltest.ReadTimeout} {
				e := open()
				node.Fail(failing("SELECT", "", trouble, func(b cqltest.Bound) bool { return sameStatement(b, victim) }))
				p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}})
				node.Fail(nil)
				if !errors.As(err, new(*store.UnavailableError)) {
					t.Errorf("a reader %s, statement %d of %d (%s) fails with %q: %d events, end %v, %v", reader, i+1, len(statements), victim.Text, trouble.Message, len(p.Events), p.End, err)
				}
			}
		}
	}
}
