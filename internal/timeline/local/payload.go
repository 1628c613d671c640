package local

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/timeline"
)

// A reference is the reference of a timeline to a payload.
type reference struct {
	key timeline.PayloadKey
	n   number
}

// references are the changes of a batch to references. write compares them with the stored
// ones under the order lock, under which batches are also applied, so that no other batch
// comes in between.
type references struct {
	put     map[timeline.PayloadKey]bool
	set     map[reference]bool
	dropped map[reference]bool
}

// add adds the payload of an entry to a batch, with the reference to it.
func (r *references) add(b *pebble.Batch, e *timeline.Placed, n number) error {
	if e.Payload == nil {
		return nil
	}
	if r.put == nil {
		r.put, r.set = map[timeline.PayloadKey]bool{}, map[reference]bool{}
	}
	r.set[reference{e.Pointer, n}] = true
	if err := b.Set(referenceKey(e.Pointer, n), nil, nil); err != nil || r.put[e.Pointer] {
		return err
	}
	r.put[e.Pointer] = true
	return b.Set(payloadKey(e.Pointer), e.Payload, nil)
}

func (r *references) drop(ref reference) {
	if r.dropped == nil {
		r.dropped = map[reference]bool{}
	}
	r.dropped[ref] = true
}

// write adds the removal of dropped references to a batch, and of payloads that nothing refers
// to any more.
func (r *references) write(s *Shelf, b *pebble.Batch) error {
	for ref := range r.dropped {
		if r.set[ref] {
			continue
		}
		if err := b.Delete(referenceKey(ref.key, ref.n), nil); err != nil {
			return err
		}
		used, err := s.refersTo(ref.key, r)
		if err != nil {
			return err
		}
		if used {
			continue
		}
		if err := b.Delete(payloadKey(ref.key), nil); err != nil {
			return err
		}
	}
	return nil
}

// Payload implements [timeline.Shelf].
func (s *Shelf) Payload(ctx context.Context, key timeline.PayloadKey) ([]byte, error) {
	if err := s.beginRead(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	var data []byte
	found, err := s.get("read the data of an event", payloadKey(key), func(value []byte) error {
		data = append([]byte{}, value...)
		return nil
	})
	if err == nil && !found {
		err = timeline.ErrNoPayload
	}
	return data, err
}

// DropPayloads implements [timeline.Shelf]. No other process writes references, so their
// age does not matter.
func (s *Shelf) DropPayloads(ctx context.Context, keys []timeline.PayloadKey, name string, _ time.Time) error {
	if err := s.beginErase(ctx); err != nil {
		return err
	}
	defer s.end()
	n, found, err := s.number(name)
	if err != nil || !found {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	var refs references
	for _, key := range keys {
		refs.drop(reference{key, n})
	}
	return s.commit(b, func() error { return refs.write(s, b) })
}

// refersTo reports whether a timeline refers to a payload once the changes of a batch are made.
func (s *Shelf) refersTo(key timeline.PayloadKey, changes *references) (refers bool, err error) {
	if changes.put[key] {
		return true, nil
	}
	first, last := referenceKey(key, 0), append(referenceKey(key, ^number(0)), 0)
	err = s.walk(context.Background(), "read references to the data of an event", first, last, false, func(it *pebble.Iterator) (bool, error) {
		n := number(binary.BigEndian.Uint32(it.Key()[len(first)-4:]))
		refers = !changes.dropped[reference{key, n}]
		return !refers, nil
	})
	return refers, err
}
