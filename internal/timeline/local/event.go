package local

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"varve/internal/timeline"
)

// Put implements [timeline.Shelf].
func (s *Shelf) Put(ctx context.Context, entries []timeline.Placed) error {
	if err := s.beginWrite(ctx); err != nil {
		return err
	}
	defer s.end()
	b := s.db.NewBatchWithSize(putBytes(entries))
	defer b.Close()
	var refs references
	arrived, err := s.stage(b, &refs, entries)
	if err != nil {
		return err
	}
	err = s.commit(b, func() error {
		if err := s.stageReplacing(b, &refs, arrived, entries); err != nil {
			return err
		}
		for _, a := range arrived {
			if err := s.logArrivals(b, a.number, a.positions); err != nil {
				return err
			}
		}
		if !b.Empty() {
			return nil
		}
		// Another call has put all entries, perhaps without a sync so far. They are durable
		// when this commit is.
		return b.LogData(nil, nil)
	})
	if err == nil {
		s.metrics.events.Add(float64(len(entries)))
	}
	return err
}

func putBytes(entries []timeline.Placed) int {
	n := 64
	for i := range entries {
		n += len(entries[i].Data) + len(entries[i].Payload) + 2*len(entries[i].ID) + len(entries[i].Type) + 64
	}
	return n
}

// An arrival is what a Put adds to one timeline.
type arrival struct {
	number    number
	positions []timeline.Position
	pointing  []int // indexes of entries for stageReplacing
}

// stage writes entries to a batch, except those that are stored already and those that are left
// to stageReplacing.
func (s *Shelf) stage(b *pebble.Batch, refs *references, entries []timeline.Placed) ([]arrival, error) {
	var all []arrival
	var key, value []byte
	index := map[string]int{} // in all, by timeline
	for i := range entries {
		e := &entries[i]
		at, known := index[e.Timeline]
		if !known {
			n, found, err := s.number(e.Timeline)
			if err == nil && !found {
				err = fmt.Errorf("put events: timeline %q has no history", e.Timeline)
			}
			if err != nil {
				return nil, err
			}
			at, all = len(all), append(all, arrival{number: n})
			index[e.Timeline] = at
		}
		if err := refs.add(b, e, all[at].number); err != nil {
			return nil, err
		}
		if e.MayPoint && !e.Fresh {
			all[at].pointing = append(all[at].pointing, i)
			continue
		}
		key, value = eventKey(key[:0], all[at].number, e.Position()), appendEntry(value[:0], e)
		if !e.Fresh {
			same, err := s.has(key, value)
			if err != nil {
				return nil, err
			}
			if same {
				continue
			}
		}
		if err := b.Set(key, value, nil); err != nil {
			return nil, err
		}
		all[at].positions = append(all[at].positions, e.Position())
	}
	return all, nil
}

// stageReplacing does what stage does, for entries that may replace an entry whose data is stored
// separately. It is called under the order lock. No other batch can come in between, so it sees which
// entries are replaced, and the batch removes their data. A writer that sends the old data again comes
// either before this batch, or after it and stores the data again.
func (s *Shelf) stageReplacing(b *pebble.Batch, refs *references, all []arrival, entries []timeline.Placed) error {
	var key, value []byte
	for at := range all {
		a := &all[at]
		for _, i := range a.pointing {
			e := &entries[i]
			key, value = eventKey(key[:0], a.number, e.Position()), appendEntry(value[:0], e)
			same, err := s.replace(refs, a.number, key, value, e)
			if err != nil {
				return err
			}
			if same {
				continue
			}
			if err := b.Set(key, value, nil); err != nil {
				return err
			}
			a.positions = append(a.positions, e.Position())
		}
	}
	return refs.write(s, b)
}

// replace drops the reference of the entry that an entry replaces. It reports whether the stored
// row already equals the new one.
func (s *Shelf) replace(refs *references, n number, key, value []byte, e *timeline.Placed) (same bool, err error) {
	_, err = s.get("look for an event", key, func(old []byte) error {
		was, _, err := parseEntry(e.Position(), old)
		if err != nil {
			return nil // a damaged row is replaced; the data that it referred to is unknown
		}
		if was.Pointer != e.Pointer && was.Pointer != (timeline.PayloadKey{}) {
			refs.drop(reference{was.Pointer, n})
		}
		same = string(old) == string(value)
		return nil
	})
	return same, err
}

// has reports whether the stored row already equals the new one. So a retry changes nothing,
// and readers that follow the timeline do not get the event twice.
func (s *Shelf) has(key, value []byte) (same bool, err error) {
	_, err = s.get("look for an event", key, func(old []byte) error {
		same = string(old) == string(value)
		return nil
	})
	return same, err
}

// Slice implements [timeline.Shelf].
func (s *Shelf) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if err := s.begin(); err != nil {
		return timeline.Slice{}, err
	}
	defer s.end()
	return s.slice(ctx, p.Timeline, p.Partition, inPart(p, r), d, l)
}

// IsWhole implements [timeline.Whole].
func (s *Shelf) IsWhole() {}

// inPart returns the part of r that is in the bucket: keys do not contain buckets.
func inPart(p timeline.Part, r timeline.Range) timeline.Range {
	return r.Intersect(timeline.Range{From: timeline.At(p.Start), To: timeline.At(p.EndExcl)})
}

func (s *Shelf) slice(ctx context.Context, name string, partition int, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	n, found, err := s.number(name)
	if err != nil || !found || r.Empty() {
		return timeline.Slice{}, err
	}
	lower, upper := eventBounds(n, r)
	out := timeline.Slice{}
	err = s.walk(ctx, "read events", lower, upper, d == timeline.Ascending, func(it *pebble.Iterator) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if l.Entries <= 0 || l.Bytes <= 0 {
			out.More = true
			return false, nil
		}
		e, part, err := s.parse(it)
		if err != nil || partition != timeline.EveryPartition && part != partition {
			return true, err
		}
		out.Entries = append(out.Entries, e)
		l.Entries--
		l.Bytes -= e.Bytes()
		return true, nil
	})
	return out, err
}

func (s *Shelf) parse(it *pebble.Iterator) (timeline.Entry, int, error) {
	p, ok := parsePosition(it.Key())
	if !ok {
		return timeline.Entry{}, 0, s.damaged("the key %x is not one of an event", it.Key())
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return timeline.Entry{}, 0, s.failed("read events", err)
	}
	return s.entry(p, value)
}

// Delete implements [timeline.Shelf].
func (s *Shelf) Delete(ctx context.Context, p timeline.Part, ranges []timeline.Range, _ time.Time) error {
	if err := s.beginErase(ctx); err != nil {
		return err
	}
	defer s.end()
	if p.Partition == timeline.EveryPartition {
		return s.deleteRanges(p.Timeline, ranges)
	}
	for _, r := range ranges {
		if err := s.deletePart(ctx, p, inPart(p, r)); err != nil {
			return err
		}
	}
	return nil
}

// deletePart searches for the events of a partition and deletes them. An engine deletes from Everything,
// except in tests, where it takes this shelf for one that stores buckets separately.
func (s *Shelf) deletePart(ctx context.Context, p timeline.Part, r timeline.Range) error {
	for !r.Empty() {
		some, err := s.slice(ctx, p.Timeline, p.Partition, r, timeline.Ascending, timeline.Limit{Entries: 1000, Bytes: 1 << 20})
		if err != nil || len(some.Entries) == 0 {
			return err
		}
		at := make([]timeline.Range, len(some.Entries))
		for i := range at {
			p := some.Entries[i].Position()
			at[i] = timeline.Range{From: p, To: p.Next()}
		}
		if err := s.deleteRanges(p.Timeline, at); err != nil {
			return err
		}
		r.From = at[len(at)-1].To
	}
	return nil
}

// deleteRanges deletes with one batch. A single event is deleted by its key, because a range
// tombstone costs readers more.
func (s *Shelf) deleteRanges(name string, ranges []timeline.Range) error {
	n, found, err := s.number(name)
	if err != nil || !found {
		return err
	}
	b := s.db.NewBatch()
	defer b.Close()
	for _, r := range ranges {
		switch lower, upper := eventBounds(n, r); {
		case r.Empty():
		case r.From.ID != "" && r.To == r.From.Next():
			err = b.Delete(eventKey(nil, n, r.From), nil)
		default:
			err = b.DeleteRange(lower, upper, nil)
		}
		if err != nil {
			return err
		}
	}
	if b.Empty() {
		return nil
	}
	return s.commit(b, nil)
}
