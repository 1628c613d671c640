package cql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	dto "github.com/prometheus/client_model/go"
)

// TestHowOftenReadsAreHedged: some at once after a quiet time, then one of twenty reads.
func TestHowOftenReadsAreHedged(t *testing.T) {
	h := newHedging(10 * time.Millisecond)
	sent := 0
	for range 10_000 {
		h.after("read")
		if h.take() {
			sent++
		}
	}
	if want := hedgeBurst + 500; sent < want-1 || sent > want {
		t.Errorf("%d of 10,000 reads are hedged, want %d", sent, want)
	}
	if h.take() {
		t.Error("one more is hedged")
	}
	h.refund()
	if !h.take() || h.take() {
		t.Error("one that was not sent does not count, and no more than that")
	}
	for range 100_000 {
		h.after("read")
	}
	if sent = 0; h.take() {
		for sent = 1; h.take(); sent++ {
		}
	}
	if sent != hedgeBurst {
		t.Errorf("%d are hedged at once, want %d", sent, hedgeBurst)
	}
}

// TestWhenReadsAreHedged: after twice the time in which nine of ten are answered, for each
// statement, and never before hedge_after.
func TestWhenReadsAreHedged(t *testing.T) {
	h := newHedging(10 * time.Millisecond)
	if got := h.after("unknown"); got != hedgeMultiple*usualFirst {
		t.Errorf("a statement that was not read yet: %v", got)
	}
	for range 200 {
		for i := range 100 { // evenly 1 to 100 ms
			h.learn("long", time.Duration(1+i*37%100)*time.Millisecond)
			h.learn("short", time.Millisecond)
		}
	}
	if got := h.after("long"); got < 160*time.Millisecond || got > 200*time.Millisecond {
		t.Errorf("nine of ten within 90 ms: hedged after %v", got)
	}
	if got := h.after("short"); got != 10*time.Millisecond {
		t.Errorf("all within 1 ms: hedged after %v", got)
	}
	if got := newHedging(0).after("short"); got != 0 {
		t.Errorf("with hedge_after 0: %v", got)
	}
}

// orderOf lists the nodes that an attempt is given, in order.
func orderOf(h *hosts, a *attempt) string {
	c := &choice{hosts: h, kind: a.kind, attempt: a, next: h.HostSelectionPolicy.Pick(nil)}
	var order []string
	for n := c.host(); n != nil; n = c.host() {
		_, last, _ := strings.Cut(n.Info().ConnectAddress().String(), "127.0.0.")
		order = append(order, last)
	}
	return strings.Join(order, " ")
}

// TestSpareReplica: a hedge goes to a replica that has room, answers, was not slow lately
// and is not the one that is waited for; or nowhere. What others do with a slow node.
func TestSpareReplica(t *testing.T) {
	now := time.Unix(0, 0)
	config := DefaultConfig()
	config.ReadsInFlight = 2
	h := newHosts(nil, config, func() time.Time { return now }, func(...string) {}, func(*gocql.HostInfo) {})
	var nodes []*gocql.HostInfo
	for i := range 6 {
		nodes = append(nodes, testHost(t, i+1))
	}
	h.HostSelectionPolicy = &fixedPolicy{replicas: nodes[:5], others: nodes[5:]}
	second := func() *attempt { return &attempt{kind: reads, hedge: true, avoid: nodes[0].HostID()} }
	if got := orderOf(h, second()); got != "2 3 4 5" {
		t.Errorf("of five replicas, the first is waited for: %s", got)
	}
	h.begin(selected{nodes[1]}, reads, nil) // silent
	now = now.Add(2 * config.StallAfter)
	for range 2 {
		h.begin(selected{nodes[2]}, reads, nil) // full
	}
	h.slow(nodes[3].HostID())
	if got := orderOf(h, second()); got != "5" {
		t.Errorf("one is silent, one full, one slow: %s", got)
	}
	if got := orderOf(h, &attempt{kind: reads}); got != "1 5 4 3 6 2" {
		t.Errorf("reads: %s", got)
	}
	if got := orderOf(h, &attempt{kind: writes}); got != "1 3 4 5 6 2" {
		t.Errorf("writes: %s", got)
	}
	now = now.Add(slowFor)
	h.answered(nodes[2].HostID()) // still full
	if got := orderOf(h, second()); got != "4 5" {
		t.Errorf("the slow one is tried again: %s", got)
	}
}

// A step is what a way of an attempt does: after a time it ends with an error, or nil.
type step struct {
	after time.Duration
	err   error
	node  string // it is sent to, "" if there is none
	panic bool
}

// TestHedge: the first good answer of the two ways counts, and an error of one is no error
// while the other may do.
func TestHedge(t *testing.T) {
	down, gone := errors.New("connection reset"), errors.New("broken pipe")
	for _, x := range []struct {
		what          string
		first, second step
		spent         bool // there is no credit
		want          error
		took          time.Duration
		calls         int
		result        string
		slow          bool
	}{
		{what: "quick", first: step{after: 5 * time.Millisecond, node: "a"}, took: 5 * time.Millisecond, calls: 1},
		{what: "the first hangs", first: step{after: time.Hour, node: "a"}, second: step{after: 3 * time.Millisecond, node: "b"}, took: 103 * time.Millisecond, calls: 2, result: "won", slow: true},
		{what: "the first is quicker after all", first: step{after: 110 * time.Millisecond, node: "a"}, second: step{after: time.Hour, node: "b"}, took: 110 * time.Millisecond, calls: 2, result: "lost"},
		{what: "the second fails", first: step{after: 150 * time.Millisecond, node: "a"}, second: step{after: time.Millisecond, err: down, node: "b"}, took: 150 * time.Millisecond, calls: 2, result: "failed"},
		{what: "the second panics", first: step{after: 150 * time.Millisecond, node: "a"}, second: step{panic: true, node: "b"}, took: 150 * time.Millisecond, calls: 2, result: "failed"},
		{what: "the first fails, the second does not", first: step{after: 120 * time.Millisecond, err: down, node: "a"}, second: step{after: 100 * time.Millisecond, node: "b"}, took: 200 * time.Millisecond, calls: 2, result: "won", slow: true},
		{what: "both fail", first: step{after: 120 * time.Millisecond, err: down, node: "a"}, second: step{after: 100 * time.Millisecond, err: gone, node: "b"}, want: down, took: 200 * time.Millisecond, calls: 2, result: "failed"},
		{what: "both fail, the second first", first: step{after: 300 * time.Millisecond, err: down, node: "a"}, second: step{after: 100 * time.Millisecond, err: gone, node: "b"}, want: down, took: 300 * time.Millisecond, calls: 2, result: "failed"},
		{what: "fails before it is hedged", first: step{after: time.Millisecond, err: down, node: "a"}, want: down, took: time.Millisecond, calls: 1},
		{what: "refused", first: step{after: 120 * time.Millisecond, err: gocql.ErrUnsupported, node: "a"}, second: step{after: time.Hour, node: "b"}, want: gocql.ErrUnsupported, took: 120 * time.Millisecond, calls: 2, result: "lost"},
		{what: "no other replica", first: step{after: 150 * time.Millisecond, node: "a"}, second: step{err: gocql.ErrNoConnections}, took: 150 * time.Millisecond, calls: 2, result: "withheld"},
		{what: "there have been many", first: step{after: 150 * time.Millisecond, node: "a"}, spent: true, took: 150 * time.Millisecond, calls: 1, result: "withheld"},
		{what: "not sent yet", first: step{after: 150 * time.Millisecond}, took: 150 * time.Millisecond, calls: 1},
	} {
		t.Run(x.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHedgingSession(t)
				if x.spent {
					s.hedging.credit = 0
				}
				credit := s.hedging.credit
				calls := 0
				began := time.Now()
				first := &attempt{statement: "read", kind: reads}
				err := s.hedged(t.Context(), call{st: &Statement{Name: "read"}, kind: reads, size: 10, timeout: time.Minute, gone: t.Context().Err, run: func(ctx context.Context, _ *gocql.Session) error {
					a, do := attemptOf(ctx), x.first
					if a != first {
						do = x.second
						if !a.hedge || a.avoid != "a" {
							t.Errorf("the second way is not one: %+v", a)
						}
					}
					calls++
					if do.node != "" {
						a.sentTo(do.node, true)
					}
					if do.panic {
						panic("no such luck")
					}
					select {
					case <-time.After(do.after):
						return do.err
					case <-ctx.Done():
						return ctx.Err()
					}
				}}, first)
				if took := time.Since(began); !errors.Is(err, x.want) || (x.want == nil) != (err == nil) || took != x.took || calls != x.calls {
					t.Errorf("%v after %v and %d calls, want %v after %v and %d", err, took, calls, x.want, x.took, x.calls)
				}
				synctest.Wait() // the second way has ended
				want := map[string]float64{}
				if x.result != "" {
					want[x.result] = 1
				}
				if got := hedges(t, s); !maps.Equal(got, want) {
					t.Errorf("hedges %v, want %v", got, want)
				}
				if slow := !s.mu.conn.hosts.known["a"].slow.IsZero(); slow != x.slow {
					t.Errorf("the first node is slow: %t", slow)
				}
				spent := 0.0
				if x.result != "" && x.result != "withheld" {
					spent = 1
				}
				if got := credit - s.hedging.credit; fmt.Sprintf("%.2f", got) != fmt.Sprintf("%.2f", spent) && !x.spent {
					t.Errorf("credit spent: %v, want %v", got, spent)
				}
				if l := s.limiters[reads].load(); l.inFlight != 0 || l.bytes != 0 {
					t.Errorf("room is not given back: %+v", l)
				}
			})
		})
	}
}

// newHedgingSession is a session with a node a, as far as hedges need one.
func newHedgingSession(t *testing.T) *Session {
	config := DefaultConfig()
	config.StallAfter = time.Minute
	s := &Session{config: config, now: time.Now, hedging: newHedging(config.HedgeAfter)}
	for k := range s.limiters {
		s.limiters[k] = newLimiter(time.Now)
		s.limiters[k].resize(10, 1<<20)
	}
	var err error
	if s.metrics, err = newMetrics(s, nil); err != nil {
		t.Fatal(err)
	}
	h := newHosts(nil, config, time.Now, func(...string) {}, func(*gocql.HostInfo) {})
	h.known["a"] = new(host)
	s.mu.conn = &connection{driver: new(gocql.Session), hosts: h}
	s.ctx, s.stop = context.WithCancel(t.Context())
	t.Cleanup(s.stop)
	return s
}

// hedges are the counts that are not 0.
func hedges(t *testing.T, s *Session) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, result := range []string{"won", "lost", "failed", "withheld"} {
		var m dto.Metric
		if err := s.metrics.hedges.WithLabelValues(result).Write(&m); err != nil {
			t.Fatal(err)
		}
		if n := m.Counter.GetValue(); n != 0 {
			got[result] = n
		}
	}
	return got
}
