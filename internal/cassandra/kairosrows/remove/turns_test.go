package remove

import (
	"context"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/model"
	"varve/internal/store"
)

// The statements of a delete wait while this process writes samples, but no longer than the delete
// would rest, and not once it is cancelled; then it also works as fast as without samples.
func TestSamplesGoFirst(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	cancelled, cancel := context.WithCancel(b.Ctx)
	pass := &deletePass{d: b.deleter(noNodes(), time.Now), hurried: cancelled}
	pass.turns.left = time.Hour
	pass.turn(b.Ctx)
	if pass.turns.waited > 0 {
		t.Errorf("nothing is written: waited for %v", pass.turns.waited)
	}

	var once sync.Once
	held, goOn, written := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.Counts.Before = func(name string) {
		if name == "insert_sample" {
			once.Do(func() { close(held); <-goOn })
		}
	}
	go func() {
		src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime)
		written <- b.writer.WriteSource(b.Ctx, b.Stamp, src)
	}()
	<-held

	const left = 20 * time.Millisecond
	pass.turns.left = left
	r := pass.begin()
	for range 3 {
		pass.turn(b.Ctx)
	}
	if worked, took := r.worked(), time.Since(r.began); r.rested() < left || worked > took-left || pass.turns.left > 0 {
		t.Errorf("of %v, it waited for %v while samples were written and worked for %v; want a wait of %v, which is no work", took, r.rested(), worked, left)
	}

	pass.turns.left = time.Hour
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			pass.turn(b.Ctx)
			if b.writer.Writing() {
				t.Error("a statement did not wait until the samples were written")
			}
		})
	}
	close(goOn)
	waiting.Wait()
	if err := <-written; err != nil {
		t.Fatal(err)
	}

	pass.turns.left = time.Hour
	once, held, goOn = sync.Once{}, make(chan struct{}), make(chan struct{})
	go func() {
		src := new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("m"), "k", "v"), 0, keyspacetest.SomeTime+1)
		written <- b.writer.WriteSource(b.Ctx, b.Stamp+1, src)
	}()
	<-held
	waiting.Go(func() { pass.turn(b.Ctx) })
	cancel()
	waiting.Wait()
	close(goOn)
	if err := <-written; err != nil {
		t.Fatal(err)
	}

	pass.pace = restingPace(32)
	pass.pace.wide, pass.pace.worked = 32, paceRestless
	pass.pace.share(true)
	if err := pass.rest(b.Ctx, round{&pass.turns, time.Now().Add(-time.Minute), pass.turns.waited}); err != nil {
		t.Fatal(err)
	}
	if pass.pace.wide != 32 {
		t.Errorf("a delete that is to end soon works on %d rows at once, and could on 32", pass.pace.wide)
	}
}

// A delete also rests while it removes index rows, and says meanwhile that it goes on: a job that stores
// no progress for jobSilence counts as abandoned.
func TestUnindexingRests(t *testing.T) {
	b := newBench(t, schema.DefaultConfig(), write.DefaultConfig(), "")
	now := time.Now()
	b.writer = b.newWriter(write.DefaultConfig(), func() time.Time { return now }) // samples were always written just now
	d := b.deleter(noNodes(), time.Now)
	metric := b.Name("m")
	fillCities(b, metric, 100)
	b.write(new(keyspacetest.Memory).Longs(keyspacetest.LongSeries(b.Name("other"), "k", "v"), 0, keyspacetest.SomeTime))
	const slow = 500 * time.Millisecond
	var once sync.Once
	before, unindexes, said := 0.0, false, 0
	b.Counts.Before = func(name string) {
		if name == deleteTagRows.Name || name == deleteTagRow.Name {
			once.Do(func() {
				before, unindexes = valueOf(t, d.metrics.rested), true
				time.Sleep(slow)
			})
		}
	}
	pace := restingPace(d.cfg.Parallel)
	pace.worked = paceRestless
	del := store.Deletion{Metric: metric, Range: model.AllTime}
	plans, err := d.plan(b.Ctx, []store.Deletion{del})
	if err != nil {
		t.Fatal(err)
	}
	progress := func(int64, int) error {
		if unindexes {
			said++
		}
		return nil
	}
	if err := d.run(b.Ctx, del, b.Stamp, pace, context.Background(), plans[0].steps, progress); err != nil {
		t.Fatal(err)
	}
	if s := valueOf(t, d.metrics.rested) - before; s < paceRests*slow.Seconds() {
		t.Errorf("a delete that removed index rows for %v rested for %v s", slow, s)
	}
	if said == 0 {
		t.Error("it reports nothing while it removes index rows")
	}
}
