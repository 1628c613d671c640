package cassandra

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
)

// expiredAt is the time of samples that have expired if they live for a second.
const expiredAt = 1501672887988

// putGone appends samples that have expired, as time=value. The pipeline would refuse
// them: here they stand for those that expire while they wait.
func putGone(t *testing.T, s *Store, host string, samples map[int64]int64) {
	t.Helper()
	ref, err := s.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("host", host), Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	for ms, v := range samples {
		b.AddLong(ref, ms, v, 1)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// An overwritten value does not reappear when the value that replaced it expires before it is
// written to Cassandra: not while that waits, and not later.
func TestOverwrittenByWhatExpiresOnItsWay(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	beside := ready(t, openStore(t, c, Options{Node: "beside"}))
	fs := vfs.NewMem()
	open := func() *Store {
		s, err := c.open(fs, Options{Node: "a"})
		if err != nil {
			t.Fatal(err)
		}
		return ready(t, s)
	}
	s := open()
	defer func() { s.Close() }()
	const at = expiredAt
	before := map[int64]int64{}
	for i := range int64(6) {
		before[at+i] = i
	}
	put(t, s, "m", "x", before)
	put(t, s, "m", "y", before)
	put(t, s, "m", "only", map[int64]int64{at: 1})
	flushed(t, s)

	putGone(t, s, "x", map[int64]int64{at + 1: 11, at + 2: 12, at + 5: 15})
	putGone(t, s, "only", map[int64]int64{at: 2})
	putGone(t, s, "new", map[int64]int64{at: 1})
	put(t, s, "m", "x", map[int64]int64{at + 2: 22}) // within the same generation
	put(t, s, "m", "y", map[int64]int64{at + 3: 33})
	putGone(t, s, "y", map[int64]int64{at + 3: 43})

	x := fmt.Sprintf("x: %d=0 %d=22 %d=3 %d=4", at, at+2, at+3, at+4)
	y := fmt.Sprintf("y: %d=0 %d=1 %d=2 %d=4 %d=5", at, at+1, at+2, at+4, at+5)
	check := func(when string, s *Store) {
		t.Helper()
		same(t, when, answer(t, s, "m", all()), x, y)
		limited := func(limit int, descending bool, want ...string) {
			t.Helper()
			o := store.ReadOptions{Range: model.TimeRange{StartMS: at + 1, EndMS: at + 5}, Limit: limit, Descending: descending}
			same(t, fmt.Sprintf("%s, limit %d, descending %v", when, limit, descending), answer(t, s, "m", o), want...)
		}
		limited(1, false, fmt.Sprintf("x: %d=22", at+2), fmt.Sprintf("y: %d=1", at+1))
		limited(2, true, fmt.Sprintf("x: %d=4 %d=3", at+4, at+3), fmt.Sprintf("y: %d=5 %d=4", at+5, at+4))
	}
	check("while it waits", s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	check("after a start", s)
	flushed(t, s)
	check("drained", s)
	check("drained, beside", beside)

	put(t, s, "m", "only", map[int64]int64{at: 3}) // after what is gone
	for _, drain := range []bool{false, true} {
		if drain {
			flushed(t, s)
		}
		same(t, "written again", answer(t, s, "m", all(), model.Matcher{Tag: "host", Values: []string{"only"}}), fmt.Sprintf("only: %d=3", at))
	}
}

// A sample that expires while it waits hides samples that another node acknowledged earlier,
// even if they are written later, and none that were acknowledged after it.
func TestExpiredOnItsWayBesideAnotherNode(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	a := ready(t, openStore(t, c, Options{Node: "a"}))
	b := ready(t, openStore(t, c, Options{Node: "b"}))
	const at = expiredAt
	put(t, b, "m", "x", map[int64]int64{at: 1, at + 1: 1})
	laterOn()
	putGone(t, a, "x", map[int64]int64{at: 2, at + 2: 2})
	laterOn()
	put(t, b, "m", "x", map[int64]int64{at + 2: 3})
	flushed(t, a)
	flushed(t, b)
	for _, s := range []*Store{a, b} {
		same(t, "after both have drained", answer(t, s, "m", all()), fmt.Sprintf("x: %d=1 %d=3", at+1, at+2))
	}
}

// A delete between a value and the one that expires on its way, or after both, leaves
// neither, and nothing is hidden that comes later.
func TestExpiredOnItsWayAroundDelete(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	const at = expiredAt
	remove := func() {
		t.Helper()
		if err := s.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "m", "x", map[int64]int64{at: 1})
	putGone(t, s, "x", map[int64]int64{at + 1: 1})
	remove()
	putGone(t, s, "x", map[int64]int64{at: 2})
	same(t, "while it waits", answer(t, s, "m", all()))
	flushed(t, s)
	same(t, "drained", answer(t, s, "m", all()))
	remove()
	put(t, s, "m", "x", map[int64]int64{at: 3, at + 1: 3})
	flushed(t, s)
	same(t, "written later", answer(t, s, "m", all()), fmt.Sprintf("x: %d=3 %d=3", at, at+1))
}
