package embedded

import (
	"context"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// Delete implements store.Deleter.
func (s *Store) Delete(ctx context.Context, deletions ...store.Deletion) error {
	for _, d := range deletions {
		if err := s.delete(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) delete(ctx context.Context, d store.Deletion) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if d.Metric == "" {
		return &store.InputError{Reason: "delete: the metric name may not be empty"}
	}
	if d.Range.StartMS > d.Range.EndMS {
		return nil
	}
	if e := s.failure.Load(); e != nil {
		return e
	}
	s.installing.Lock()
	defer s.installing.Unlock()
	ids, logged, err := s.logDeletion(ctx, d)
	if err != nil || ids.IsEmpty() {
		return err
	}
	if err := logged.wait(ctx); err != nil {
		return s.logError(ctx, err)
	}
	s.metrics.deletions.Inc()
	s.askMerge()
	return s.forgetEmpty(ids)
}

// logDeletion logs a deletion of the series that match now, removes their
// samples from the active head, and hides those in the frozen head and in files.
func (s *Store) logDeletion(ctx context.Context, d store.Deletion) (*roaring.Bitmap, entry, error) {
	// The record's size is known only under the lock, under which nobody waits:
	// make room for what matches now and some more.
	ids, err := s.index.Select(ctx, d.Metric, d.Matchers, nil)
	if err != nil || ids.IsEmpty() {
		return ids, entry{}, err
	}
	if err := s.wal.Load().Reserve(ctx, int(ids.GetSerializedSizeInBytes())+64<<10); err != nil {
		return nil, entry{}, s.logError(ctx, err)
	}
	s.order.Lock()
	defer s.order.Unlock()
	if ids, err = s.index.Select(ctx, d.Metric, d.Matchers, nil); err != nil || ids.IsEmpty() {
		return ids, entry{}, err
	}
	r := &record.Deletion{Sequence: s.order.deletions + 1, Range: d.Range, IDs: ids}
	payload, err := record.AppendDeletion(nil, *r)
	if err != nil {
		return nil, entry{}, err
	}
	log := s.wal.Load()
	logged := entry{log, log.Append(record.TypeDeletion, payload)}
	s.order.deletions = r.Sequence
	s.hide(r)
	return ids, logged, s.deleteFromHead(r)
}

// deleteFromHead removes what a deletion covers from the active head. The order
// lock must be held.
func (s *Store) deleteFromHead(d *record.Deletion) error {
	active := s.active.Load()
	var errs []error
	for ids := d.IDs.Iterator(); ids.HasNext(); {
		errs = append(errs, active.Delete(ids.Next(), d.Range))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete from the head: %w", err)
	}
	return nil
}

// forgetEmpty forgets those of the series that have no sample left. installing
// must be held, so that samples can come only through the active head.
func (s *Store) forgetEmpty(candidates *roaring.Bitmap) error {
	if candidates.IsEmpty() {
		return nil
	}
	st := s.acquire()
	defer s.release(st)
	var empty []uint32
	for ids := candidates.Iterator(); ids.HasNext(); {
		id := ids.Next()
		has, err := s.hasSamples(st, id)
		if err != nil {
			s.log.Warn("can not tell whether a series is empty; it stays", "series", id, "error", err)
			continue
		}
		if !has {
			empty = append(empty, id)
		}
	}
	s.forget(empty)
	return nil
}

// hasSamples reports whether a sample of id is anywhere in st. It reads only
// where deletions leave a doubt, or a file is past the last of its times-to-live.
// Before that, a file counts for each of its series: should this one's samples
// have expired, the merge that drops them asks again.
func (s *Store) hasSamples(st *state, id uint32) (bool, error) {
	kind := s.series.Kind(id)
	if kind == 0 {
		return true, nil // forgotten already
	}
	if _, ok := st.active.Span(id); ok {
		return true, nil
	}
	if st.frozen != nil {
		if _, ok := st.frozen.Span(id); ok && !st.hidden(id, st.frozenDeletions, model.AllTime) {
			return true, nil
		}
	}
	doubt, nowMS := st.frozen != nil, s.now().UnixMilli()
	for _, f := range st.files {
		if !f.Series.Contains(id) {
			continue
		}
		if f.ExpiresMS > nowMS && !st.hidden(id, f.Deletions, f.Range()) {
			return true, nil
		}
		doubt = true
	}
	if !doubt {
		return false, nil
	}
	c := s.newCursor(context.Background(), st, s.now().UnixMilli(), id, kind, store.ReadOptions{Range: model.AllTime, Limit: 1})
	defer c.Close()
	b, err := c.Next()
	return b != nil, err
}

// hidden reports whether a deletion after applied may hide samples of id in r.
func (st *state) hidden(id uint32, applied uint64, r model.TimeRange) bool {
	for _, d := range st.deletions() {
		if d.Sequence > applied && d.Range.Overlaps(r) && d.IDs.Contains(id) {
			return true
		}
	}
	return false
}

// forget takes series out of the index and the registry, unless samples have
// arrived meanwhile.
func (s *Store) forget(ids []uint32) {
	if len(ids) == 0 {
		return
	}
	s.order.Lock()
	defer s.order.Unlock()
	active := s.active.Load()
	kept := ids[:0]
	for _, id := range ids {
		if _, ok := active.Span(id); ok {
			continue
		}
		if series, ok := s.series.Series(id); ok {
			s.index.Remove(id, series)
			kept = append(kept, id)
		}
	}
	if len(kept) == 0 {
		return
	}
	s.series.Forget(kept)
	s.order.forget = append(s.order.forget, kept...)
	s.metrics.forgotten.Add(float64(len(kept)))
}
