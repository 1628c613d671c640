package events

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/timeline/timelinetest"
)

var long = flag.Bool("cassandra.long", false, "run all that timelines promise over Cassandra, some minutes")

// keyspace opens a keyspace that the tests of one function share, since creating one takes
// seconds.
func keyspace(t *testing.T, address string) *cql.Session {
	t.Helper()
	return cqltest.Keyspace(t, cqltest.Config(address), cql.Options{})
}

// openShelf opens a shelf whose tables are there.
func openShelf(t *testing.T, session *cql.Session, o Options) *Shelf {
	t.Helper()
	o.Create, o.Log = true, slog.New(slog.NewTextHandler(t.Output(), nil))
	s := Open(session, o)
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), cqltest.Patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// The shelf does what all shelves do, and what the contract does not say of this one.
func TestShelf(t *testing.T) {
	address := originals.Cassandra(t)
	session := keyspace(t, address)
	t.Run("contract", func(t *testing.T) {
		timelinetest.Run(t, func(t *testing.T) timeline.Shelf {
			if strings.Contains(t.Name(), "/engine/") && !*long {
				t.Skip("needs -cassandra.long: make test-contract")
			}
			return openShelf(t, session, Options{Node: "node"})
		})
	})
	for name, test := range map[string]func(*testing.T, *cql.Session){
		"large data":                              testLargeData,
		"arrivals of several servers":             testArrivalsOfServers,
		"arrivals over minutes":                   testArrivalsOverMinutes,
		"arrivals after a clock was ahead":        testArrivalsAfterClockWasAhead,
		"arrivals of many entries":                testManyArrivals,
		"too many servers":                        testTooManyServers,
		"blocks of the directory":                 testBlocks,
		"an event put again after its delete":     testPutAfterDelete,
		"one server leads":                        testLeads,
		"a closed shelf":                          testClosed,
		"many writers of one timeline":            testWriters,
		"a name after its timeline was replaced":  testNameOfReplaced,
		"events accepted before a delete":         testAcceptedBeforeDelete,
		"deletes that are noted":                  testDeletions,
		"events deleted by another server":        testDeletedElsewhere,
		"a longer retention during upkeep":        testRetentionDuringUpkeep,
		"events sent again to several servers":    testResentToServers,
		"events sent again with different clocks": testResentWithDifferentClocks,
		"events sent again out of order":          testResentLate,
		"a client that goes away":                 testGoneAway,
		"log of a start":                          testLogOfStart,
		"tables with a time to live":              testDefaultTTL,
	} {
		t.Run(name, func(t *testing.T) { test(t, session) })
	}
	t.Run("troubles", func(t *testing.T) { testTroubles(t, address, session.KeyspaceName()) })
}

// testRetentionDuringUpkeep: another server makes the retention longer after upkeep has read it, and
// accepts an event that is past the former one. The event stays, although the clock of that server is
// behind.
func testRetentionDuringUpkeep(t *testing.T, session *cql.Session) {
	for _, mode := range []timeline.Mode{timeline.Materialised, timeline.Index} {
		behind := timeline.DefaultConfig().LeadTime / 16
		late := func() time.Time { return time.Now().Add(-behind) }
		other := openEngine(t, openShelf(t, session, Options{Node: "second", Now: late}), func(o *timeline.Options) { o.Now = late })
		name, old := t.Name()+string(mode), time.Now().Add(-2*time.Hour).UnixMicro()
		retain := func(d time.Duration) {
			t.Helper()
			if _, err := other.SetRetention(t.Context(), name, d); err != nil {
				t.Fatal(err)
			}
		}
		propose(t, other, name, timeline.Proposal{Mode: mode})
		appendAll(t, other, event(old, "gone", "data", name))
		retain(time.Hour)
		once := sync.OnceFunc(func() {
			retain(24 * time.Hour)
			appendAll(t, other, event(old, "kept", "data", name))
		})
		mine := openEngine(t, &timelinetest.Hooked{Shelf: openShelf(t, session, Options{Node: "first"}), Before: timelinetest.Hooks{"Marks": timelinetest.Doing(once)}}, nil)
		if err := mine.Upkeep(t.Context()); err != nil {
			t.Error(err)
		}
		p, err := other.Read(t.Context(), timeline.Query{Timelines: []string{name}})
		if err != nil || !slices.ContainsFunc(p.Events, func(f timeline.Found) bool { return f.ID == "kept" && !f.Missing }) {
			t.Errorf("%s: events %+v, %v", mode, p.Events, err)
		}
	}
}

// testLogOfStart: a start that waits a moment for the connection logs no warning. One that
// waits longer logs the reason once.
func testLogOfStart(t *testing.T, session *cql.Session) {
	for failures, want := range map[int32]int{quietTries: 0, quietTries + 2: 1} {
		var tries atomic.Int32
		var log bytes.Buffer
		s := Open(session, Options{Node: "node", Create: true, Log: slog.New(slog.NewTextHandler(&log, nil)), Usable: func() error {
			if tries.Add(1) <= failures {
				return &store.UnavailableError{Reason: "it is not known yet which cluster answers"}
			}
			return nil
		}})
		err := s.WaitReady(t.Context())
		s.Close() // nothing is logged any more
		if got := strings.Count(log.String(), "the tables of timelines cannot be used"); err != nil || got != want {
			t.Errorf("after %d failures: %v, %d warnings, want %d\n%s", failures, err, got, want, log.String())
		}
	}
}

const second = int64(1_000_000)

func partOf(name string, start int64) timeline.Part {
	return timeline.Part{Timeline: name, Start: start, EndExcl: start + 10*second}
}

func placed(p timeline.Part, time int64, id string, data []byte) timeline.Placed {
	return timeline.Placed{Part: p, Entry: timeline.Entry{Event: timeline.Event{Time: time, ID: id, Data: data}}}
}

func put(t *testing.T, s *Shelf, entries ...timeline.Placed) {
	t.Helper()
	if err := s.Put(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

var plenty = timeline.Limit{Entries: 10_000, Bytes: 1 << 30}

func slice(t *testing.T, s *Shelf, p timeline.Part, l timeline.Limit) timeline.Slice {
	t.Helper()
	out, err := s.Slice(t.Context(), p, timeline.All(), timeline.Ascending, l)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Data of any size is read back as it was put, also where it was smaller or larger before.
func testLargeData(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	p := partOf(t.Name(), 0)
	sizes := []int{0, inlineBytesMax, inlineBytesMax + 1, pieceBytes, 3*pieceBytes + 5, pieceBytes + 1, 1}
	for _, size := range sizes {
		data := bytes.Repeat([]byte{byte(size), 'x', 0}, size/3+1)[:size]
		put(t, s, placed(p, 1, "e", data), placed(p, 2, "after", nil))
		out := slice(t, s, p, plenty)
		if len(out.Entries) != 2 || !bytes.Equal(out.Entries[0].Data, data) || out.Entries[0].Size != 0 {
			t.Fatalf("of %d bytes: %d entries, the first of %d", size, len(out.Entries), len(out.Entries[0].Data))
		}
	}
	put(t, s, placed(p, 1, "e", make([]byte, 3*pieceBytes)), placed(p, 2, "f", make([]byte, 3*pieceBytes)))
	if out := slice(t, s, p, timeline.Limit{Entries: 9, Bytes: 4 * pieceBytes}); len(out.Entries) != 2 || !out.More {
		t.Errorf("%d entries within the limit of bytes, more: %v", len(out.Entries), out.More)
	}
	if err := s.Delete(t.Context(), p, []timeline.Range{{From: timeline.At(1), To: timeline.At(2)}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, session, "timeline_pieces", t.Name()); n != 3 {
		t.Errorf("%d pieces are left of an event of 3", n)
	}
	key := timeline.PayloadKey{1}
	data := bytes.Repeat([]byte("payload"), pieceBytes)
	e := placed(partOf("a", 0), 1, "e", nil)
	e.Pointer, e.Size, e.Payload = key, len(data), data
	put(t, s, e)
	if got, err := s.Payload(t.Context(), key); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
}

// testDefaultTTL: the default time to live of the tables ends the life of no row.
func testDefaultTTL(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	tables := []string{"timeline_events", "timeline_pieces", "timeline_payloads", "timeline_buckets", "timeline_names"}
	life := func(sec int) {
		for _, table := range tables {
			cqltest.Must(t, session, fmt.Sprintf("ALTER TABLE %s WITH default_time_to_live = %d", table, sec))
		}
	}
	life(1)
	defer life(0)
	p := partOf(t.Name(), 0)
	data := bytes.Repeat([]byte("data"), inlineBytesMax)
	apart := placed(p, 3, "apart", nil)
	apart.Pointer, apart.Size, apart.Payload = timeline.PayloadKey{2}, len(data), data
	put(t, s, placed(p, 1, "row", nil), placed(p, 2, "pieces", data))
	put(t, s, apart)
	if err := s.Mark(t.Context(), t.Name(), []int64{0}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.SetHistory(t.Context(), t.Name(), 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	awaitExpired(t, session)
	if out := slice(t, s, p, plenty); len(out.Entries) != 3 || len(out.Entries[1].Data) != len(data) {
		t.Errorf("%d events are left", len(out.Entries))
	}
	if got, err := s.Payload(t.Context(), apart.Pointer); err != nil || len(got) != len(data) {
		t.Errorf("%d bytes of data are left, %v", len(got), err)
	}
	if marks, err := s.Marks(t.Context(), t.Name(), timeline.MinTime, timeline.MaxTime, timeline.Descending, 10); err != nil || len(marks) != 1 {
		t.Errorf("marks %v, %v", marks, err)
	}
	if names, err := s.Names(t.Context(), t.Name(), "", 10); err != nil || len(names) != 1 {
		t.Errorf("names %q, %v", names, err)
	}
}

// awaitExpired waits until a row that was written last, without a time to live of its own, has expired.
func awaitExpired(t *testing.T, session *cql.Session) {
	t.Helper()
	put := &cql.Statement{Name: "put_control", Text: "INSERT INTO timeline_names (shard, name) VALUES (?, ?)"}
	look := &cql.Statement{Name: "look_for_control", Text: "SELECT name FROM timeline_names WHERE shard = ? AND name = ?"}
	if err := session.Exec(t.Context(), put, time.Now().UnixMilli(), int32(-1), "control"); err != nil {
		t.Fatal(err)
	}
	for there := true; there; {
		var err error
		if there, err = session.One(t.Context(), look, []any{int32(-1), "control"}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// count counts rows of part 0 of the bucket 0.
func count(t *testing.T, session *cql.Session, table, name string) (n int64) {
	t.Helper()
	st := &cql.Statement{Name: "count", Text: "SELECT count(*) FROM " + table + " WHERE timeline = ? AND bucket = ? AND part = ?"}
	if _, err := session.One(t.Context(), st, []any{name, int64(0), int32(0)}, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// follow reads arrivals up to the end, and returns the ids.
func follow(t *testing.T, s *Shelf, name string, after []byte, l timeline.Limit) (ids []string, next []byte) {
	t.Helper()
	for {
		a, err := s.Arrivals(t.Context(), name, after, l)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Next) > timeline.ArrivalBytesMax {
			t.Errorf("a cursor of %d bytes", len(a.Next))
		}
		for _, e := range a.Entries {
			ids = append(ids, e.ID)
		}
		if after = a.Next; !a.More {
			return ids, after
		}
	}
}

// A reader that follows sees the events of all servers, including those that begin later, each
// once.
func testArrivalsOfServers(t *testing.T, session *cql.Session) {
	first, second := openShelf(t, session, Options{Node: "first"}), openShelf(t, session, Options{Node: "second"})
	name := t.Name()
	p := partOf(name, 0)
	put(t, first, placed(p, 1, "before", nil))
	_, next := follow(t, second, name, nil, plenty)
	var all, want []string
	for round := range 3 {
		for _, s := range []*Shelf{first, second} {
			id := fmt.Sprint(round, s.arrivals.number)
			want = append(want, id)
			put(t, s, placed(p, int64(-round), id, nil))
			var ids []string
			ids, next = follow(t, first, name, next, timeline.Limit{Entries: 1, Bytes: 1})
			all = append(all, ids...)
		}
	}
	third := openShelf(t, session, Options{Node: "third"})
	put(t, third, placed(p, 9, "of the third", nil))
	again := openShelf(t, session, Options{Node: "first"}) // started again
	put(t, again, placed(p, 9, "of the first again", nil))
	ids, _ := follow(t, second, name, next, plenty)
	all, want = append(all, ids...), append(want, "of the third", "of the first again")
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Errorf("arrived %q, want %q", all, want)
	}
}

// A testClock is a clock that tests set forward.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// The log continues from minute to minute. A cursor is valid as long as the log is kept.
func testArrivalsOverMinutes(t *testing.T, session *cql.Session) {
	c := &testClock{at: time.Now()}
	s := openShelf(t, session, Options{Node: "first", Now: c.now})
	name := t.Name()
	put(t, s, placed(partOf(name, 0), 0, "before", nil))
	_, first := follow(t, s, name, nil, plenty)
	c.add(40 * time.Second) // idle for longer than a cursor need look back
	_, late := follow(t, s, name, first, plenty)
	var want []string
	for i := range 7 {
		c.add(47 * time.Second)
		want = append(want, fmt.Sprint("e", i))
		put(t, s, placed(partOf(name, 0), int64(i), fmt.Sprint("e", i), nil))
	}
	for _, from := range [][]byte{first, late} {
		if ids, _ := follow(t, s, name, from, timeline.Limit{Entries: 2, Bytes: 1 << 20}); !slices.Equal(ids, want) {
			t.Errorf("arrived %q, want %q", ids, want)
		}
	}
	c.add(arrivalsKept)
	if _, err := s.Arrivals(t.Context(), name, first, plenty); !errors.Is(err, timeline.ErrBehind) {
		t.Errorf("with a cursor older than the log: %v", err)
	}
}

// A server that is started again after its clock was set back goes on with its log above what
// readers have read. If the clock was wrong by hours, new readers read from the present on.
func testArrivalsAfterClockWasAhead(t *testing.T, session *cql.Session) {
	reader := openShelf(t, session, Options{Node: "reader"})
	for _, ahead := range []time.Duration{40 * time.Second, 100 * time.Second, 3 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			name := t.Name()
			p := partOf(name, 0)
			c := &testClock{at: time.Now().Add(ahead)}
			before := openShelf(t, session, Options{Node: "first", Now: c.now})
			put(t, before, placed(p, 1, "ahead", nil))
			var next []byte
			if ahead <= logAhead {
				_, next = follow(t, reader, name, nil, plenty)
			} else {
				var away *store.UnavailableError
				if _, err := reader.Arrivals(t.Context(), name, nil, plenty); !errors.As(err, &away) || !strings.Contains(err.Error(), "cannot be followed: the clock of a server that writes to the timeline is ") {
					t.Errorf("followed beside a clock that is ahead by hours: %v", err)
				}
				_, next = follow(t, before, name, nil, plenty)
				var input *store.InputError
				if _, err := reader.Arrivals(t.Context(), name, next, plenty); !errors.As(err, &input) || !strings.Contains(err.Error(), "ahead of this server's clock") {
					t.Errorf("a cursor of a server whose clock is ahead by hours: %v", err)
				}
			}
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
			again := openShelf(t, session, Options{Node: "first"})
			var want []string
			if ahead > logAhead {
				put(t, again, placed(p, 2, "not followed", nil))
				_, next = follow(t, reader, name, nil, plenty)
			}
			for i := range 3 {
				want = append(want, fmt.Sprint("e", i))
				put(t, again, placed(p, int64(3+i), want[i], nil))
			}
			if ids, _ := follow(t, reader, name, next, plenty); !slices.Equal(ids, want) {
				t.Errorf("arrived %q, want %q", ids, want)
			}
		})
	}
}

// More entries than a row lists, of several timelines, are listed once each, in whatever
// portions they are read.
func testManyArrivals(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	name, other := t.Name(), t.Name()+" other"
	_, begin := follow(t, s, name, nil, plenty)
	const n = rowArrivals + 300
	var entries []timeline.Placed
	for i := range n {
		entries = append(entries, placed(partOf(name, int64(i%3)*10*second), int64(i), fmt.Sprint(i), nil))
		if i%10 == 0 {
			entries = append(entries, placed(partOf(other, 0), int64(i), fmt.Sprint("other", i), nil))
		}
	}
	put(t, s, entries...)
	for _, limit := range []int{97, n, 5000} {
		ids, _ := follow(t, s, name, begin, timeline.Limit{Entries: limit, Bytes: 1 << 20})
		seen := map[string]bool{}
		for _, id := range ids {
			seen[id] = true
		}
		if len(ids) != n || len(seen) != n {
			t.Errorf("by %d: %d entries, %d different ones, want %d", limit, len(ids), len(seen), n)
		}
	}
}

// If there are more servers than a cursor can contain, that is an error; none is left out.
func testTooManyServers(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	name := t.Name()
	for log := range int32(logsMax + 1) {
		if err := session.Exec(t.Context(), putLog, s.stamp(), name, log, slotOf(s.stamp()), seconds(logKept)); err != nil {
			t.Fatal(err)
		}
		a, err := s.Arrivals(t.Context(), name, nil, plenty)
		if unavailable := (*store.UnavailableError)(nil); errors.As(err, &unavailable) != (log == logsMax) {
			t.Fatalf("with %d servers: %v", log+1, err)
		}
		if len(a.Next) > timeline.ArrivalBytesMax {
			t.Fatalf("with %d servers the cursor has %d bytes", log+1, len(a.Next))
		}
	}
}

// Buckets of all times are listed in order, over the borders of blocks; a block without
// buckets is not listed any more, unless it was marked since.
func testBlocks(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	name := t.Name()
	starts := []int64{timeline.MinTime / blockMicros * blockMicros, -blockMicros - 10, -1, 0, blockMicros - 10*second, blockMicros, 9 * blockMicros, timeline.MaxTime}
	now := time.Now()
	if err := s.Mark(t.Context(), name, starts, now); err != nil {
		t.Fatal(err)
	}
	back := slices.Clone(starts)
	slices.Reverse(back)
	for _, limit := range []int{3, 100} {
		got, err := s.Marks(t.Context(), name, timeline.MinTime-blockMicros, timeline.MaxTime+1, timeline.Ascending, limit)
		if want := starts[:min(limit, len(starts))]; err != nil || !slices.Equal(got, want) {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
		got, err = s.Marks(t.Context(), name, -1, timeline.MaxTime, timeline.Descending, limit)
		if want := back[1:6][:min(limit, 5)]; err != nil || !slices.Equal(got, want) {
			t.Errorf("%d, %v, want %d", got, err, want)
		}
	}
	if err := s.Mark(t.Context(), name, starts[6:7], now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Unmark(t.Context(), name, starts[3:7], now.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Marks(t.Context(), name, timeline.MinTime-blockMicros, timeline.MaxTime+1, timeline.Ascending, 100)
	if want := append(slices.Clone(starts[:3]), starts[6:]...); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
	blocks, err := s.startsOf(t.Context(), name, allBlocks, timeline.MinTime-blockMicros, timeline.MaxTime, timeline.Ascending, 100)
	if err != nil || len(blocks) != 5 || slices.Contains(blocks, 0) {
		t.Errorf("blocks %d, %v", blocks, err)
	}
}

// An event that is put after a delete is there, in whichever order servers get them done.
func testPutAfterDelete(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	p := partOf(t.Name(), 0)
	now := time.Now()
	e := placed(p, 1, "e", make([]byte, pieceBytes))
	for _, deleted := range []timeline.Range{{From: timeline.At(1), To: timeline.At(2)}, timeline.All()} {
		e.Put = now
		put(t, s, e)
		now = now.Add(time.Second)
		e.Put = now
		put(t, s, e)
		if err := s.Delete(t.Context(), p, []timeline.Range{deleted}, now); err != nil { // arrives after what came after it
			t.Fatal(err)
		}
		if out := slice(t, s, p, plenty); len(out.Entries) != 1 || len(out.Entries[0].Data) != pieceBytes {
			t.Errorf("after a delete of before: %d entries", len(out.Entries))
		}
		now = now.Add(time.Second)
		if err := s.Delete(t.Context(), p, []timeline.Range{deleted}, now); err != nil {
			t.Fatal(err)
		}
		if out := slice(t, s, p, plenty); len(out.Entries) != 0 {
			t.Errorf("after its delete: %d entries", len(out.Entries))
		}
	}
}

// One server maintains timelines; when it is closed, the next one does.
func testLeads(t *testing.T, session *cql.Session) {
	for _, node := range []string{"first", "second"} {
		s := openShelf(t, session, Options{Node: node})
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(time.Minute); !s.Leads(); <-tick.C {
			if time.Now().After(end) {
				t.Fatalf("the %s server does not lead", node)
			}
		}
		other := openShelf(t, session, Options{Node: "other"})
		if other.Leads() {
			t.Error("two servers lead")
		}
		other.Close()
		s.Close()
	}
}

func testClosed(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	s.Close()
	if err := s.Put(t.Context(), []timeline.Placed{placed(partOf(t.Name(), 0), 1, "e", nil)}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("put: %v", err)
	}
	if _, err := s.History(t.Context(), t.Name()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("history: %v", err)
	}
	s.Close()
}

// A reader who follows while many write sees all that is acknowledged, each once.
func testWriters(t *testing.T, session *cql.Session) {
	name := t.Name()
	shelves := []*Shelf{openShelf(t, session, Options{Node: "a"}), openShelf(t, session, Options{Node: "b"})}
	_, next := follow(t, shelves[0], name, nil, plenty)
	const writers, each = 6, 25
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			s := shelves[w%2]
			for i := range each {
				e := placed(partOf(name, int64(i)*10*second), int64(i)*10*second, fmt.Sprint(w, "-", i), nil)
				if err := s.Put(t.Context(), []timeline.Placed{e}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	seen := map[string]int{}
	for last := false; ; {
		var ids []string
		ids, next = follow(t, shelves[0], name, next, timeline.Limit{Entries: 7, Bytes: 1 << 20})
		for _, id := range ids {
			seen[id]++
		}
		if last {
			break
		}
		select {
		case <-done:
			last = true
		default:
		}
	}
	if len(seen) != writers*each {
		t.Errorf("%d of %d events", len(seen), writers*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s came %d times", id, n)
		}
	}
}

// The name of a timeline that was removed and created again immediately is listed.
func testNameOfReplaced(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	name := t.Name()
	h := timeline.History{Version: 1}
	for range 3 {
		if err := s.SetHistory(t.Context(), name, 0, h); err != nil {
			t.Fatal(err)
		}
		if names, err := s.Names(t.Context(), name, "", 10); err != nil || !slices.Equal(names, []string{name}) {
			t.Errorf("names %q, %v", names, err)
		}
		if err := s.SetHistory(t.Context(), name, 1, timeline.History{}); err != nil {
			t.Fatal(err)
		}
		if names, err := s.Names(t.Context(), name, "", 10); err != nil || len(names) > 0 {
			t.Errorf("names %q, %v", names, err)
		}
	}
}

// An event that was acknowledged before a delete, and is put after it, stays deleted; one that
// was acknowledged after it is there.
func testAcceptedBeforeDelete(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	c := &testClock{at: time.Now()}
	e := openEngine(t, s, func(o *timeline.Options) {
		o.Now = func() time.Time { // never twice in one microsecond
			c.add(time.Millisecond)
			return c.now()
		}
	})
	name := t.Name()
	base := time.Now().Add(-time.Hour).Truncate(time.Hour).UnixMicro() // one bucket has all events
	want := func(ids ...string) {
		t.Helper()
		p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{name}, Order: timeline.Ascending})
		var got []string
		for _, f := range p.Events {
			got = append(got, f.ID)
		}
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("events %q, %v, want %q", got, err, ids)
		}
	}
	accept := func(id string) []timeline.Accepted {
		t.Helper()
		all, r, err := e.Accept(t.Context(), []timeline.Addressed{event(base, id, "data", name)})
		if err != nil || r.Accepted != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		return all
	}
	appendAll(t, e, event(base+second, "kept", "", name))
	before := accept("before")
	if err := e.Delete(t.Context(), name, timeline.Deletion{From: &base, Until: &base}); err != nil {
		t.Fatal(err)
	}
	after := accept("after")
	for range 2 { // and again, as after a crash
		r, err := e.AppendAccepted(t.Context(), before)
		if err != nil || len(r.Rejected) != 1 || !errors.As(r.Rejected[0].Err, new(*store.InputError)) {
			t.Fatalf("of before: %+v, %v", r, err)
		}
		if r, err = e.AppendAccepted(t.Context(), after); err != nil || r.Accepted != 1 {
			t.Fatalf("of after: %+v, %v", r, err)
		}
		want("after", "kept")
	}
	if err := e.DeleteTimeline(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	r, err := e.AppendAccepted(t.Context(), after)
	if err != nil || len(r.Rejected) != 1 || !errors.As(r.Rejected[0].Err, new(*store.InputError)) {
		t.Errorf("of a timeline that was deleted since: %+v, %v", r, err)
	}
	want()
	if _, err := e.AppendAccepted(t.Context(), append(accept("later"), after...)); err != nil {
		t.Error(err)
	}
	want("later")
}

// Deletes are listed from a time on, over the borders of days, until they are too old.
func testDeletions(t *testing.T, session *cql.Session) {
	c := &testClock{at: time.Now().Truncate(24 * time.Hour).Add(23 * time.Hour)}
	first, second := openShelf(t, session, Options{Node: "first", Now: c.now}), openShelf(t, session, Options{Node: "second", Now: c.now})
	var noted []timeline.Deleted
	note := func(d timeline.Deleted) {
		t.Helper()
		d.Before = time.UnixMicro(c.now().UnixMicro())
		for range 2 { // a repeat is harmless
			if err := first.NoteDeletion(t.Context(), t.Name(), d); err != nil {
				t.Fatal(err)
			}
		}
		noted = append(noted, d)
	}
	note(timeline.Deleted{Range: timeline.All()})
	c.add(time.Microsecond)
	p := timeline.Position{Time: -5, ID: "x"}
	note(timeline.Deleted{Range: timeline.Range{From: p, To: p.Next()}})
	c.add(50 * time.Hour)
	note(timeline.Deleted{Range: timeline.Range{From: timeline.At(1), To: timeline.At(2)}, ID: "y"})
	list := func(after time.Time) (all []timeline.Deleted) {
		t.Helper()
		err := second.Deletions(t.Context(), t.Name(), after, func(d timeline.Deleted) error { all = append(all, d); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for i := range noted {
		if got := list(noted[i].Before); !slices.Equal(got, noted[i+1:]) {
			t.Errorf("after delete %d: %+v, want %+v", i, got, noted[i+1:])
		}
	}
	if got := list(time.Unix(0, 0)); !slices.Equal(got, noted) {
		t.Errorf("all: %+v, want %+v", got, noted)
	}
	stop := errors.New("stop")
	if err := second.Deletions(t.Context(), t.Name(), time.Unix(0, 0), func(timeline.Deleted) error { return stop }); err != stop {
		t.Errorf("ended by the caller: %v", err)
	}
}

// Events that one server deletes stay deleted, although another server acknowledged them before
// and puts them afterwards into a bucket, or a timeline, that did not exist yet.
func testDeletedElsewhere(t *testing.T, session *cql.Session) {
	mine := openEngine(t, openShelf(t, session, Options{Node: "first"}), nil)
	other := openEngine(t, openShelf(t, session, Options{Node: "second"}), nil)
	at := time.Now().Add(-100 * 24 * time.Hour).UnixMicro()
	for i, d := range []timeline.Deletion{{Until: &at}, {ID: "gone"}, {From: &at, Until: &at, ID: "gone"}, {}} {
		name := fmt.Sprint(t.Name(), i)
		accept := func(id string) timeline.Accepted {
			all, _, err := mine.Accept(t.Context(), []timeline.Addressed{event(at, id, "data", name)})
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0]
		}
		gone := accept("gone")
		var err error
		if d == (timeline.Deletion{}) {
			err = other.DeleteTimeline(t.Context(), name)
		} else {
			err = other.Delete(t.Context(), name, d)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := mine.AppendAccepted(t.Context(), []timeline.Accepted{gone})
		if err != nil || len(r.Rejected) != 1 || !errors.As(r.Rejected[0].Err, new(*store.InputError)) {
			t.Errorf("delete %d: %+v, %v", i, r, err)
		}
		if _, err := mine.Layout(t.Context(), name); !errors.Is(err, timeline.ErrNotFound) {
			t.Errorf("delete %d: the timeline is there, %v", i, err)
		}
		if r, err = mine.AppendAccepted(t.Context(), []timeline.Accepted{gone, accept("later")}); err != nil || r.Accepted != 1 {
			t.Errorf("delete %d, with a later event: %+v, %v", i, r, err)
		}
		p, err := other.Read(t.Context(), timeline.Query{Timelines: []string{name}})
		if err != nil || len(p.Events) != 1 || p.Events[0].ID != "later" {
			t.Errorf("delete %d: %+v, %v", i, p.Events, err)
		}
	}
}

// TestUsable: a shelf whose session must not be used does nothing.
func TestUsable(t *testing.T) {
	var away atomic.Bool
	errAway := &store.UnavailableError{Reason: "another cluster answers"}
	s := openShelf(t, keyspace(t, originals.Cassandra(t)), Options{Node: "node", Usable: func() error {
		if away.Load() {
			return errAway
		}
		return nil
	}})
	p := partOf(t.Name(), 0)
	away.Store(true)
	if err := s.Put(t.Context(), []timeline.Placed{placed(p, 1, "e", nil)}); !errors.Is(err, errAway) {
		t.Errorf("put: %v", err)
	}
	away.Store(false)
	put(t, s, placed(p, 1, "e", nil))
}
