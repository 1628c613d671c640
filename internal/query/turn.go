package query

import "time"

const (
	// turnTime is how long a query computes before others that wait have a turn.
	turnTime = 20 * time.Millisecond

	// clientTime is how long a query may wait for its client with a place.
	clientTime = 20 * time.Millisecond
)

// Yield gives the query's place to one that waits to begin, if the query has had
// it for turnTime, and waits for its next turn. So a short query does not wait
// until long ones end. It is called by the goroutine of the run between two steps
// of its work. When half of query.total_memory is used, those that have begun end
// first: more of them would need more.
func (r *Run) Yield() (err error) {
	e := r.engine
	if e.queued.Load() == 0 || time.Since(r.turn) < turnTime || e.pool.inUse() > e.pool.max/2 {
		return nil
	}
	e.wait(+1)
	defer e.wait(-1)
	has, err := e.places.yield(r.ctx, r.id)
	r.outside, r.turn = !has, time.Now()
	return err
}

// Aside runs f, which waits for the client. If it takes longer than clientTime,
// another query gets the place meanwhile, and f's end waits for a new one.
func (r *Run) Aside(f func() error) error {
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
