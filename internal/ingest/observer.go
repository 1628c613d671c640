package ingest

import (
	"context"
	"slices"

	"varve/internal/store"
)

// An Observer learns which samples are stored. Its methods are called by many
// goroutines at once, on the path of every sample: they must be quick.
type Observer interface {
	// Resolved is called with a series before samples of it are stored with a newly resolved ref,
	// and occasionally again. metric may share the memory of the input.
	Resolved(epoch uint64, ref store.Ref, metric string)

	// Appending is called before a batch is stored. The function that it returns is called
	// afterwards, whether that worked or not. An error keeps the batch from being stored, and goes
	// to the sender; there is no function then.
	Appending(ctx context.Context, b *store.Batch) (done func(), err error)
}

// Observe adds an observer of everything that is stored from now on, for as long as the pipeline
// lasts.
func (p *Pipeline) Observe(o Observer) {
	for {
		before := p.observers.Load()
		var all []Observer
		if before != nil {
			all = slices.Clone(*before)
		}
		all = append(all, o)
		if p.observers.CompareAndSwap(before, &all) {
			break
		}
	}
	p.ForgetAliases()
}

// ForgetAliases forgets how senders spell series, so that each one that is written
// to from now on is resolved again. Blocks that are being parsed go on with what
// they know.
func (p *Pipeline) ForgetAliases() {
	p.aliases.Store(newAliasCache(p.appender.Epoch(), p.cfg.AliasMemory()))
}

func (p *Pipeline) resolved(epoch uint64, ref store.Ref, metric string) {
	all := p.observers.Load()
	if all == nil {
		return
	}
	for _, o := range *all {
		o.Resolved(epoch, ref, metric)
	}
}

func nothing() {}

// appending calls the observers in the order in which they were added. The first error ends that;
// for the observers called before, the batch is over.
func (p *Pipeline) appending(ctx context.Context, b *store.Batch) (done func(), err error) {
	all := p.observers.Load()
	switch {
	case all == nil:
		return nothing, nil
	case len(*all) == 1: // which allocates nothing
		return (*all)[0].Appending(ctx, b)
	}
	var ends []func()
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, o := range *all {
		end, err := o.Appending(ctx, b)
		if err != nil {
			done()
			return nil, err
		}
		ends = append(ends, end)
	}
	return done, nil
}
