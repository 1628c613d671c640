package rollup

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkPutBesideMany checks a task of one query beside 300 tasks of 200.
func BenchmarkPutBesideMany(b *testing.B) {
	const tasks = 300
	x := newIndex()
	for i := range tasks {
		t := manyTask(fmt.Sprint("t", i), maxMetrics)
		x.set(t.id, t)
	}
	one := manyTask("one", 1)
	b.ReportAllocs()
	for b.Loop() {
		former := x.set(one.id, one)
		if err := x.checkReaders(one, former); err != nil {
			b.Fatal(err)
		}
		if err := x.checkLoops(one); err != nil {
			b.Fatal(err)
		}
		x.set(one.id, nil)
	}
}

func manyTask(id string, n int) *task {
	t := &task{id: id, rollups: make([]rollup, n)}
	for i := range t.rollups {
		from, to := fmt.Sprintf("%s.%d.%s", id, i, strings.Repeat("x", 20)), fmt.Sprintf("%s.%d.hourly", id, i)
		t.rollups[i].flows = []flow{{context: "c", from: from, to: to, tags: map[string][]string{}}}
		t.rollups[i].sources = []source{{metric: from, key: from}}
	}
	return t
}
