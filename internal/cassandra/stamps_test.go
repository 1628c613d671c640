package cassandra

import (
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// laterOn returns when the clock shows another time.
func laterOn() {
	for at := time.Now().UnixMilli() + 2; time.Now().UnixMilli() < at; time.Sleep(time.Millisecond) {
	}
}

// Two servers on one keyspace: a acknowledges a value, later b another one of the
// same time, and hands it over first.
func TestLaterWriteWins(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	a := ready(t, openStore(t, c, Options{Node: "a"}))
	b := ready(t, openStore(t, c, Options{Node: "b"}))
	const at = 1501672887988
	put(t, a, "m", "x", map[int64]int64{at: 1, at + 1: 1})
	laterOn()
	put(t, b, "m", "x", map[int64]int64{at: 2, at + 2: 2})
	laterOn()
	put(t, a, "m", "x", map[int64]int64{at + 2: 3})
	flushed(t, b)
	flushed(t, a)
	same(t, "the last write of each time", answer(t, b, "m", all()), "x: 1501672887988=2 1501672887989=1 1501672887990=3")
}

// A sample that one server acknowledged before another one deletes it stays
// deleted, though it reaches Cassandra later.
func TestDeletedBeforeDrained(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	a := ready(t, openStore(t, c, Options{Node: "a"}))
	b := ready(t, openStore(t, c, Options{Node: "b"}))
	const at = 1501672887988
	put(t, b, "m", "x", map[int64]int64{at - 1: 0})
	flushed(t, b) // a delete finds rows that are in Cassandra
	put(t, a, "m", "x", map[int64]int64{at: 1})
	laterOn()
	if err := b.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	laterOn()
	put(t, a, "m", "x", map[int64]int64{at + 1: 2})
	flushed(t, a)
	same(t, "what was written after the delete", answer(t, b, "m", all()), "x: 1501672887989=2")
}
