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
	const elsewhen = at + 100*86_400_000 // another row
	put(t, b, "m", "x", map[int64]int64{at - 1: 0})
	flushed(t, b)
	put(t, a, "m", "x", map[int64]int64{at: 1, elsewhen: 1})
	put(t, a, "m", "y", map[int64]int64{at: 1, at + 2: 1}) // whose rows nobody has written yet
	put(t, a, "m", "z", map[int64]int64{at: 1})
	laterOn()
	for _, host := range []string{"x", "y"} {
		if err := b.Delete(t.Context(), store.Deletion{Metric: "m", Matchers: model.Matchers([]model.Tag{{Name: "host", Value: host}}), Range: model.AllTime}); err != nil {
			t.Fatal(err)
		}
	}
	laterOn()
	put(t, a, "m", "x", map[int64]int64{at + 1: 2})
	put(t, a, "m", "y", map[int64]int64{at + 2: 2})
	flushed(t, a)
	same(t, "what was written after the delete, or not deleted", answer(t, b, "m", all()),
		"x: 1501672887989=2", "y: 1501672887990=2", "z: 1501672887988=1")
	put(t, a, "m", "y", map[int64]int64{at: 3})
	flushed(t, a)
	same(t, "after another generation", answer(t, b, "m", all()),
		"x: 1501672887989=2", "y: 1501672887988=3 1501672887990=2", "z: 1501672887988=1")
}

// A delete that finds nothing in Cassandra is made by the node that has the samples.
func TestDeletedBeforeAnythingWasWritten(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	a := ready(t, openStore(t, c, Options{Node: "a"}))
	b := ready(t, openStore(t, c, Options{Node: "b"}))
	put(t, a, "m", "x", map[int64]int64{1501672887988: 1})
	laterOn()
	if err := b.Delete(t.Context(), store.Deletion{Metric: "m", Range: model.AllTime}); err != nil {
		t.Fatal(err)
	}
	flushed(t, a)
	same(t, "after the delete", answer(t, b, "m", all()))
	v, err := b.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if names, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames}); err != nil || len(names) != 0 {
		t.Errorf("names %v, %v", names, err)
	}
}
