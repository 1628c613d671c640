package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/timeline"
)

// PutPayloads implements [timeline.Shelf].
func (s *Shelf) PutPayloads(ctx context.Context, payloads []timeline.Payload) error {
	if err := s.beginWrite(ctx); err != nil {
		return err
	}
	defer s.end()
	s.meta.Lock()
	defer s.meta.Unlock()
	b := s.db.NewBatch()
	defer b.Close()
	for _, p := range payloads {
		if err := b.Set(payloadKey(p.Key), p.Data, nil); err != nil {
			return err
		}
		for _, name := range p.Timelines {
			n, found, err := s.number(name)
			if err == nil && !found {
				err = fmt.Errorf("put data: timeline %q has no history", name)
			}
			if err != nil {
				return err
			}
			if err := b.Set(referenceKey(p.Key, n), nil, nil); err != nil {
				return err
			}
		}
	}
	return s.commit(b, nil)
}

// Payload implements [timeline.Shelf].
func (s *Shelf) Payload(ctx context.Context, key timeline.PayloadKey) ([]byte, error) {
	if err := s.beginRead(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	value, closer, err := s.db.Get(payloadKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, timeline.ErrNoPayload
	}
	if err != nil {
		return nil, s.failed("read the data of an event", err)
	}
	defer closer.Close()
	return append([]byte{}, value...), nil
}

// DropPayload implements [timeline.Shelf]. No other process writes references, so their
// age does not matter.
func (s *Shelf) DropPayload(ctx context.Context, key timeline.PayloadKey, name string, _ time.Time) error {
	if err := s.beginWrite(ctx); err != nil {
		return err
	}
	defer s.end()
	s.meta.Lock()
	defer s.meta.Unlock()
	n, found, err := s.number(name)
	if err != nil || !found {
		return err
	}
	others, err := s.othersRefer(key, n)
	if err != nil {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	if err := b.Delete(referenceKey(key, n), nil); err != nil {
		return err
	}
	if !others {
		if err := b.Delete(payloadKey(key), nil); err != nil {
			return err
		}
	}
	return s.commit(b, nil)
}

// othersRefer reports whether another timeline than n refers to a payload.
func (s *Shelf) othersRefer(key timeline.PayloadKey, n number) (bool, error) {
	first, last := referenceKey(key, 0), append(referenceKey(key, ^number(0)), 0)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: first, UpperBound: last})
	if err != nil {
		return false, s.failed("read references to the data of an event", err)
	}
	defer it.Close()
	own := string(referenceKey(key, n))
	for ok := it.First(); ok; ok = it.Next() {
		if string(it.Key()) != own {
			return true, nil
		}
	}
	if err := it.Error(); err != nil {
		return false, s.failed("read references to the data of an event", err)
	}
	return false, nil
}
