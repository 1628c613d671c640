package cql

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/work"
)

// newFlightSession is a session with a node a that answers, for statements of one at a time.
func newFlightSession(t *testing.T) *Session {
	s := newHedgingSession(t)
	s.mu.state.Connected = true
	for _, l := range s.limiters {
		l.resize(1, 1<<20)
	}
	return s
}

// TestPanicOfAStatement: a bug in a statement gives its place back, and is told as such, at once: nobody
// should look for a fault of the nodes.
func TestPanicOfAStatement(t *testing.T) {
	for _, c := range []call{{kind: writes}, {kind: reads}, {kind: reads, lasting: true}, {kind: reads, lasting: true, hedged: true}} {
		t.Run(fmt.Sprintf("%s, lasting %t, hedged %t", kindNames[c.kind], c.lasting, c.hedged), func(t *testing.T) {
			s := newFlightSession(t)
			calls := 0
			c.st, c.size = &Statement{Name: "buggy"}, 10
			c.run = func(context.Context, *gocql.Session) error {
				calls++
				panic("no such luck")
			}
			err := work.Do("test", func() error { return s.do(t.Context(), c) })
			if fault, ok := errors.AsType[*work.PanicError](err); !ok || fault.Value != "no such luck" || calls != 1 {
				t.Errorf("%v after %d calls", err, calls)
			}
			if l := s.limiters[c.kind].load(); l.inFlight != 0 || l.bytes != 0 {
				t.Errorf("the place is not given back: %+v", l)
			}
		})
	}
}

// TestPlaceOfAnsweredRead: a read has given its place back once its caller has the answer, so the
// caller's next read does not wait for it.
func TestPlaceOfAnsweredRead(t *testing.T) {
	s := newFlightSession(t)
	c := call{st: &Statement{Name: "read"}, kind: reads, lasting: true, run: func(context.Context, *gocql.Session) error { return nil }}
	for range 10_000 {
		if err := s.do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.limiters[reads].load().waits; n > 0 {
		t.Errorf("%d reads had to wait", n)
	}
}

// TestHedgesOfCallersThatLeft: a read whose caller has left is not sent to another replica.
func TestHedgesOfCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFlightSession(t)
		s.limiters[reads].resize(2, 1<<20)
		calls := 0
		c := call{st: &Statement{Name: "read"}, kind: reads, hedged: true, lasting: true, run: func(ctx context.Context, _ *gocql.Session) error {
			calls++
			attemptOf(ctx).sentTo("a", true)
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.do(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if l := s.limiters[reads].load(); l.inFlight != 1 {
			t.Errorf("%d reads are in flight, want 1", l.inFlight)
		}
		s.background.Wait()
		if got := hedges(t, s); calls != 1 || len(got) > 0 {
			t.Errorf("%d calls, hedges %v", calls, got)
		}
	})
}
