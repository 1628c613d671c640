package remove

import (
	"context"
	"sync"
	"time"

	"varve/internal/work"
)

// turns give samples precedence over a delete. While this process writes samples, a statement of
// the delete waits until they are written, before it is sent. In each round, statements wait for
// at most as long as the delete had to rest after the previous round, so a delete also continues
// beside a writer that never pauses.
type turns struct {
	mu     sync.Mutex // held while a statement waits: the others wait for that
	left   time.Duration
	waited time.Duration // since the delete began
}

// turn waits until it is the delete's turn to send a statement.
func (p *deletePass) turn(ctx context.Context) {
	t := &p.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left <= 0 || !p.d.writer.Writing() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, t.left)
	defer cancel()
	defer context.AfterFunc(p.hurried, cancel)()
	_ = p.d.writer.AwaitIdle(ctx)
	took := time.Since(began)
	t.left -= took
	t.waited += took
}

// A round is a part of the work of a delete, after which it rests.
type round struct {
	turns  *turns
	began  time.Time
	waited time.Duration // turns.waited at the beginning
}

func (p *deletePass) begin() round { return round{&p.turns, time.Now(), p.turns.waited} }

// worked returns how long the round has taken, not counting its waits for turns. No statement of
// the round may be in progress.
func (r round) worked() time.Duration { return time.Since(r.began) - r.rested() }

func (r round) rested() time.Duration { return r.turns.waited - r.waited }

// rest rests at the end of a round if this process writes samples, until the delete is hurried.
func (p *deletePass) rest(ctx context.Context, r round) error {
	rested, rest := r.rested(), p.pace.rest(r.worked())
	samples := rest > 0 && p.hurried.Err() == nil && p.d.writer.WroteWithin(busyFor)
	p.pace.share(samples)
	p.turns.left = rest
	began := time.Now()
	if samples && rest > rested {
		resting, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(p.hurried, stop)()
		_ = work.Pause(resting, rest-rested)
		rested += time.Since(began)
	}
	p.d.metrics.rested.Add(rested.Seconds())
	return context.Cause(ctx)
}
