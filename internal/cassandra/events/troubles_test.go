package events

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/store"
	"varve/internal/timeline"
)

// testTroubles: failures are reported for the entries that they affect, and no acknowledged
// entry is missed.
func testTroubles(t *testing.T, address, keyspace string) {
	node := cqltest.NewFailingNode(t, address)
	config := cqltest.Config(node.Address)
	config.Keyspace, config.Attempts, config.RetryPause, config.OutageGrace = keyspace, 2, time.Millisecond, 0
	session := cqltest.Open(t, config, cql.Options{})
	for name, test := range map[string]func(*testing.T, *cqltest.FailingNode, *Shelf){
		"a part that cannot be written":     testPartNotWritten,
		"a part that cannot be read":        testPartNotRead,
		"a log of arrivals that fails":      testArrivalsFail,
		"arrivals whose answer is lost":     testArrivalsUnknown,
		"a log that is listed late":         testLogListedLate,
		"a cursor that is made up":          testMadeUpCursor,
		"more deletes than Cassandra reads": testTombstones,
		"a history whose answer is lost":    testHistoryUnknown,
		"pieces that are missing":           testMissingPieces,
		"large data that is not replaced":   testNotReplaced,
		"what a page costs":                 testPageStatements,
		"a page of which a statement fails": testPageFails,
	} {
		t.Run(name, func(t *testing.T) {
			defer node.Fail(nil)
			test(t, node, openShelf(t, session, Options{Node: "first"}))
		})
	}
}

// failing lets statements of a kind fail whose n-th value is of a partition.
func failing(prefix, table string, trouble *cqltest.Trouble, if_ func(cqltest.Bound) bool) func(cqltest.Request) *cqltest.Trouble {
	return func(r cqltest.Request) *cqltest.Trouble {
		for _, b := range r.Statements {
			if strings.HasPrefix(b.Text, prefix) && strings.Contains(b.Text, table) && (if_ == nil || if_(b)) {
				return trouble
			}
		}
		return nil
	}
}

func testPartNotWritten(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	name := t.Name()
	good, bad := partOf(name, 0), partOf(name, 0)
	bad.Partition = 1
	node.Fail(failing("INSERT", "timeline_events", cqltest.Unavailable, func(b cqltest.Bound) bool { return slices.Equal(b.Values[2], []byte{0, 0, 0, 1}) }))
	err := s.Put(t.Context(), []timeline.Placed{placed(good, 1, "a", nil), placed(bad, 1, "b", nil), placed(good, 2, "c", nil), placed(bad, 2, "d", nil)})
	some := (*timeline.PutError)(nil)
	if !errors.As(err, &some) || len(some.Failed) != 2 || some.Failed[1] == nil || some.Failed[3] == nil {
		t.Fatal(err)
	}
	if !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("it is no fault of storage: %v", err)
	}
	if out := slice(t, s, good, plenty); len(out.Entries) != 2 {
		t.Errorf("%d entries in the part that works", len(out.Entries))
	}
}

// An event with large data stays as it is if the one that is to replace it is not put.
func testNotReplaced(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	p := partOf(t.Name(), 0)
	data := bytes.Repeat([]byte("first"), pieceBytes/2)
	put(t, s, placed(p, 1, "a", data), placed(p, 2, "b", nil))
	for _, size := range []int{inlineBytesMax + 1, len(data), 2 * len(data)} {
		node.Fail(failing("INSERT", "timeline_events", cqltest.Unavailable, nil))
		if err := s.Put(t.Context(), []timeline.Placed{placed(p, 1, "a", make([]byte, size))}); err == nil {
			t.Error("put without a row")
		}
		node.Fail(nil)
		if out := slice(t, s, p, plenty); len(out.Entries) != 2 || !bytes.Equal(out.Entries[0].Data, data) {
			t.Errorf("%d entries, after other data of %d bytes", len(out.Entries), size)
		}
	}
}

// A part that cannot be read is not empty.
func testPartNotRead(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	p := partOf(t.Name(), 0)
	put(t, s, placed(p, 1, "a", nil))
	node.Fail(failing("SELECT", "timeline_events", cqltest.ReadTimeout, nil))
	out, err := s.Slice(t.Context(), p, timeline.All(), timeline.Descending, plenty)
	if !errors.As(err, new(*store.UnavailableError)) {
		t.Errorf("%d entries, %v", len(out.Entries), err)
	}
	node.Fail(failing("SELECT", "timeline_buckets", cqltest.ReadTimeout, nil))
	if marks, err := s.Marks(t.Context(), t.Name(), 0, second, timeline.Descending, 9); err == nil {
		t.Errorf("marks %d", marks)
	}
}

// An event whose arrival is not recorded is not acknowledged, and delays no other event for
// longer than the failure lasts.
func testArrivalsFail(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	name := t.Name()
	p := partOf(name, 0)
	_, begin := follow(t, s, name, nil, plenty)
	node.Fail(failing("INSERT", "timeline_arrivals", cqltest.Unavailable, nil))
	if err := s.Put(t.Context(), []timeline.Placed{placed(p, 1, "a", nil)}); !errors.As(err, new(*timeline.PutError)) {
		t.Errorf("put: %v", err)
	}
	node.Fail(nil)
	put(t, s, placed(p, 2, "b", nil))
	if ids, _ := follow(t, s, name, begin, plenty); !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("arrived %q", ids)
	}
}

// A row of arrivals whose write returned an error may exist: later rows are written after it.
func testArrivalsUnknown(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	name := t.Name()
	p := partOf(name, 0)
	_, next := follow(t, s, name, nil, plenty)
	var all []string
	for i := range 4 {
		node.Fail(failing("INSERT", "timeline_arrivals", cqltest.AppliedTimeout, nil))
		id := fmt.Sprint("lost", i)
		if err := s.Put(t.Context(), []timeline.Placed{placed(p, 1, id, nil)}); err == nil {
			t.Error("put without an answer")
		}
		node.Fail(nil)
		put(t, s, placed(p, 2, fmt.Sprint("e", i), nil))
		var ids []string
		ids, next = follow(t, s, name, next, plenty)
		all = append(all, ids...)
	}
	for i := range 4 {
		if id := fmt.Sprint("e", i); !slices.Contains(all, id) {
			t.Errorf("%s was acknowledged and not listed: %q", id, all)
		}
	}
}

// A server may take minutes to list a new log or minute, because Cassandra is slow or the process
// was frozen, or more than an hour to write a row, when the log is not listed any more. A reader that
// begins to follow meanwhile does not know the log, and still misses nothing.
func testLogListedLate(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	for table, late := range map[string]time.Duration{"timeline_logs": 2 * time.Minute, "timeline_arrivals": logKept + time.Minute} {
		t.Run(table, func(t *testing.T) {
			name := t.Name()
			c := &testClock{at: time.Now().Add(-late)}
			shelf := func(id string) *Shelf { return openShelf(t, s.session, Options{Node: id, Now: c.now}) }
			writer, reader := shelf("writer"), shelf("reader")
			var next []byte
			node.Fail(failing("INSERT", table, nil, func(cqltest.Bound) bool {
				if next != nil {
					return false
				}
				c.add(late)
				forget := &cql.Statement{Name: "forget_logs", Text: "DELETE FROM timeline_logs USING TIMESTAMP ? WHERE timeline = ?"}
				if err := s.session.Exec(t.Context(), forget, 0, c.now().UnixMicro()-1, name); err != nil { // its time-to-live
					t.Error(err)
				}
				a, err := reader.Arrivals(t.Context(), name, nil, plenty)
				if err != nil {
					t.Error(err)
				}
				next = a.Next
				return true
			}))
			put(t, writer, placed(partOf(name, 0), 1, "a", nil))
			node.Fail(nil)
			if ids, _ := follow(t, reader, name, next, plenty); !slices.Contains(ids, "a") {
				t.Errorf("arrived %q", ids)
			}
		})
	}
}

// A forged cursor, far behind in a log without rows, is expensive at most once.
func testMadeUpCursor(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	name, now := t.Name(), s.stamp()
	if err := s.session.Exec(t.Context(), putLog, now, name, int32(1), slotOf(now), seconds(logKept)); err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	node.Fail(failing("SELECT", "timeline_arrivals", nil, func(cqltest.Bound) bool { return read.Add(1) < 0 }))
	made := cursor{made: now, logs: []place{{log: 1, number: now - (2*logKept - time.Minute).Microseconds()}}}
	_, next := follow(t, s, name, made.encode(), plenty)
	if n := read.Swap(0); n < 100 {
		t.Errorf("%d slots were read at first: the test needs another cursor", n)
	}
	_, next = follow(t, s, name, next, plenty)
	if n := read.Load(); n > 2 {
		t.Errorf("%d slots were read again", n)
	}
	put(t, s, placed(partOf(name, 0), 1, "a", nil))
	if ids, _ := follow(t, s, name, next, plenty); !slices.Equal(ids, []string{"a"}) {
		t.Errorf("arrived %q", ids)
	}
}

// If there are too many tombstones, the range is read in halves.
func testTombstones(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	p := partOf(t.Name(), 0)
	const n = 64
	var entries []timeline.Placed
	for i := range int64(n) {
		entries = append(entries, placed(p, i*1000, fmt.Sprint("e", i), nil))
	}
	put(t, s, entries...)
	var refused atomic.Int64
	node.Fail(failing("SELECT", "timeline_events", cqltest.Tombstones, func(b cqltest.Bound) bool {
		if len(b.Values) < 7 {
			return false
		}
		wide := number(b.Values[5])-number(b.Values[3]) > 20_000
		if wide {
			refused.Add(1)
		}
		return wide
	}))
	for _, d := range []timeline.Direction{timeline.Ascending, timeline.Descending} {
		out, err := s.Slice(t.Context(), p, timeline.Range{From: timeline.At(0), To: timeline.At(n * 1000)}, d, timeline.Limit{Entries: 60, Bytes: 1 << 20})
		if err != nil || len(out.Entries) != 60 || !out.More {
			t.Fatalf("%d entries, more %v, %v", len(out.Entries), out.More, err)
		}
		for i, e := range out.Entries {
			if want := map[timeline.Direction]int64{timeline.Ascending: int64(i), timeline.Descending: int64(n - 1 - i)}[d]; e.Time != want*1000 {
				t.Fatalf("%v: entry %d is of %d", d, i, e.Time)
			}
		}
	}
	if refused.Load() == 0 {
		t.Error("no statement was refused")
	}
	node.Fail(failing("SELECT", "timeline_events", cqltest.Tombstones, nil))
	if _, err := s.Slice(t.Context(), p, timeline.Range{From: timeline.At(0), To: timeline.At(9)}, timeline.Ascending, plenty); !errors.As(err, new(*cql.TombstoneError)) {
		t.Errorf("where no half can be read: %v", err)
	}
}

func number(b []byte) (n int64) {
	for _, x := range b {
		n = n<<8 | int64(x)
	}
	return n
}

// A change of layout whose answer is lost is recognised by the process that made it.
func testHistoryUnknown(t *testing.T, node *cqltest.FailingNode, s *Shelf) {
	name := t.Name()
	var calls atomic.Int64
	node.Fail(failing("UPDATE", "varve_registers", cqltest.AppliedTimeout, func(cqltest.Bound) bool { return calls.Add(1) == 1 }))
	if err := s.SetHistory(t.Context(), name, 0, timeline.History{Version: 1}); err != nil {
		t.Errorf("made at the second attempt: %v", err)
	}
	node.Fail(failing("UPDATE", "varve_registers", cqltest.AppliedTimeout, nil))
	if err := s.SetHistory(t.Context(), name, 1, timeline.History{Version: 2}); err == nil {
		t.Error("no answer came")
	}
	node.Fail(nil)
	if h, err := s.History(t.Context(), name); err != nil || h.Version != 2 {
		t.Errorf("%+v, %v", h, err)
	}
}

// Incomplete data is reported as damage, not returned as shorter data.
func testMissingPieces(t *testing.T, _ *cqltest.FailingNode, s *Shelf) {
	p := partOf(t.Name(), 0)
	put(t, s, placed(p, 1, "a", make([]byte, 2*pieceBytes)))
	st := &cql.Statement{Name: "test", Text: "DELETE FROM timeline_pieces" + ofPart + " AND time = ? AND id = ? AND piece = 1"}
	if err := s.session.Exec(t.Context(), st, s.stamp(), append(argsOf(&p), int64(1), "a")...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Slice(t.Context(), p, timeline.All(), timeline.Ascending, plenty); !errors.As(err, new(*store.CorruptionError)) {
		t.Errorf("with a piece missing: %v", err)
	}
}
