package kairos

import (
	"context"

	"varve/internal/query"
)

// freeBuffer is what an answer may take without reserving it: most do not need
// more.
const freeBuffer = 64 << 10

// A reservation is the part of query.total_memory that an answer holds until it
// is sent, after its query has ended, too. The zero value reserves nothing.
type reservation struct {
	engine *query.Engine
	ctx    context.Context
	held   int64
}

// charge reserves what the buffer of an answer has grown to.
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

// free gives back what the answer holds, whose buffer is not used any more.
func (r *reservation) free() {
	if r.held > 0 {
		r.engine.Return(r.held)
		r.held = 0
	}
}
