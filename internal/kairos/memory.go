package kairos

import (
	"context"

	"varve/internal/kairos/agg"
)

// freeBuffer is the size up to which an answer's buffer is not charged: most answers
// need no more.
const freeBuffer = 64 << 10

// A reservation is the part of query.total_memory that an answer holds until it is
// sent, even after its query has ended. The zero value reserves nothing.
type reservation struct {
	engine *agg.Engine
	ctx    context.Context
	client string
	held   int64
}

// charge reserves the memory by which the answer has grown.
func (a *answer) charge() error {
	size := a.held + int64(cap(a.buf))
	switch {
	case size <= freeBuffer:
		return nil
	case a.run != nil:
		return a.reserved.grow(size, a.run.ReserveAnswer)
	}
	return a.reserved.atLeast(size)
}

// atLeast raises the reservation to n bytes.
func (r *reservation) atLeast(n int64) error {
	return r.grow(n, func(more, held int64) error { return r.engine.Reserve(r.ctx, r.client, more, held) })
}

// grow is atLeast with another function that reserves.
func (r *reservation) grow(n int64, reserve func(more, held int64) error) error {
	if r.engine == nil || n <= r.held {
		return nil
	}
	if err := reserve(n-r.held, n); err != nil {
		return err
	}
	r.held = n
	return nil
}

// atMost lowers the reservation to n bytes.
func (r *reservation) atMost(n int64) {
	if r.held > n {
		r.engine.Return(r.client, r.held-n)
		r.held = n
	}
}

// free releases the memory once the buffer is no longer used.
func (r *reservation) free() { r.atMost(0) }
