package query

import (
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
// long ones end. The goroutine of the run calls Yield between two steps of its work.
// While more than half of query.total_memory is used, one query at most waits for its
// next turn: those that wait hold memory, and new queries would need more.
func (r *Run) Yield() (err error) {
	if !r.due() {
		return nil
	}
	e := r.engine
	most := math.MaxInt
	if e.pool.inUse() > e.pool.max/2 {
		most = 1
	}
	e.wait(+1)
	defer e.wait(-1)
	has, err := e.places.yield(r.ctx, r.id, most)
	r.outside, r.turn = !has, time.Now()
	return err
}

// due reports that the query has had its turn, and others wait. Goroutines that work
// for the run may ask.
func (r *Run) due() bool {
	e := r.engine
	return e.queued.Load() > 0 && time.Since(r.turn) >= turnTime && !r.outside
}

// Aside runs f, which may wait for the client. If f takes longer than clientTime,
// another query gets the place meanwhile, and Aside waits for a new one.
func (r *Run) Aside(f func() error) error {
	if r.outside { // it has ended, and what is left of its answer is sent
		return f()
	}
	if err := r.aside(f); err != nil || !r.outside {
		return err
	}
	e := r.engine
	e.wait(+1)
	defer e.wait(-1)
	err := e.places.line(r.ctx, r.id)
	r.outside, r.turn = err != nil, time.Now()
	return err
}

func (r *Run) aside(f func() error) error {
	left := make(chan struct{})
	patience := time.AfterFunc(clientTime, func() { r.engine.places.leave(); close(left) })
	defer func() {
		if !patience.Stop() {
			<-left
			r.outside = true
		}
	}()
	return f()
}

// wait counts queries that wait for a place.
func (e *Engine) wait(n int64) {
	e.queued.Add(n)
	e.metrics.queued.Add(float64(n))
}
