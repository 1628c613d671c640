package query

import (
	"errors"
	"math"
	"time"
)

const (
	// turnTime is how long a query computes before others that wait have a turn.
	turnTime = 20 * time.Millisecond

	// clientTime is how long a query keeps its place while it waits for its client.
	clientTime = 20 * time.Millisecond
)

// Yield gives the place of a query that has had it for turnTime to a query that
// waits to begin, and waits for the next turn. So a short query does not wait until
// long ones end. The goroutine of the session calls Yield between two steps of its work.
// While more than half of query.total_memory is used, one query at most waits for its
// next turn: those that wait hold memory, and new queries would need more.
func (s *Session) Yield() (err error) {
	if !s.Due() {
		return nil
	}
	e := s.engine
	most := math.MaxInt
	if e.pool.inUse() > e.pool.max/2 {
		most = 1
	}
	e.wait(+1)
	defer e.wait(-1)
	var patience time.Duration // later turns are not refused
	if !s.settled {
		patience = s.config.MaxWait
	}
	stood, err := e.places.yield(s.ctx, s.id, most, patience)
	s.settled = s.settled || stood
	s.outside, s.turn = err != nil, time.Now()
	if errors.Is(err, errCongested) {
		return s.config.congested("a query waits for its second turn", "ask for less: coarser sampling, a shorter time, fewer series")
	}
	return err
}

// Due reports that the query has had its turn, and others wait. Goroutines that work
// for the session may ask.
func (s *Session) Due() bool {
	e := s.engine
	return e.queued.Load() > 0 && time.Since(s.turn) >= turnTime && !s.outside
}

// Aside runs f, which may wait for the client. If f takes longer than clientTime,
// another query gets the place meanwhile, and Aside waits for a new one.
func (s *Session) Aside(f func() error) error {
	s.settled = true
	if s.outside { // it has ended, and what is left of its answer is sent
		return f()
	}
	if err := s.aside(f); err != nil || !s.outside {
		return err
	}
	e := s.engine
	e.wait(+1)
	defer e.wait(-1)
	err := e.places.line(s.ctx, s.id, 0)
	s.outside, s.turn = err != nil, time.Now()
	return err
}

func (s *Session) aside(f func() error) error {
	left := make(chan struct{})
	patience := time.AfterFunc(clientTime, func() { s.engine.places.leave(); close(left) })
	defer func() {
		if !patience.Stop() {
			<-left
			s.outside = true
		}
	}()
	return f()
}

// wait counts queries that wait for a place.
func (e *Engine) wait(n int64) {
	e.queued.Add(n)
	e.metrics.queued.Add(float64(n))
}
