package query

import (
	"context"
	"errors"
	"testing"
	"time"

	"varve/internal/store"
)

// begin starts a query that ends as soon as it has a place, and waits until it
// stands in line. The channel gets the error of the query's start.
func (f *fixture) begin() chan error {
	done := make(chan error, 1)
	waiting := f.Queued()
	go func() {
		run, err := f.Start(context.Background(), Request{})
		if err == nil {
			run.Close(nil)
		}
		done <- err
	}()
	for f.Queued() == waiting && len(done) == 0 {
		time.Sleep(time.Millisecond)
	}
	return done
}

// A query that has had its turn lets a waiting query in, and continues when that has
// had its turn.
func TestYield(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.TotalMemory = 1, 4<<20
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := f.begin(), f.begin()
	if run.turn = time.Now(); run.Yield() != nil || len(first) > 0 {
		t.Error("a turn ended as it began")
	}
	run.turn = time.Time{}
	if err := f.pool.acquire(context.Background(), f.pool.max*3/4); err != nil {
		t.Fatal(err)
	}
	if run.Yield() != nil || len(first) > 0 {
		t.Error("others began although memory is short")
	}
	f.pool.release(f.pool.max * 3 / 4)
	if err := run.Yield(); err != nil { // returns when the first one has had its turn
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if run.outside || f.places.inUse() != 1 || f.Queued() != 1 {
		t.Errorf("outside %v, %d places taken, %d wait", run.outside, f.places.inUse(), f.Queued())
	}
	run.Close(nil)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// A query whose client does not read gives its place up, and takes one again when
// the client reads.
func TestAside(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	other := f.begin()
	if err := run.Aside(func() error { return <-other }); err != nil {
		t.Fatal(err)
	}
	if run.outside || f.places.inUse() != 1 {
		t.Errorf("outside %v, %d places taken", run.outside, f.places.inUse())
	}
	gone := errors.New("connection reset")
	other = f.begin()
	if err := run.Aside(func() error { <-other; return gone }); err != gone || !run.outside {
		t.Errorf("%v", err)
	}
	run.Close(gone)
	if n := f.places.inUse(); n != 0 {
		t.Errorf("%d places taken by nobody", n)
	}
}

// The end of a query ends its wait for another turn.
func TestWaitForATurnEnds(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.Timeout = 1, 30*time.Millisecond
	f := newFixture(t, config)
	run, err := f.Start(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	var keeps *Run
	err = run.Aside(func() error {
		keeps, err = f.Start(context.Background(), Request{})
		return err
	})
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Limit != "query.timeout" {
		t.Errorf("%v", err)
	}
	run.Close(err)
	keeps.Close(nil)
	if n := f.places.inUse() + f.Queued(); n != 0 {
		t.Errorf("%d places are taken or waited for", n)
	}
}
