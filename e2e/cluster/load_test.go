package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"varve/e2e/process"
)

// A load is a set of clients of one server, writers and readers. They share one
// ledger.
type load struct {
	t      *testing.T
	ledger *ledger
	server *process.Server
	pause  time.Duration // of a client, between two requests
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	tally tally
}

// A tally has the results of clients since the last reset.
type tally struct {
	writes, questions           int
	writeErrors, questionErrors int
	slowestWrite, slowestAsk    time.Duration
	lastError                   error
}

const (
	quick    = 60 * time.Millisecond  // pauses of clients
	slow     = 250 * time.Millisecond // where four nodes and two servers share the machine
	blockMax = 60                     // points of a request
	askMost  = 4000                   // most points of one query
)

// startLoad runs clients until the load is ended.
func startLoad(t *testing.T, s *process.Server, l *ledger, seed uint64, writers, readers int) *load {
	return startPaced(t, s, l, seed, writers, readers, quick)
}

func startPaced(t *testing.T, s *process.Server, l *ledger, seed uint64, writers, readers int, pause time.Duration) *load {
	ctx, cancel := context.WithCancel(t.Context())
	x := &load{t: t, ledger: l, server: s, pause: pause, stop: cancel}
	for i := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		x.wg.Go(func() { x.repeat(ctx, func() { x.write(ctx, random) }) })
	}
	for i := range readers {
		random := rand.New(rand.NewPCG(seed, uint64(100+i)))
		x.wg.Go(func() { x.repeat(ctx, func() { x.ask(ctx, random) }) })
	}
	t.Cleanup(x.end)
	return x
}

func (x *load) repeat(ctx context.Context, once func()) {
	for ctx.Err() == nil {
		once()
		select {
		case <-ctx.Done():
		case <-time.After(x.pause):
		}
	}
}

func (x *load) write(ctx context.Context, random *rand.Rand) {
	began := time.Now()
	err := x.ledger.post(ctx, x.server, x.ledger.next(1+random.IntN(blockMax)))
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tally.writes++
	x.tally.slowestWrite = max(x.tally.slowestWrite, took)
	if err != nil {
		x.tally.writeErrors++
		x.tally.lastError = err
	}
}

// ask queries the newest points or older ones.
func (x *load) ask(ctx context.Context, random *rand.Rand) {
	s := x.ledger.all()
	if s.to > askMost {
		s.from = s.to - askMost
		if random.IntN(2) == 0 {
			s.from = random.IntN(s.from + 1)
			s.to = s.from + askMost
		}
	}
	ask := x.ledger.check
	if random.IntN(2) == 0 {
		s.from = max(s.from, s.to-300)
		ask = x.ledger.checkEach
	}
	began := time.Now()
	err := ask(ctx, x.server, s)
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	var finding *findingError
	if errors.As(err, &finding) {
		x.t.Error(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tally.questions++
	x.tally.slowestAsk = max(x.tally.slowestAsk, took)
	if err != nil {
		x.tally.questionErrors++
		x.tally.lastError = err
	}
}

// look returns the results of clients during d.
func (x *load) look(what string, d time.Duration) tally {
	x.reset()
	select {
	case <-time.After(d):
	case <-x.t.Context().Done():
	}
	return x.told(what, d)
}

// reset begins a new tally.
func (x *load) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tally = tally{}
}

// during returns the results of clients while f runs.
func (x *load) during(what string, f func()) tally {
	x.reset()
	began := time.Now()
	f()
	return x.told(what, time.Since(began))
}

func (x *load) told(what string, d time.Duration) tally {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.tally
	last := ""
	if a.lastError != nil {
		last = fmt.Sprintf("; the last: %.300s", a.lastError.Error())
	}
	x.t.Logf("%-36s %5.1f s: %4d writes, %d errors, slowest %v; %4d questions, %d errors, slowest %v%s", what, d.Seconds(),
		a.writes, a.writeErrors, a.slowestWrite.Round(time.Millisecond), a.questions, a.questionErrors, a.slowestAsk.Round(time.Millisecond), last)
	return a
}

// end ends all clients.
func (x *load) end() {
	x.stop()
	x.wg.Wait()
}

// Highest latencies for clients while nodes go down and come back.
const (
	writeWithin = 2 * time.Second  // a write needs the local disk only
	askWithin   = 10 * time.Second // several rounds, each of which may wait for a node that has just become silent
)

// quiet fails the test if clients had errors or higher latencies than these.
func (a tally) quiet(t *testing.T, what string) {
	t.Helper()
	a.writesQuiet(t, what)
	if a.questionErrors > 0 || a.questions == 0 || a.slowestAsk > askWithin {
		t.Errorf("%s: %d questions, %d errors, the slowest took %v; want no error and at most %v", what, a.questions, a.questionErrors, a.slowestAsk, askWithin)
	}
}

func (a tally) writesQuiet(t *testing.T, what string) {
	t.Helper()
	if a.writeErrors > 0 || a.writes == 0 || a.slowestWrite > writeWithin {
		t.Errorf("%s: %d writes, %d errors, the slowest took %v; want no error and at most %v", what, a.writes, a.writeErrors, a.slowestWrite, writeWithin)
	}
}
