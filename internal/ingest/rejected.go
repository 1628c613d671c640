package ingest

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"
)

// A Rejection is a refused input as /admin/rejected shows it.
type Rejection struct {
	Time       time.Time `json:"time"`
	Protocol   string    `json:"protocol"`
	Remote     string    `json:"remote"`
	Reason     string    `json:"reason"`
	Detail     string    `json:"detail"`
	Input      string    `json:"input"`       // cut to rejected_bytes
	InputBytes int       `json:"input_bytes"` // before the cut
}

const (
	// logEvery is the minimum time between two reports of refused inputs in the log.
	logEvery = 10 * time.Second

	// talliesKept limits the pairs of sender and reason that a report lists, each on a line of its
	// own.
	talliesKept = 20
)

// A tally counts the inputs of one sender that were refused for one reason.
type tally struct {
	protocol, sender, reason, detail string
	count                            uint64
}

// rejectedRing keeps the latest refused inputs and reports them in the log: the
// first at once, those that follow within logEvery at the end of that time.
type rejectedRing struct {
	log *slog.Logger

	flushing sync.WaitGroup // reports of the timer; none begins after close

	mu struct {
		sync.Mutex
		ring    []Rejection
		next    int
		full    bool
		total   uint64
		tallies []tally     // not reported yet
		others  uint64      // refused beyond talliesKept
		timer   *time.Timer // until the next report; nil: report at once
		closed  bool
	}
}

func newRejectedRing(kept int, log *slog.Logger) *rejectedRing {
	r := &rejectedRing{log: log}
	r.mu.ring = make([]Rejection, kept)
	return r
}

// add keeps rejections of one sender. counts says how many inputs were refused
// by reason.
func (r *rejectedRing) add(counts *[reasons]uint32, rejections ...Rejection) {
	if len(rejections) == 0 {
		return
	}
	last := &rejections[len(rejections)-1]
	r.mu.Lock()
	for _, x := range rejections {
		r.mu.ring[r.mu.next] = x
		r.mu.next++
		if r.mu.next == len(r.mu.ring) {
			r.mu.next, r.mu.full = 0, true
		}
	}
	sender := last.Remote
	if host, _, err := net.SplitHostPort(sender); err == nil {
		sender = host
	}
	for reason, n := range counts {
		if n > 0 {
			r.mu.total += uint64(n)
			r.countLocked(last.Protocol, sender, Reason(reason).String(), rejections, uint64(n))
		}
	}
	var due []tally
	var others uint64
	if r.mu.timer == nil && !r.mu.closed {
		due, others = r.takeLocked()
		r.mu.timer = time.AfterFunc(logEvery, r.flush)
	}
	r.mu.Unlock()
	r.tell(due, others)
}

// countLocked adds to the tally of a sender and a reason. r.mu must be held.
func (r *rejectedRing) countLocked(protocol, sender, reason string, rejections []Rejection, n uint64) {
	for i := range r.mu.tallies {
		t := &r.mu.tallies[i]
		if t.reason == reason && t.sender == sender && t.protocol == protocol {
			t.count += n
			return
		}
	}
	if len(r.mu.tallies) == talliesKept {
		r.mu.others += n
		return
	}
	t := tally{protocol: protocol, sender: sender, reason: reason, count: n}
	for _, x := range rejections {
		if x.Reason == reason {
			t.detail = x.Detail
			break
		}
	}
	r.mu.tallies = append(r.mu.tallies, t)
}

// takeLocked returns what was not reported yet, and clears it. r.mu must be held.
func (r *rejectedRing) takeLocked() (due []tally, others uint64) {
	due, others = r.mu.tallies, r.mu.others
	r.mu.tallies, r.mu.others = nil, 0
	return due, others
}

// flush is called logEvery after a report.
func (r *rejectedRing) flush() {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return
	}
	r.flushing.Add(1)
	defer r.flushing.Done()
	due, others := r.takeLocked()
	r.mu.timer = nil
	if len(due) > 0 {
		r.mu.timer = time.AfterFunc(logEvery, r.flush)
	}
	r.mu.Unlock()
	r.tell(due, others)
}

// close reports what is left, and returns when a report that has begun is written too. Nothing is
// reported after it.
func (r *rejectedRing) close() {
	r.mu.Lock()
	due, others := r.takeLocked()
	r.mu.closed = true
	if r.mu.timer != nil {
		r.mu.timer.Stop()
	}
	r.mu.Unlock()
	r.tell(due, others)
	r.flushing.Wait()
}

// tell writes a report to the log.
func (r *rejectedRing) tell(due []tally, others uint64) {
	for _, t := range due {
		r.log.LogAttrs(context.Background(), slog.LevelWarn, "input refused, see /admin/rejected",
			slog.Uint64("count", t.count), slog.String("protocol", t.protocol), slog.String("sender", t.sender),
			slog.String("reason", t.reason), slog.String("detail", t.detail))
	}
	if others > 0 {
		r.log.LogAttrs(context.Background(), slog.LevelWarn, "input of further senders or for further reasons refused, see /admin/rejected",
			slog.Uint64("count", others))
	}
}

// latest returns the kept rejections, newest first, and how many there were.
func (r *rejectedRing) latest() ([]Rejection, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.next
	if r.mu.full {
		n = len(r.mu.ring)
	}
	list := make([]Rejection, 0, n)
	for i := 1; i <= n; i++ {
		list = append(list, r.mu.ring[(r.mu.next-i+len(r.mu.ring))%len(r.mu.ring)])
	}
	return list, r.mu.total
}
