package query

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/congestion"
	"varve/internal/model"
	"varve/internal/store"
)

// begin starts a query that ends as soon as it has a slot, and waits until it
// stands in line. The channel gets the error of the query's start.
func (f *fixture) begin() chan error {
	done := make(chan error, 1)
	inLine := func() int {
		f.slots.mu.Lock()
		defer f.slots.mu.Unlock()
		return len(f.slots.fresh.waiters)
	}
	waiting := inLine()
	go func() {
		run, err := f.Begin(context.Background(), Request{})
		if err == nil {
			run.Close(nil)
		}
		done <- err
	}()
	for inLine() == waiting && len(done) == 0 { // it counts as queued a moment before
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
	run, err := f.Begin(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	first, second := f.begin(), f.begin()
	if run.turn = time.Now().Add(time.Hour); run.Yield() != nil || len(first) > 0 { // on a busy machine twenty milliseconds are over soon
		t.Error("a turn ended as it began")
	}
	run.turn = time.Time{}
	if err := f.pool.acquire(context.Background(), want{bytes: f.pool.max * 3 / 4}); err != nil {
		t.Fatal(err)
	}
	f.slots.stand(netip.Prefix{}, run.id+1, 0, true) // as a query that has begun
	if run.Yield() != nil || len(first) > 0 {
		t.Error("others began although memory is short, and one waits for its next turn")
	}
	f.slots.begun.waiters, run.turn = nil, time.Time{}
	w := f.slots.stand(netip.Prefix{}, 0, 0, false) // as one that waits for its second turn
	if run.Yield() != nil || len(first) > 0 {
		t.Error("others began although memory is short, and one waits for its second turn")
	}
	f.slots.fresh.waiters = slices.DeleteFunc(f.slots.fresh.waiters, func(x *waiter) bool { return x == w })
	run.turn = time.Time{}
	if err := run.Yield(); err != nil { // returns when the first one has had its turn
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if run.outside || f.slots.inUse() != 1 || f.Queued() != 1 {
		t.Errorf("outside %v, %d slots taken, %d wait", run.outside, f.slots.inUse(), f.Queued())
	}
	f.pool.release(netip.Prefix{}, f.pool.max*3/4)
	run.Close(nil)
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// Whoever waited when a turn was found to be due may have left before it is given.
func TestNobodyWaitsAnyMore(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	s, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(nil)
	s.turn = time.Time{}
	if err := s.yieldTurn(); err != nil || s.outside || f.slots.inUse() != 1 {
		t.Errorf("%v; outside %v, %d slots taken", err, s.outside, f.slots.inUse())
	}
}

// comes begins a query, and returns once it runs or waits. The test must be in a bubble.
func comes(t *testing.T, f *fixture) chan *Session {
	began := make(chan *Session, 1)
	go func() {
		s, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Error(err)
		}
		began <- s
	}()
	synctest.Wait()
	return began
}

// For its second turn a query stands where those stand that come, not behind all that have
// begun before it: a short one may have had no processor in its first.
func TestSecondTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent = 2
		f := newFixture(t, config)
		comes := func() chan *Session { return comes(t, f) }
		long, short := <-comes(), <-comes()
		long.again = true
		long.turn, short.turn = time.Time{}, time.Time{}
		first := comes()
		longComputes := yield(long)
		second := comes()
		shortComputes := yield(short)
		third := comes()
		if longComputes() || shortComputes() {
			t.Fatal("more queries compute than may")
		}
		(<-first).Close(nil)
		(<-second).Close(nil)
		if !longComputes() || !shortComputes() || len(third) > 0 {
			t.Errorf("the long query computes: %v, the short one: %v, one that came later: %v", longComputes(), shortComputes(), len(third) > 0)
		}
		long.Close(nil)
		(<-third).Close(nil)
		short.Close(nil)
	})
}

// A query that has computed for long lets one go first that has begun after it and needs another turn.
// One that has not computed for long keeps its slot. Other slots go to the two in turn.
func TestThirdTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent = 1
		f := newFixture(t, config)
		comes := func() chan *Session { return comes(t, f) }
		compute := func(s *Session, d time.Duration) (computes func() bool) { // and then offer the slot
			time.Sleep(d)
			return yield(s)
		}
		long := <-comes()
		long.again = true // it has had its second turn
		waits := comes()
		longComputes := compute(long, longTime)
		short := <-waits
		short.again = true
		expect := func(step string, longWant, shortWant bool, shortComputes func() bool) {
			t.Helper()
			if is, isShort := longComputes(), shortComputes(); is != longWant || isShort != shortWant {
				t.Fatalf("%s: the long query computes: %v, the short one: %v", step, is, isShort)
			}
		}
		fresh := comes()
		shortComputes := compute(short, turnTime)
		(<-fresh).Close(nil)
		expect("after a fresh query", false, true, shortComputes)
		fresh = comes()
		shortComputes = compute(short, turnTime)
		(<-fresh).Close(nil)
		expect("after another one", true, false, shortComputes)
		longComputes = compute(long, turnTime)
		expect("after another turn of the long one", false, true, shortComputes)
		shortComputes = compute(short, turnTime)
		expect("after another turn of the short one", false, true, shortComputes)
		short.Close(nil)
		if !longComputes() {
			t.Error("the long query does not go on")
		}
		long.Close(nil)
	})
}

// A short answer is complete without another turn.
func TestShortAnswer(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	f := newFixture(t, config)
	run, err := f.Begin(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	other := f.begin()
	w := run.Writer(io.Discard)
	run.turn = time.Time{}
	if _, err := w.Write(make([]byte, turnBytes-1)); err != nil || len(other) > 0 {
		t.Errorf("%v; another query had a turn: %v", err, len(other) > 0)
	}
	if _, err := w.Write([]byte{0}); err != nil {
		t.Error(err)
	}
	if err := <-other; err != nil { // it had a turn meanwhile
		t.Error(err)
	}
	run.Close(nil)
}

// While there are others, a query lets every goroutine run that is ready to, long before Go's
// scheduler would.
func TestBreathe(t *testing.T) {
	for name, slots := range map[string]int{"one waits": 1, "one computes": 2} {
		t.Run(name, func(t *testing.T) { breathe(t, slots) })
	}
}

func breathe(t *testing.T, slots int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	config := DefaultConfig()
	config.MaxConcurrent = slots
	f := newFixture(t, config)
	s, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		other, err := f.Begin(context.Background(), Request{})
		if err == nil {
			<-end
			other.Close(nil)
		}
		ended <- err
	}()
	for f.Queued()+len(f.Running()) < 2 {
		time.Sleep(time.Millisecond)
	}
	var ran atomic.Bool
	s.turn = time.Now().Add(time.Hour) // it ends not even on a busy machine: the other query would keep the slot
	go ran.Store(true)
	for range 3 { // Go's scheduler may resume the query before the other goroutine, though seldom
		for began := time.Now(); time.Since(began) <= sliceTime; {
		}
		if err := s.Yield(); err != nil {
			t.Fatal(err)
		}
	}
	if !ran.Load() {
		t.Error("a goroutine that is ready waits for a query, as there is one processor")
	}
	s.Close(nil)
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A session lets others have their turn where it selects, collects and sorts.
func TestYieldInEachStage(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	f := newFixture(t, config)
	f.put("m", model.MustTags("h", "a"), sample{1, 1})
	var series []store.Series
	for i := range 2 * lookEvery {
		series = append(series, store.Series{Series: model.Series{Metric: "m", Tags: model.MustTags("h", strconv.Itoa(-i)), Type: model.TypeLong}})
	}
	for stage, work := range map[string]func(*Session) error{
		"select": func(s *Session) error {
			_, err := s.Any(store.Selection{Metric: "m", Range: model.AllTime}, func(model.Series) bool { return false })
			return err
		},
		"collect": func(s *Session) error {
			l := s.Lease()
			_, err := s.Collect(store.Selection{Metric: "m", Range: model.AllTime}, &l, nil)
			return err
		},
		"tags": func(s *Session) error {
			l := s.Lease()
			c := tagCollector{ctx: s.ctx, lease: &l, session: s}
			for _, one := range series {
				if err := c.add(one.Tags); err != nil {
					return err
				}
			}
			_, err := c.result()
			return err
		},
		"sort": func(s *Session) error {
			return SortFunc(s, slices.Clone(series), func(a, b store.Series) int { return a.Compare(b.Series) })
		},
		"names": func(s *Session) error {
			_, _, err := s.NamesPage(store.NamesQuery{Kind: store.MetricNames, Limit: 1})
			return err
		},
		"encode": func(s *Session) error { _, err := s.Writer(io.Discard).Write(make([]byte, turnBytes)); return err },
		"parallel work": func(s *Session) error {
			return s.Parallel(10, "work", func(int) (bool, error) { return true, nil })
		},
	} {
		s, err := f.Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		other := f.begin()
		s.turn = time.Time{}
		if err := work(s); err != nil {
			t.Errorf("%s: %v", stage, err)
		}
		if f.lastID.Load() == s.id {
			t.Errorf("%s: no other query had a turn", stage)
		}
		s.Close(nil)
		if err := <-other; err != nil {
			t.Errorf("%s: %v", stage, err)
		}
		if f.slots.inUse() != 0 || f.Queued() != 0 {
			t.Errorf("%s: %d slots taken, %d wait", stage, f.slots.inUse(), f.Queued())
		}
	}
}

// A query whose client does not read gives its slot up, and takes one again when
// the client reads.
func TestAside(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	f := newFixture(t, config)
	run, err := f.Begin(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	other := f.begin()
	if err := run.Aside(func() error { return <-other }); err != nil {
		t.Fatal(err)
	}
	if run.outside || f.slots.inUse() != 1 {
		t.Errorf("outside %v, %d slots taken", run.outside, f.slots.inUse())
	}
	gone := errors.New("connection reset")
	other = f.begin()
	if err := run.Aside(func() error { <-other; return gone }); err != gone || !run.outside {
		t.Errorf("%v", err)
	}
	run.Close(gone)
	if n := f.slots.inUse(); n != 0 {
		t.Errorf("%d slots taken by nobody", n)
	}
}

// What a query has computed also counts if it loses its slot to a client that reads slowly: a client
// could let its queries go first otherwise.
func TestSlowClientOfALongQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := DefaultConfig()
		config.MaxConcurrent = 1
		f := newFixture(t, config)
		begin := func() *Session {
			s, err := f.Begin(t.Context(), Request{})
			if err != nil {
				t.Fatal(err)
			}
			s.again = true // it has had its second turn
			return s
		}
		long := begin()
		time.Sleep(longTime)
		reads, done := make(chan struct{}), make(chan error)
		go func() {
			done <- long.Aside(func() error { <-reads; return nil })
			long.Close(nil)
		}()
		other := begin()
		close(reads)
		synctest.Wait()
		time.Sleep(longTime)
		if computes := yield(other); !computes() || len(done) > 0 {
			t.Error("a long query lets another long one go first")
		}
		other.Close(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The end of a query ends its wait for another turn.
func TestWaitForATurnEnds(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent, config.Timeout = 1, 30*time.Millisecond
	f := newFixture(t, config)
	run, err := f.Begin(context.Background(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	var keeps *Session
	err = run.Aside(func() error {
		keeps, err = f.Begin(context.Background(), Request{})
		return err
	})
	var limit *store.LimitError
	if !errors.As(err, &limit) || limit.Limit != "query.timeout" {
		t.Errorf("%v", err)
	}
	run.Close(err)
	keeps.Close(nil)
	if n := f.slots.inUse() + f.Queued(); n != 0 {
		t.Errorf("%d slots are taken or waited for", n)
	}
}

// The goroutines of all queries together are bounded: a query uses several while they are
// left, and its own alone while other queries compute.
func TestGoroutinesOfAllQueries(t *testing.T) {
	config := DefaultConfig()
	config.MaxConcurrent = 2
	f := newFixture(t, config)
	f.workers = 2
	s, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(nil)
	both := make(chan int)
	if err := s.Parallel(2, "meet", func(int) (bool, error) {
		select {
		case both <- 0:
		case <-both:
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	other, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int64
	if err := s.Parallel(100, "work", func(int) (bool, error) {
		if n := inside.Add(1); n > 1 {
			t.Errorf("%d goroutines of one query compute beside another query", n)
		}
		runtime.Gosched()
		inside.Add(-1)
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	other.Close(nil)
	if n := s.help(9); n != 1 {
		t.Errorf("%d goroutines help, want 1", n)
	}
}

// inUse returns the number of taken slots.
func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// A query keeps its slot if those that wait may not have it, or nobody stands in line yet.
func TestNobodyTakesTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 10 * time.Second
		const waits = congestion.Patience(patience)
		for name, tc := range map[string]struct {
			patience congestion.Patience // of one that waits for its third turn; below 0: nobody waits
			mine     time.Duration       // of the query that has the slot
			most     int
			after    time.Duration // since the line was short
			keeps    bool
		}{
			"nobody waits":                      {-1, patience, 1, patience, true},
			"the line was short":                {waits, patience, 2, patience / 2, true},
			"the line is congested":             {waits, patience, 2, patience/2 + 1, false},
			"as many wait as may":               {waits, patience, 1, patience/2 + 1, true},
			"part of the answer was sent":       {waits, 0, 2, patience/2 + 1, true},
			"those that wait cannot be refused": {0, patience, 2, patience/2 + 1, true},
		} {
			s := &slots{}
			now := time.Now()
			s.fresh.Short(now)
			s.begun.Short(now)
			time.Sleep(tc.after)
			if tc.patience >= 0 {
				s.begun.waiters = []*waiter{{id: 1, since: time.Now(), patience: tc.patience, long: true, called: make(chan struct{})}}
			}
			s.mu.Lock()
			gave := s.giveUp(tc.most, tc.mine, true)
			s.mu.Unlock()
			if gave == tc.keeps {
				t.Errorf("%s: the slot was given up: %t", name, gave)
			}
		}
	})
}
