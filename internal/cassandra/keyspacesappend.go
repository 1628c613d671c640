package cassandra

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"varve/internal/store"
)

// parts are the samples of one batch by store.
type parts struct {
	of     []store.Batch // by position of the store
	places []int         // positions of stores that have samples
}

// A partsPool keeps parts for the next batch.
type partsPool struct{ pool sync.Pool }

func (p *partsPool) take(n int) *parts {
	if some, ok := p.pool.Get().(*parts); ok {
		return some
	}
	return &parts{of: make([]store.Batch, n)}
}

func (p *partsPool) put(some *parts) {
	for i := range some.of {
		some.of[i].Data = nil // belongs to the caller
	}
	p.pool.Put(some)
}

// Append implements store.Appender. Samples for a keyspace that refuses samples are refused,
// and those for others are stored: the error is a *store.PartError. If a keyspace can never
// store a sample of the batch, or if the batch's refs are from an earlier epoch, nothing is
// stored. The exception: if series are forgotten between that check and the append itself, a
// part is stored, and the sender's retry overwrites it with the same samples.
func (k *Keyspaces) Append(ctx context.Context, b *store.Batch) error {
	if len(k.stores) == 1 {
		return k.stores[0].Append(ctx, b)
	}
	p := k.parts.take(len(k.stores))
	defer k.parts.put(p)
	if !k.divide(p, b) {
		return store.ErrStale
	}
	if len(p.places) > 1 {
		for _, i := range p.places {
			if err := k.stores[i].checkAhead(&p.of[i]); err != nil {
				return err
			}
		}
	}
	if len(p.places) == 0 {
		return k.stores[0].Append(ctx, &p.of[0])
	}
	var stored atomic.Int64
	err := k.each("append to a keyspace", p.places, func(i int) error {
		err := k.stores[i].Append(ctx, &p.of[i])
		if err == nil {
			stored.Add(int64(len(p.of[i].Samples)))
		}
		return err
	})
	if err == nil || errors.Is(err, store.ErrStale) || !errors.As(err, new(*store.UnavailableError)) {
		return err
	}
	return &store.PartError{Stored: int(stored.Load()), Refused: len(b.Samples) - int(stored.Load()), Err: err}
}

// divide distributes the samples of a batch to the stores, in order. It returns false if the
// batch is from an earlier epoch.
func (k *Keyspaces) divide(p *parts, b *store.Batch) bool {
	sum := uint64(0)
	for i, s := range k.stores {
		epoch := s.Epoch()
		sum += epoch
		p.of[i].Reset(epoch)
		p.of[i].Data, p.of[i].Sender = b.Data, b.Sender
	}
	p.places = p.places[:0]
	for _, sample := range b.Samples {
		i, ref := k.inner(sample.Ref)
		sample.Ref = ref
		if len(p.of[i].Samples) == 0 {
			p.places = append(p.places, i)
		}
		p.of[i].Samples = append(p.of[i].Samples, sample)
	}
	return sum == b.Epoch
}

// checkAhead returns why a batch cannot be appended, as far as that is known in advance.
func (s *Store) checkAhead(b *store.Batch) error {
	kinds, err := s.spool.Kinds(nil, b)
	if err != nil {
		return err
	}
	return s.checkBatch(b, kinds)
}
