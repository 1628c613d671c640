package kairos

import (
	"context"

	"varve/internal/query"
)

// freeBuffer is the size up to which an answer's buffer is not reserved: most
// answers need no more.
const freeBuffer = 64 << 10

// A reservation is the part of query.total_memory that an answer holds until it is
// sent, also after its query has ended. The zero value reserves nothing.
type reservation struct {
	engine *query.Engine
	ctx    context.Context
	held   int64
}

// charge reserves the memory by which the buffer has grown.
func (a *answer) charge() error {
	r := &a.reserved
	size := int64(cap(a.buf))
	if r.engine == nil || size <= freeBuffer || size <= r.held {
		return nil
	}
	if err := r.engine.Reserve(r.ctx, size-r.held); err != nil {
		return err
	}
	r.held = size
	return nil
}

// free gives the memory back once the buffer is no longer used.
func (r *reservation) free() {
	if r.held > 0 {
		r.engine.Return(r.held)
		r.held = 0
	}
}
