package events

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/timeline"
)

// openEngine opens an engine without background work.
func openEngine(t testing.TB, s timeline.Shelf, change func(*timeline.Options)) *timeline.Engine {
	t.Helper()
	o := timeline.Options{Upkeep: -1, Config: timeline.Config{Adapt: false}}
	if change != nil {
		change(&o)
	}
	e, err := timeline.Open(s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func event(time int64, id, data string, timelines ...string) timeline.Addressed {
	return timeline.Addressed{Event: timeline.Event{Time: time, ID: id, Data: []byte(data)}, Timelines: timelines}
}

// appendAll appends events that must all be accepted.
func appendAll(t testing.TB, e *timeline.Engine, events ...timeline.Addressed) {
	t.Helper()
	r, err := e.Append(t.Context(), events)
	if err != nil || r.Accepted != len(events) {
		t.Fatalf("%d of %d accepted, %+v, %v", r.Accepted, len(events), r.Rejected, err)
	}
}

// A page of the 100 newest of three partitions, and appends of 100 events of 200 bytes.
// Reported as percentiles, since it is those that are promised.
func TestSpeed(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-contract")
	}
	session := keyspace(t, originals.Cassandra(t))
	e := openEngine(t, openShelf(t, session, Options{Node: "node"}), nil)
	name := t.Name()
	if _, err := e.Propose(t.Context(), name, timeline.Proposal{Factor: 3, Size: 3600 * second}); err != nil {
		t.Fatal(err)
	}
	data := string(make([]byte, 200))
	base := time.Now().Add(-time.Minute).UnixMicro()
	var appends []time.Duration
	for i := range int64(200) {
		var events []timeline.Addressed
		for j := range int64(100) {
			events = append(events, event(base+i*10_000+j, fmt.Sprint(i, "-", j), data, name))
		}
		began := time.Now()
		appendAll(t, e, events...)
		appends = append(appends, time.Since(began))
	}
	t.Logf("append of 100 events of 200 bytes: %s", percentiles(appends))
	page := func(q timeline.Query) time.Duration {
		began := time.Now()
		p, err := e.Read(t.Context(), q)
		if err != nil || len(p.Events) != 100 {
			t.Fatalf("%d events, %v", len(p.Events), err)
		}
		return time.Since(began)
	}
	t.Logf("for comparison, one row of one partition: %s", percentiles(oneRow(t, session)))
	var newest, oldest []time.Duration
	for range 500 {
		newest = append(newest, page(timeline.Query{Timelines: []string{name}}))
		oldest = append(oldest, page(timeline.Query{Timelines: []string{name}, Order: timeline.Ascending}))
	}
	t.Logf("page of the 100 newest of 3 partitions: %s", percentiles(newest))
	t.Logf("page of the 100 oldest of 3 partitions: %s", percentiles(oldest))
	var all sync.WaitGroup
	began := time.Now()
	for w := range 8 {
		all.Go(func() {
			for i := range int64(50) {
				var events []timeline.Addressed
				for j := range int64(200) {
					events = append(events, event(base+i*20_000+j, fmt.Sprint(w, "-", i, "-", j), data, name))
				}
				if r, err := e.Append(t.Context(), events); err != nil || r.Accepted != len(events) {
					t.Error(r.Rejected, err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("8 writers of 200 events each: %.0f events/s", 8*50*200/time.Since(began).Seconds())
}

// oneRow reads the name of the timeline again and again.
func oneRow(t *testing.T, session *cql.Session) (all []time.Duration) {
	for range 500 {
		began := time.Now()
		var at int64
		if found, err := session.One(t.Context(), nameWritten, []any{shardOf(t.Name()), t.Name()}, &at); err != nil || !found {
			t.Fatal(found, err)
		}
		all = append(all, time.Since(began))
	}
	return all
}

func percentiles(all []time.Duration) string {
	slices.Sort(all)
	at := func(p int) time.Duration { return all[len(all)*p/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v", at(50), at(90), at(99))
}

// Reading back over 10,000 empty buckets costs few statements.
func TestSparse(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-contract")
	}
	var mu sync.Mutex
	counts := map[string]int{}
	session := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Observe: func(statement string) {
		mu.Lock()
		defer mu.Unlock()
		counts[statement]++
	}})
	e := openEngine(t, openShelf(t, session, Options{Node: "node"}), nil)
	name := t.Name()
	if _, err := e.Propose(t.Context(), name, timeline.Proposal{Size: 10 * second}); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UnixMicro()
	for i := range int64(3) {
		appendAll(t, e, event(now-i*5000*10*second, fmt.Sprint(i), "", name))
	}
	q := timeline.Query{Timelines: []string{name}, Limit: 1}
	for i := range 4 {
		mu.Lock()
		clear(counts)
		mu.Unlock()
		p, err := e.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		t.Logf("page %d: %d events, end %v, statements %v", i, len(p.Events), p.End, counts)
		if counts["read_events"] > 4 {
			t.Errorf("page %d reads %d buckets", i, counts["read_events"])
		}
		mu.Unlock()
		if p.End {
			return
		}
		q.Cursor = p.Cursor
	}
	t.Error("no end after 4 pages of 3 events")
}
