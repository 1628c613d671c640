package downsample

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"varve/internal/store"
)

// watchMany watches tasks of n targets each. Target k of each task reads the metric that metric
// returns.
func watchMany(t *testing.T, l *LateList, tasks, n int, metric func(task, k int) string) {
	t.Helper()
	for i := range tasks {
		if _, err := l.Watch(t.Context(), manyTargets(i, n, metric), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func manyTargets(i, n int, metric func(task, k int) string) Task {
	task := Task{ID: fmt.Sprint(i), JSON: "{}", Targets: map[string]Target{}}
	for k := range n {
		task.Targets[fmt.Sprint(k)] = Target{Metric: metric(i, k), Grid: hours{}}
	}
	return task
}

// What it costs to watch a task or to forget it does not depend on the other tasks.
func TestOneTaskAmongMany(t *testing.T) {
	l := unwatched(keepNothing)
	watchMany(t, l, 100, 100, func(i, k int) string { return fmt.Sprint(i, "-", k) })
	one := manyTargets(1000, 1, func(int, int) string { return "one" })
	allocs := testing.AllocsPerRun(5, func() {
		if fresh, err := l.Watch(t.Context(), one, nil); err != nil || !fresh {
			t.Error(fresh, err)
		}
		l.Forget(one.ID)
	})
	if allocs > 100 {
		t.Errorf("%v allocations beside 10,000 targets", allocs)
	}
	if len(l.sources) != 10_000 || l.watched != 10_000 {
		t.Errorf("%d sources, %d targets", len(l.sources), l.watched)
	}
}

// Targets that a changed task no longer has count no more, and their metric is no longer watched.
func TestTaskWithFewerTargets(t *testing.T) {
	l := unwatched(keepNothing)
	for _, targets := range []int{5, 2} {
		task := manyTargets(0, targets, func(_, k int) string { return fmt.Sprint(k) })
		if _, err := l.Watch(t.Context(), task, nil); err != nil {
			t.Fatal(err)
		}
		if len(l.sources) != targets || l.watched != targets {
			t.Errorf("%d sources, %d targets, want %d", len(l.sources), l.watched, targets)
		}
	}
}

// A batch of late samples takes memory for some notes, and time for some, however many targets
// read its metric.
func TestNotesOfManyTargets(t *testing.T) {
	const tasks, each, samples = 200, 200, 20
	l := unwatched(keepNothing)
	watchMany(t, l, tasks, each, func(int, int) string { return "src" })
	l.Resolved(1, 1, "src")
	b := store.Batch{Epoch: 1}
	for i := range int64(samples) {
		b.AddLong(1, i*3*hourMS, 1, 0) // no two in neighbouring hours
	}
	notes, _ := l.notes(&b, 0, time.Now().UnixMilli())
	if len(notes) != tasks*each {
		t.Fatalf("%d notes of %d targets", len(notes), tasks*each)
	}
	for _, n := range notes {
		if n.span != (Span{0, (3*(samples-1) + 1) * hourMS}) {
			t.Fatalf("noted %v", n.span)
		}
	}
}

// All targets together have a bounded number of spans.
func TestSpansOfManyTargets(t *testing.T) {
	for _, tc := range []struct{ targets, most int }{{1, 100}, {1000, 100}, {spansOfAll / 20, 20}, {spansOfAll, spansLeast}} {
		l := unwatched(keepNothing)
		l.watched = tc.targets
		if got := l.mostLocked(); got != tc.most {
			t.Errorf("%d targets may have %d spans each, want %d", tc.targets, got, tc.most)
		}
	}
}

// Spans of targets that a task no longer has concern all targets that it has. What they take is not the
// product of both numbers.
func TestSpansOfManyFormerTargets(t *testing.T) {
	const former, spans, targets = 100, 100, 100
	late := map[string]Spans{}
	for i := range int64(former) {
		var of Spans
		for k := range int64(spans) {
			of = append(of, Span{2 * (i*spans + k) * hourMS, (2*(i*spans+k) + 1) * hourMS})
		}
		late[fmt.Sprint("former", i)] = of
	}
	src := func(int, int) string { return "src" }
	l := unwatched(keepNothing)
	watchMany(t, l, 1, targets, src)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, l.Include(t.Context(), "0", late))
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 20<<20 {
		t.Errorf("%d spans handed over to %d targets took %d bytes", former*spans, targets, bytes)
	}
	restarted := unwatched(keepNothing)
	if _, err := restarted.Watch(t.Context(), manyTargets(0, targets, src), late); err != nil {
		t.Fatal(err)
	}
	for what, l := range map[string]*LateList{"handed over": l, "stored": restarted} {
		for name := range targets {
			taken := l.Take("0", fmt.Sprint(name))
			for _, of := range late {
				for _, s := range of {
					if !slices.ContainsFunc(taken, func(o Span) bool { return o.FromMS <= s.FromMS && s.UntilMS <= o.UntilMS }) {
						t.Fatalf("%s: target %d lacks %v", what, name, s)
					}
				}
			}
		}
	}
}
