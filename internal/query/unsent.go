package query

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	"varve/internal/principal"
)

// An Unsent is the memory of query.total_memory that an answer holds until its client has received it, also after its
// query has ended. It waits and fails as queries do, with a Busy limit. One goroutine uses it. The zero value counts
// nothing.
//
// While others wait for memory, the answer of a client that reads slowly is ended: see [Unsent.Writer].
type Unsent struct {
	engine *Engine
	ctx    context.Context
	client string
	sender netip.Prefix // of client, once something is held
	held   int64
	out    *outgoing // nil until Writer
}

const (
	// slowRead is how many bytes per second a client must accept of a large answer while others wait for
	// memory, once sending it has taken readPatience.
	slowRead     = 64 << 10
	readPatience = 5 * time.Second
)

// ErrSlowReader is why the answer of a client that reads slowly was ended.
var ErrSlowReader = errors.New("the client read its answer more slowly than 64KiB/s, and queries waited for the memory that it held")

// Unsent returns what an answer to client, an address with its port, holds: nothing yet.
func (e *Engine) Unsent(ctx context.Context, client string) Unsent {
	return Unsent{engine: e, ctx: ctx, client: client}
}

// AtLeast raises what the answer holds to n bytes.
func (u *Unsent) AtLeast(n int64) error {
	if u.engine == nil || n <= u.held {
		return nil
	}
	return u.took(n, u.engine.pool.acquire(u.ctx, u.want(n)))
}

// AtLeastOf is AtLeast for the answer of a query that computes. Other queries compute while it waits.
func (u *Unsent) AtLeastOf(s *Session, n int64) error {
	if u.engine == nil || n <= u.held {
		return nil
	}
	w := u.want(n)
	w.session = s.id
	return u.took(n, s.lendFor(w))
}

func (u *Unsent) want(n int64) want {
	if u.held == 0 {
		u.sender = principal.NetworkOf(u.client)
	}
	return want{bytes: n - u.held, held: n, sender: u.sender}
}

func (u *Unsent) took(n int64, err error) error {
	if err == nil {
		u.held = n
	}
	return err
}

// lendFor takes memory. While it waits, another query uses the slot.
func (s *Session) lendFor(w want) error {
	p := s.engine.pool
	if err := p.possible(w); err != nil {
		return err
	}
	if _, ok := p.try(w); ok {
		return nil
	}
	if s.outside { // it has no slot to lend
		return p.acquire(s.ctx, w)
	}
	return s.budget.lend(s.ctx, w)
}

// AtMost lowers what the answer holds to n bytes.
func (u *Unsent) AtMost(n int64) {
	if u.held > n {
		u.engine.pool.release(u.sender, u.held-n)
		u.held = n
	}
}

// Free gives everything back, once the memory of the answer is no longer used.
func (u *Unsent) Free() {
	u.AtMost(0)
	if u.out != nil {
		u.engine.pool.sentAll(u.out)
	}
}

// Writer returns a writer that sends the answer to w, until Free. Another goroutine may call cut,
// once; cut must make a Write to w fail soon.
func (u *Unsent) Writer(w io.Writer, cut func()) io.Writer {
	if u.held <= smallGrant {
		return w
	}
	u.out = &outgoing{w: w, cut: cut, bytes: u.held}
	u.engine.pool.sends(u.out)
	return u.out
}

// An outgoing is a large answer that is being sent.
type outgoing struct {
	w     io.Writer
	cut   func()
	bytes int64 // that the answer held when that began

	mu       sync.Mutex
	ended    bool          // cut
	accepted int64         // bytes that the client accepted in the present measurement: see slow
	took     time.Duration // by the writes of these bytes; the time between writes does not count
	began    time.Time     // of the write in progress, zero if there is none
}

// sentAtOnce is how much is sent before it counts as accepted.
const sentAtOnce = 64 << 10

func (o *outgoing) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, sentAtOnce) {
		o.begin()
		k, err := o.w.Write(piece)
		n += k
		if err = o.end(k, err); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (o *outgoing) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = time.Now()
}

// end counts n bytes that a write has sent. It returns an error if no further
// write can follow.
func (o *outgoing) end(n int, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.accepted += int64(n)
	o.took += time.Since(o.began)
	o.began = time.Time{}
	if o.ended {
		return ErrSlowReader
	}
	return err
}

// slow reports whether the client has accepted little in the time that writes took, once that is long enough.
func (o *outgoing) slow(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	writing := !o.began.IsZero()
	took := o.took
	if writing {
		took += now.Sub(o.began)
	}
	if took < readPatience {
		return false
	}
	if float64(o.accepted) < slowRead*took.Seconds() {
		return true
	}
	o.accepted, o.took = 0, 0
	if writing {
		o.began = now
	}
	return false
}

// abort makes writes fail.
func (o *outgoing) abort() {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.cut()
}

func (p *pool) sends(o *outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outgoing[o] = struct{}{}
}

func (p *pool) sentAll(o *outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.outgoing, o)
}

// endSlow ends the answer that holds the most of those that are read slowly, one in each stuckTime.
func (p *pool) endSlow() {
	if o := p.slowest(time.Now()); o != nil {
		p.metrics.slowReaders.Inc()
		o.abort()
	}
}

func (p *pool) slowest(now time.Time) (largest *outgoing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.looked) < stuckTime {
		return nil
	}
	p.looked = now
	for o := range p.outgoing {
		if (largest == nil || o.bytes > largest.bytes) && o.slow(now) {
			largest = o
		}
	}
	delete(p.outgoing, largest)
	return largest
}
