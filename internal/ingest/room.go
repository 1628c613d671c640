package ingest

import (
	"context"
	"net/netip"

	"varve/internal/principal"
)

// A Room is the memory that the buffers of one connection of lines or pickles hold, as a part of
// Config.Buffers, the memory for those of all connections. One part in senderShare of
// Config.Buffers is for senders that hold no more than that part. Buffers of the first size need
// none. A room is for use by one goroutine. A nil *Room has room for all.
type Room struct {
	p      *Pipeline
	sender netip.Prefix
	taken  int64
}

// NewRoom returns a room of a sender, given by address and port, that holds nothing. Hold(0) gives back what it
// holds later.
func (p *Pipeline) NewRoom(remote string) *Room {
	return &Room{p: p, sender: principal.NetworkOf(remote)}
}

// Hold makes the room hold n bytes, and reports whether there was memory for that. It does not wait.
func (r *Room) Hold(n int64) bool {
	switch {
	case r == nil:
		return true
	case n > r.taken:
		if !r.p.buffers.TryEnter(r.sender, n-r.taken) {
			return false
		}
	case n < r.taken:
		r.p.buffers.Leave(r.sender, r.taken-n)
	}
	r.taken = n
	return true
}

// Wait makes the room hold n bytes. It waits for at most busy_wait, and then returns ErrBusy.
func (r *Room) Wait(ctx context.Context, n int64) error {
	if r.Hold(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.p.cfg.BusyWait)
	defer cancel()
	r.p.metrics.waits.WithLabelValues("buffers").Inc()
	taken, _, err := r.p.buffers.Enter(ctx, r.sender, n-r.taken)
	if r.taken += taken; err != nil || r.taken < n { // n is more than a sender may ever have
		return ErrBusy
	}
	return nil
}
