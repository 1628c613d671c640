package query

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// tenants returns engines that share processors, each with one slot.
func tenants(t *testing.T, processors, n int) []*fixture {
	config := DefaultConfig()
	config.MaxConcurrent = 1
	turns, all := NewTurns(processors), make([]*fixture, n)
	for i := range all {
		all[i] = newFixture(t, config)
		all[i].Share(turns)
	}
	return all
}

// costly begins a query that has computed for longer than a turn.
func costly(t *testing.T, f *fixture) *Session {
	s, err := f.Begin(t.Context(), Request{})
	if err != nil {
		t.Fatal(err)
	}
	s.turn = time.Time{}
	return s
}

// yield lets a query yield, and returns how to find out whether it computes again.
func yield(s *Session) (computes func() bool) {
	done := make(chan error, 1)
	go func() { done <- s.Yield() }()
	synctest.Wait()
	return func() bool {
		synctest.Wait()
		return len(done) > 0
	}
}

// A query of a tenant computes as soon as it comes, and costly ones of other tenants, which
// have all processors, let it.
func TestQuietTenantGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tenants(t, 2, 3)
		loud, louder := costly(t, all[0]), costly(t, all[1])
		if loud.Due() || loud.Yield() != nil {
			t.Error("a query yields although there are processors for all")
		}
		quiet, err := all[2].Begin(t.Context(), Request{})
		if err != nil {
			t.Fatal(err)
		}
		if quiet.Due() {
			t.Error("the quiet tenant's query has to yield at once")
		}
		if !loud.Due() || !louder.Due() {
			t.Fatal("costly queries of other tenants need not yield")
		}
		if n := loud.help(1); n != 0 {
			t.Errorf("%d further goroutines compute, on no processor", n)
		}
		computes := yield(loud)
		if computes() {
			t.Error("a costly query computes beside as many others as there are processors")
		}
		if !louder.Due() {
			t.Error("nobody lets the query that waits have its next turn")
		}
		quiet.Close(nil)
		if !computes() {
			t.Error("a costly query waits although a processor is free")
		}
		louder.Close(nil)
		loud.Close(nil)
		if n := loud.engine.slots.all.computing.Load(); n != 0 {
			t.Errorf("%d goroutines compute at the end", n)
		}
	})
}

// Costly queries of several tenants compute by turns, in the order in which they wait.
func TestTurnsOfTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tenants(t, 1, 3)
		sessions := []*Session{costly(t, all[0]), costly(t, all[1]), costly(t, all[2])}
		first := yield(sessions[0])
		second := yield(sessions[1])
		if first() || second() || !sessions[2].Due() {
			t.Fatal("several compute on one processor")
		}
		third := yield(sessions[2])
		if !first() || second() || third() {
			t.Error("the first in line is not the next to compute")
		}
		sessions[0].turn = time.Time{}
		again := yield(sessions[0])
		if !second() || third() || again() {
			t.Error("the second in line is not the next to compute")
		}
		sessions[1].Close(nil)
		if !third() || again() {
			t.Error("the third in line is not the next to compute")
		}
		sessions[2].Close(nil)
		if !again() {
			t.Error("the last one waits for nobody")
		}
		sessions[0].Close(nil)
	})
}

// A wait for a processor ends after a while, since those that compute may wait for something
// else, and with its query.
func TestPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tenants(t, 1, 2)
		stuck, s := costly(t, all[0]), costly(t, all[1])
		computes := yield(s)
		if computes() {
			t.Fatal("it did not wait")
		}
		if time.Sleep(pauseMost); !computes() {
			t.Error("a query waits for one that does not go on")
		}
		s.turn = time.Time{}
		done := make(chan error, 1)
		go func() { done <- s.Yield() }()
		synctest.Wait()
		s.cancel(ErrCancelled)
		if err := <-done; err != ErrCancelled {
			t.Errorf("%v, want %v", err, ErrCancelled)
		}
		s.Close(ErrCancelled)
		stuck.Close(nil)
		next, last := costly(t, all[0]), costly(t, all[1])
		computes = yield(last)
		if computes() {
			t.Fatal("it did not wait")
		}
		if next.Close(nil); !computes() { // the line has no one else
			t.Error("a processor is kept for a query that has left the line")
		}
		last.Close(nil)
		if n := s.engine.slots.all.computing.Load(); n != 0 {
			t.Errorf("%d goroutines compute at the end", n)
		}
	})
}

// A query that waits for memory, for its answer's or for something else computes nothing: the
// queries of other tenants do not pause for it.
func TestWaitingIsNotComputing(t *testing.T) {
	for name, wait := range map[string]func(s *Session, stop <-chan struct{}) error{
		"memory of the query":  func(s *Session, _ <-chan struct{}) error { return s.Reserve(1) },
		"memory of its answer": func(s *Session, _ <-chan struct{}) error { return s.lendFor(want{bytes: 1, held: 1, session: s.id}) },
		"the store":            func(s *Session, stop <-chan struct{}) error { return s.Wait(func() error { <-stop; return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := tenants(t, 1, 3)
				waits, s := costly(t, all[0]), costly(t, all[1])
				turns := s.engine.slots.all
				pool := waits.engine.pool
				if err := pool.acquire(t.Context(), want{bytes: pool.max}); err != nil {
					t.Fatal(err)
				}
				done, stop := make(chan error, 1), make(chan struct{})
				go func() { done <- wait(waits, stop) }()
				synctest.Wait()
				if s.Due() {
					t.Error("a query is to pause for one that waits")
				}
				third := costly(t, all[2])
				computes := yield(s)
				if third.Close(nil); !computes() {
					t.Error("a query is not called, as if one that waits had its processor")
				}
				pool.release(netip.Prefix{}, pool.max)
				close(stop)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := turns.computing.Load(); n != 2 {
					t.Errorf("%d goroutines compute after the wait, want 2", n)
				}
				waits.Close(nil)
				s.Close(nil)
				if n := turns.computing.Load(); n != 0 {
					t.Errorf("%d goroutines compute at the end", n)
				}
			})
		})
	}
}

// A query that has got its slot again lets other tenants compute before it goes on.
func TestSlotThenProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := tenants(t, 1, 2)
		long := costly(t, all[0])
		other := comes(t, all[0])
		computes := yield(long)
		if len(other) == 0 || computes() {
			t.Fatal("the slot was not given to a fresh query")
		}
		quiet := <-comes(t, all[1])
		(<-other).Close(nil)
		if computes() {
			t.Error("a costly query computes beside as many others as there are processors")
		}
		if n := all[0].slots.inUse(); n != 1 {
			t.Errorf("%d slots are taken, want that of the costly query", n)
		}
		quiet.Close(nil)
		if !computes() || time.Since(long.turn) != 0 {
			t.Error("the costly query does not go on with a new turn")
		}
		long.Close(nil)
	})
}
