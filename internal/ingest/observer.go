package ingest

import (
	"context"

	"varve/internal/store"
)

// An Observer is told what is stored. Its methods are called by many goroutines
// at once, on the way of every sample: they must be quick.
type Observer interface {
	// Resolved is called with a series before samples of it are stored with a
	// ref that was not resolved before, and now and then again. metric may share
	// the memory of the input.
	Resolved(epoch uint64, ref store.Ref, metric string)

	// Appending is called before a batch is stored, and the function that it
	// returns after that, whether that worked or not. An error keeps the batch
	// from being stored, and goes to the sender; there is no function then.
	Appending(ctx context.Context, b *store.Batch) (done func(), err error)
}

// Observe has an observer told of all that is stored from now on. There is one
// at most.
func (p *Pipeline) Observe(o Observer) {
	p.observer.Store(&o)
	p.ResolveAnew()
}

// ResolveAnew forgets how senders spell series, so that each one that is written
// to from now on is resolved again. Blocks that are being parsed go on with what
// they know.
func (p *Pipeline) ResolveAnew() {
	p.aliases.Store(newAliasCache(p.appender.Epoch(), int64(p.cfg.AliasCache)))
}

func (p *Pipeline) resolved(epoch uint64, ref store.Ref, metric string) {
	if o := p.observer.Load(); o != nil {
		(*o).Resolved(epoch, ref, metric)
	}
}

func nothing() {}

func (p *Pipeline) appending(ctx context.Context, b *store.Batch) (done func(), err error) {
	o := p.observer.Load()
	if o == nil {
		return nothing, nil
	}
	return (*o).Appending(ctx, b)
}
