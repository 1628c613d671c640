package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/writelog"
)

// Delete implements store.Deleter. Consecutive deletions of the same range of time become one
// deletion of the store, with one record in the log.
func (s *Store) Delete(ctx context.Context, deletions ...store.Deletion) error {
	for _, d := range deletions {
		if d.Metric == "" {
			return &store.InputError{Reason: "delete: the metric name may not be empty"}
		}
	}
	for len(deletions) > 0 {
		n := 1
		for n < len(deletions) && deletions[n].Range == deletions[0].Range {
			n++
		}
		if err := s.delete(ctx, deletions[:n]); err != nil {
			return err
		}
		deletions = deletions[n:]
	}
	return nil
}

// delete executes deletions of the same range.
func (s *Store) delete(ctx context.Context, deletions []store.Deletion) error {
	if err := s.log.CheckOpen(ctx); err != nil {
		return err
	}
	if r := deletions[0].Range; r.StartMS > r.EndMS {
		return nil
	}
	if err := s.log.Failure(); err != nil {
		return err
	}
	if err := s.waitWhileFull(ctx); err != nil {
		return err
	}
	ids, logged, err := s.logDeletion(ctx, deletions...)
	if err != nil || ids.IsEmpty() {
		return err
	}
	if err := s.finishErasing(ctx); err != nil {
		s.leaveDoubt(ids)
		return fmt.Errorf("delete samples in memory: %w; the store finishes the deletion by itself", err)
	}
	if err := s.log.Wait(ctx, logged); err != nil {
		s.leaveDoubt(ids)
		return err
	}
	s.askMerge()
	if err := s.forgetEmpty(ctx, ids); err != nil {
		s.leaveDoubt(ids)
		return fmt.Errorf("look for series that the deletion has emptied: %w; the store looks again by itself", err)
	}
	return nil
}

// logDeletion logs deletions of the same range as one, of the series that match now, hides their samples in
// the frozen head and in files, and leaves those in the active head to be erased.
// A series that is introduced during the call counts as written after it.
func (s *Store) logDeletion(ctx context.Context, deletions ...store.Deletion) (*roaring.Bitmap, writelog.Entry, error) {
	st := s.acquire() // keeps ids from being reused meanwhile: see reuseIDs
	defer s.release(st)
	ids, effective := roaring.New(), 0
	for i := range deletions {
		matching, err := s.matching(ctx, &deletions[i])
		if err != nil {
			return nil, writelog.Entry{}, err
		}
		if !matching.IsEmpty() {
			ids.Or(matching)
			effective++
		}
	}
	if ids.IsEmpty() {
		return ids, writelog.Entry{}, nil
	}
	r := &record.Deletion{Range: deletions[0].Range, IDs: ids}
	payload, err := record.AppendDeletion(nil, *r)
	if err != nil {
		return nil, writelog.Entry{}, err
	}
	if err := s.log.Reserve(ctx, len(payload)); err != nil {
		return nil, writelog.Entry{}, err
	}
	erasing := newErasing(r)
	s.cutting.RLock()
	defer s.cutting.RUnlock()
	if err := s.lockErased(ctx); err != nil {
		return nil, writelog.Entry{}, err
	}
	defer s.order.Unlock()
	r.Sequence = s.order.deletions + 1
	record.SetSequence(payload, r.Sequence)
	logged := s.log.AppendRecord(record.TypeDeletion, payload)
	s.order.deletions = r.Sequence
	s.order.unsynced = append(s.undurable(), loggedDeletion{r, logged})
	s.hide(r)
	s.order.erasing = erasing
	s.metrics.deletions.Add(float64(effective))
	return ids, logged, nil
}

// matching returns the series that a deletion concerns.
func (s *Store) matching(ctx context.Context, d *store.Deletion) (*roaring.Bitmap, error) {
	ids, err := s.index.Select(ctx, d.Metric, d.Matchers, nil)
	if err == nil && d.Only != nil {
		ids = s.among(ids, *d.Only)
	}
	return ids, err
}

// among returns the id of a series, if it is one of ids.
func (s *Store) among(ids *roaring.Bitmap, series model.Series) *roaring.Bitmap {
	only := roaring.New()
	if ref, ok := s.Lookup(series.AppendKey(nil)); ok && ids.Contains(uint32(ref)) {
		only.Add(uint32(ref))
	}
	return only
}

// loggedDeletion is a deletion and its log record.
type loggedDeletion struct {
	*record.Deletion
	entry writelog.Entry
}

// undurable removes from unsynced the deletions whose log records are durable,
// and returns the rest. The order lock must be held.
func (s *Store) undurable() []loggedDeletion {
	return slices.DeleteFunc(s.order.unsynced, func(d loggedDeletion) bool { return d.entry.Durable() })
}

// erasing is a deletion that is logged and not yet applied to the whole active
// head. The order lock guards it. Writers take that lock too, so the deletion is
// applied in slices, and to the series of a batch before the batch.
type erasing struct {
	deletion *record.Deletion
	left     *roaring.Bitmap // series still to do
	scratch  []uint32
	errs     []error
}

const (
	// eraseSlice is the time for which erasing holds the order lock at once; a
	// single series may take longer.
	eraseSlice = time.Millisecond

	// eraseSeries is how many series are erased between checks of the clock.
	eraseSeries = 64
)

func newErasing(d *record.Deletion) *erasing {
	return &erasing{deletion: d, left: d.IDs.Clone(), scratch: make([]uint32, eraseSeries)}
}

// run applies the deletion for about the given time, or completely if that is 0. It reports whether
// it has completed.
func (e *erasing) run(active *head.Head, within time.Duration) bool {
	began := time.Now()
	it := e.left.ManyIterator()
	for {
		n := it.NextMany(e.scratch)
		if n == 0 {
			e.left.Clear()
			return true
		}
		for _, id := range e.scratch[:n] {
			e.series(active, model.SeriesNumber(id))
		}
		if within > 0 && time.Since(began) > within {
			e.left.RemoveRange(0, uint64(e.scratch[n-1])+1)
			return e.left.IsEmpty()
		}
	}
}

func (e *erasing) series(active *head.Head, id model.SeriesNumber) {
	if err := active.Delete(id, e.deletion.Range); err != nil && len(e.errs) < 8 {
		e.errs = append(e.errs, err)
	}
}

// before applies the deletion to the series that a batch is about to write.
func (e *erasing) before(active *head.Head, samples []store.Sample) {
	for i := range samples {
		if id := model.SeriesNumber(samples[i].Ref); e.left.CheckedRemove(uint32(id)) {
			e.series(active, id)
		}
	}
}

// lockErased takes the order lock once no deletion is under way.
func (s *Store) lockErased(ctx context.Context) error {
	for {
		s.order.Lock()
		if s.order.erasing == nil {
			return nil
		}
		s.order.Unlock()
		if err := s.finishErasing(ctx); err != nil {
			return err
		}
	}
}

// finishErasing applies the rest of the deletion that is under way, if any. It
// returns the context's error, or an error that reports corrupted data in
// memory.
func (s *Store) finishErasing(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if done, err := s.eraseSome(); done {
			return err
		}
		runtime.Gosched()
	}
}

func (s *Store) eraseSome() (done bool, err error) {
	s.order.Lock()
	defer s.order.Unlock()
	e := s.order.erasing
	if e == nil {
		return true, nil
	}
	if !e.run(s.active.Load(), eraseSlice) {
		return false, nil
	}
	s.order.erasing = nil
	s.askIfLarge()
	return true, errors.Join(e.errs...)
}

// leaveDoubt notes series that may be empty, for settleDoubts.
func (s *Store) leaveDoubt(ids *roaring.Bitmap) {
	s.order.Lock()
	defer s.order.Unlock()
	if s.order.doubtful == nil {
		s.order.doubtful = roaring.New()
	}
	s.order.doubtful.Or(ids)
}

// doubts returns how many series leaveDoubt has noted.
func (s *Store) doubts() uint64 {
	s.order.Lock()
	defer s.order.Unlock()
	if s.order.doubtful == nil {
		return 0
	}
	return s.order.doubtful.GetCardinality()
}

// settleInterval is how often settleDoubts is called.
const settleInterval = time.Second

// settleDoubts finishes the work of cancelled deletes: it erases the remaining
// samples, and forgets the series that have become empty.
func (s *Store) settleDoubts(ctx context.Context) {
	if err := s.finishErasing(ctx); err != nil && ctx.Err() == nil {
		s.logger.Error("a delete could not be applied to damaged samples in memory", "error", err)
	}
	s.order.Lock()
	ids := s.order.doubtful
	s.order.doubtful = nil
	s.order.Unlock()
	if ids == nil {
		return
	}
	if err := s.forgetEmpty(ctx, ids); err != nil && ctx.Err() == nil {
		s.logger.Warn("cannot find out which series are empty; will retry", "error", err)
		s.leaveDoubt(ids)
	}
}

// emptySlice is how many series are checked, and forgotten, together.
const emptySlice = 256

// forgetEmpty forgets those candidates that have no sample left. It holds no lock
// while it reads. A series whose samples arrive or move meanwhile is checked again.
func (s *Store) forgetEmpty(ctx context.Context, candidates *roaring.Bitmap) error {
	var damaged damagedSeries
	buf := make([]uint32, emptySlice)
	for it := candidates.ManyIterator(); ; {
		n := it.NextMany(buf)
		if n == 0 {
			break
		}
		for ids := numbersOf(buf[:n]); len(ids) > 0; {
			st := s.acquire()
			empty, err := s.emptyOf(ctx, st, ids, &damaged)
			if err == nil {
				ids = s.forgetUnlessMoved(empty, st)
			}
			s.release(st)
			if err != nil {
				return err
			}
		}
	}
	if damaged.count > 0 {
		s.logger.Warn("cannot find out whether some series are empty; they stay listed", "series", damaged.count, "last_error", damaged.last)
	}
	return nil
}

// numbersOf lists the elements of a set.
func numbersOf(elements []uint32) []model.SeriesNumber {
	ids := make([]model.SeriesNumber, len(elements))
	for i, e := range elements {
		ids[i] = model.SeriesNumber(e)
	}
	return ids
}

// kindInFiles returns the kind of a series that files may have samples of. It is 0
// for series that the catalogue has removed: their samples in files are no longer
// valid.
func (s *Store) kindInFiles(id model.SeriesNumber) model.Kind {
	if kind := s.series.Kind(id); kind != 0 {
		return kind
	}
	return s.leaving.Kind(id)
}

// setOf is the set of some series.
func setOf(ids []model.SeriesNumber) *roaring.Bitmap {
	set := roaring.New()
	for _, id := range ids {
		set.Add(uint32(id))
	}
	return set
}

// damagedSeries counts series whose samples could not be read.
type damagedSeries struct {
	count int
	last  error
}

// emptyOf returns those ids that have no sample in st, in the memory of ids. The
// only error is that of ctx.
func (s *Store) emptyOf(ctx context.Context, st *state, ids []model.SeriesNumber, damaged *damagedSeries) (empty []model.SeriesNumber, err error) {
	empty = ids[:0]
	for _, id := range ids {
		has, err := s.hasSamples(ctx, st, id)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			damaged.count++
			damaged.last = err
		case !has:
			empty = append(empty, id)
		}
	}
	return empty, nil
}

// hasSamples reports whether a sample of id is anywhere in st. It reads samples
// of a file only if deletions may hide some of them, or if the last expiry time
// in the file has passed. Any other file counts as having samples of each of
// its series, except the series that expireSeries has found expired in that
// file.
func (s *Store) hasSamples(ctx context.Context, st *state, id model.SeriesNumber) (bool, error) {
	kind := s.series.Kind(id)
	if kind == 0 {
		return true, nil // forgotten already
	}
	doubt, nowMS := false, s.expiredMS()
	if ms, ok := st.active.Expiry(id); ok && ms > nowMS {
		return true, nil
	}
	if st.frozen != nil {
		ms, _ := st.frozen.Expiry(id)
		if span, ok := st.frozen.Span(id); ok && ms > nowMS && !st.covered(id, st.frozenDeletions, span) {
			if !st.hidden(id, st.frozenDeletions, span) {
				return true, nil
			}
			doubt = true
		}
	}
	for _, f := range st.files {
		if !f.Series.Contains(uint32(id)) {
			continue
		}
		switch {
		case f.expiry.Expired(id), st.covered(id, f.Deletions, f.Range()):
		case f.ExpiresMS > nowMS && !st.hidden(id, f.Deletions, f.Range()):
			return true, nil
		default:
			doubt = true
		}
	}
	if !doubt {
		return false, nil
	}
	c := s.readStored(ctx, st, nowMS, id, kind, store.ReadOptions{Range: model.AllTime, Limit: 1, Stale: true})
	defer c.Close()
	b, err := c.Next()
	return b != nil, err
}

// hidden reports whether a deletion after applied may hide samples of id in r.
func (st *state) hidden(id model.SeriesNumber, applied uint64, r model.TimeRange) bool {
	for d := range st.hiding.Load().Of(id) {
		if d.Sequence > applied && d.Range.Overlaps(r) {
			return true
		}
	}
	return false
}

// covered reports whether one deletion after applied covers all samples of id in r.
func (st *state) covered(id model.SeriesNumber, applied uint64, r model.TimeRange) bool {
	for d := range st.hiding.Load().Of(id) {
		if d.Sequence > applied && d.Range.StartMS <= r.StartMS && r.EndMS <= d.Range.EndMS {
			return true
		}
	}
	return false
}

// forget forgets series without samples, unless samples have arrived meanwhile.
func (s *Store) forget(ids []model.SeriesNumber) {
	st := s.acquire()
	defer s.release(st)
	for slice := range slices.Chunk(ids, emptySlice) {
		s.forgetUnlessMoved(slice, st)
	}
}

// forgetUnlessMoved removes series that have no samples in st from the index and
// the registry, unless samples have arrived meanwhile. It returns the series
// that may have samples in a head frozen after st, or in a file written after
// st.
func (s *Store) forgetUnlessMoved(ids []model.SeriesNumber, st *state) (moved []model.SeriesNumber) {
	if len(ids) == 0 {
		return nil
	}
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	now := s.current // it stays complete while order is held: see swapHead
	s.mu.Unlock()
	files := slices.DeleteFunc(slices.Clone(now.files), func(f *openFile) bool { return now == st || slices.Contains(st.files, f) })
	active, nowMS := s.active.Load(), s.expiredMS()
	var gone []model.SeriesNumber
	for _, id := range ids {
		switch ms, inHead := active.Expiry(id); {
		case inHead && ms > nowMS:
		case now.movedSince(st, id, files):
			moved = append(moved, id)
		default:
			gone = append(gone, id)
		}
	}
	s.forgetLocked(gone)
	return moved
}

// forgetSuperseded forgets series whose keys now belong to other ids. Such a
// series was forgotten, and then created again under a new id. So samples that the
// log or files have under the old id are not valid.
func (s *Store) forgetSuperseded(ids []model.SeriesNumber) {
	s.order.Lock()
	defer s.order.Unlock()
	s.forgetLocked(ids)
}

// forgetLocked removes series from the index, the head and the registry. No reader
// may be able to ask for their samples any more. The order lock must be held.
func (s *Store) forgetLocked(ids []model.SeriesNumber) {
	active := s.active.Load()
	gone := make([]model.SeriesNumber, 0, len(ids))
	for _, id := range ids {
		series, ok := s.series.Series(id)
		if !ok {
			continue
		}
		s.index.Remove(id, series)
		_ = active.Delete(id, model.AllTime) // a deletion of all time reads nothing, so it cannot fail
		s.leaving.Add(id, s.series.Kind(id))
		gone = append(gone, id)
	}
	if len(gone) > 0 {
		s.series.Forget(gone)
		s.order.forget = append(s.order.forget, gone...)
		s.metrics.forgotten.Add(float64(len(gone)))
	}
}

// movedSince reports whether id may have samples that old does not have: in the
// frozen head of st, if old has another one, or in one of files, none of which old
// has.
func (st *state) movedSince(old *state, id model.SeriesNumber, files []*openFile) bool {
	if st.frozen != nil && st.frozen != old.frozen {
		if _, ok := st.frozen.Span(id); ok {
			return true
		}
	}
	return slices.ContainsFunc(files, func(f *openFile) bool { return f.Series.Contains(uint32(id)) })
}
