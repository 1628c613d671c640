package query

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// A query that has run for query.timeout ends with that as its cause.
func TestTimeout(t *testing.T) {
	config := DefaultConfig()
	config.Timeout = time.Nanosecond
	f := newFixture(t, config)
	f.put("m", model.MustTags("h", "1"), sample{1, 1})
	run, err := f.Begin(t.Context(), Request{})
	if err == nil { // else the time was over before the store was open
		defer run.Close(nil)
		<-run.Context().Done()
		l := run.Lease()
		_, err = run.Collect(store.Selection{Metric: "m", Range: model.AllTime}, &l, nil)
	}
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Limit != "query.timeout" {
		t.Errorf("%v", err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent, config.MaxQueued = 1, 1
		f := newFixture(t, config)
		run, err := f.Begin(context.Background(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		waited := make(chan error)
		go func() {
			_, err := f.Begin(context.Background(), Request{})
			waited <- err
		}()
		synctest.Wait()
		if n := f.Queued(); n != 1 {
			t.Fatalf("%d queries wait", n)
		}
		var limit *store.LimitError
		if _, err := f.Begin(context.Background(), Request{}); !errors.As(err, &limit) || !limit.Busy || limit.Limit != "waiting queries" {
			t.Errorf("queue full: %v", err)
		}
		if err := <-waited; !errors.As(err, &limit) || !limit.Busy || limit.Limit != "query.max_concurrent" || time.Since(began) != config.MaxWait {
			t.Errorf("waited %v: %v", time.Since(began), err)
		}
		run.Close(nil)
		if run, err = f.Begin(context.Background(), Request{}); err != nil {
			t.Fatal(err)
		}
		run.Close(nil)
		if n := counted(t, f.metrics.queries.WithLabelValues("busy")); n != 2 {
			t.Errorf("%v busy", n)
		}
	})
}

// TestSendersTakeTurnsForSlots: a query waits behind one query of each other sender, not behind all of
// one that sends many; and if the line is full, the sender with the most queries in it gives way.
func TestSendersTakeTurnsForSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent, config.MaxQueued = 1, 4
		f := newFixture(t, config)
		run, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		ask := func(name, client string) {
			all.Go(func() {
				s, err := f.Begin(t.Context(), Request{Client: client})
				mu.Lock()
				defer mu.Unlock()
				var limit *store.LimitError
				switch {
				case err == nil:
					order = append(order, name)
					s.Close(nil)
				case errors.As(err, &limit) && limit.Busy && limit.Limit == "waiting queries" && limit.Need == 5:
					order = append(order, "no "+name)
				default:
					t.Error(name, err)
				}
			})
			synctest.Wait()
		}
		for _, name := range []string{"a1", "a2", "a3"} {
			ask(name, "192.0.2.1:"+name[1:])
		}
		ask("b1", "192.0.2.2:1")
		ask("a4", "192.0.2.1:4") // the line is full
		ask("b2", "192.0.2.2:2") // instead of a3: there are two of each now
		ask("b3", "192.0.2.2:3")
		ask("c1", "[2001:db8::1]:1") // instead of b2, which came last of those that may go
		run.Close(nil)
		all.Wait()
		if got, want := strings.Join(order, " "), "no a4 no a3 no b3 no b2 a1 b1 c1 a2"; got != want {
			t.Errorf("the order is %s, want %s", got, want)
		}
		if n := f.Queued(); n != 0 {
			t.Errorf("%d queries wait at the end", n)
		}
	})
}

// TestReserve: if all places in the lines are those of one sender's queries that have begun, of which none is
// refused any more, an eighth as many queries of others may wait beyond the bound.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent, config.MaxQueued = 1, 16
		f := newFixture(t, config)
		var all sync.WaitGroup
		var end atomic.Bool
		crowd := func() {
			s, err := f.Begin(t.Context(), Request{Client: "192.0.2.1:1"})
			if err != nil {
				t.Error(err)
				return
			}
			for err == nil && !end.Load() {
				time.Sleep(turnTime)
				err = s.Yield()
			}
			s.Close(err)
		}
		for range config.MaxQueued + 1 {
			all.Go(crowd)
			time.Sleep(2 * turnTime)
			synctest.Wait() // a turn may end at the same moment
		}
		if n, begun := f.Queued(), len(f.Running()); n != config.MaxQueued || begun != config.MaxQueued+1 {
			t.Fatalf("%d queries wait, and %d have begun", n, begun)
		}
		var served, refused atomic.Int64
		ask := func(client string) {
			all.Go(func() {
				s, err := f.Begin(t.Context(), Request{Client: client})
				var limit *store.LimitError
				switch {
				case err == nil:
					served.Add(1)
					s.Close(nil)
				case errors.As(err, &limit) && limit.Busy && limit.Limit == "waiting queries" && limit.Max == 16:
					refused.Add(1)
				default:
					t.Error(client, err)
				}
			})
			synctest.Wait()
		}
		ask("192.0.2.1:2") // one more of the crowd
		if n := refused.Load(); n != 1 {
			t.Errorf("%d of the crowd were refused", n)
		}
		ask("192.0.2.2:1")
		ask("192.0.2.3:1")
		if n := refused.Load(); n != 1 {
			t.Errorf("%d of two others were refused", n-1)
		}
		ask("192.0.2.4:1")
		if n := refused.Load(); n != 2 {
			t.Errorf("%d were refused once the reserve was full", n-1)
		}
		end.Store(true)
		all.Wait()
		if n := served.Load(); n != 2 || f.Queued() != 0 {
			t.Errorf("%d were served, %d wait at the end", n, f.Queued())
		}
	})
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	err := Config{MaxQueued: -1}.Validate()
	for _, key := range []string{"max_series", "max_samples", "max_memory", "timeout", "max_concurrent", "max_queued", "max_wait", "workers"} {
		if err == nil || !strings.Contains(err.Error(), "query."+key) {
			t.Errorf("%s is not named in %v", key, err)
		}
	}
}

// An Engine computes with as many goroutines as there are processors for, and leaves that number as it is.
func TestWorkersOfTheMachine(t *testing.T) {
	had := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(had)
	for workers, want := range map[int]int{2: 2, 3: 3, 4: 3} {
		config := DefaultConfig()
		config.Workers = workers
		if f := newFixture(t, config); f.workers != want || runtime.GOMAXPROCS(0) != 3 {
			t.Errorf("%d workers, want %d; %d processors, want 3", f.workers, want, runtime.GOMAXPROCS(0))
		}
	}
}
