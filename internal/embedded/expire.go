package embedded

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/record"
)

// expirer forgets series whose samples have all expired, although files still
// have them.
func (s *Store) expirer(ctx context.Context) {
	look := func() {
		if err := s.expireSeries(ctx); err != nil && ctx.Err() == nil {
			s.metrics.expiryScanFailures.Inc()
			s.logger.Warn("cannot look for series whose samples have expired; they stay listed, will retry", "error", err)
		}
	}
	look()
	every(ctx, s.cfg.MaintenanceInterval, look)
}

// expireSeries forgets the series whose last sample has expired since the last
// call, in the active head or in a file. The checkpoint finds what expires in
// the frozen head; later calls find what expires in the file that the checkpoint
// writes.
func (s *Store) expireSeries(ctx context.Context) error {
	s.expiry.Lock()
	defer s.expiry.Unlock()
	candidates, err := s.newlyExpired(ctx)
	return errors.Join(err, s.forgetEmpty(ctx, candidates))
}

// newlyExpired returns the series that may have no samples any more since the last
// call.
func (s *Store) newlyExpired(ctx context.Context) (*roaring.Bitmap, error) {
	nowMS := s.expiredMS()
	ids := roaring.New()
	st := s.acquire()
	defer s.release(st)
	st.active.Expired(nowMS, func(id model.SeriesNumber) { ids.Add(uint32(id)) })
	err := s.expireFiles(ctx, st, nowMS, ids)
	return ids, err
}

// expireFiles adds to candidates the series whose samples in one of the files have all expired, and
// removes series of which another file still has a valid sample. Most series that expire in a file
// continue in a later file, so a file is scanned only if a series in it may have no other sample.
func (s *Store) expireFiles(ctx context.Context, st *state, nowMS int64, candidates *roaring.Bitmap) error {
	var due []*openFile
	for _, f := range st.files {
		if f.expiry.DueMS(f.File) <= nowMS && f.damage.Load() == nil {
			due = append(due, f)
		}
	}
	if len(due) == 0 && candidates.IsEmpty() {
		return nil
	}
	sure := st.sureSeries(nowMS)
	slices.SortStableFunc(due, func(a, b *openFile) int { return cmp.Compare(a.expiry.DueMS(a.File), b.expiry.DueMS(b.File)) })
	var errs []error
	for _, f := range due {
		expired := f.expiry.Take(nowMS)
		if f.expiry.MustScan(f.File, nowMS) && s.mayEmpty(st, f, sure, nowMS) {
			if !s.expiry.allowed.Take(s.now(), f.Bytes) {
				s.metrics.expiryScansPutOff.Inc()
			} else if err := s.scanExpiries(ctx, f, nowMS, expired); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if !s.noteDamage(st, err) {
					errs = append(errs, err)
				}
			}
		}
		if !expired.IsEmpty() {
			candidates.Or(expired)
			f.expiry.Note(expired)
		}
	}
	candidates.AndNot(sure)
	return errors.Join(errs...)
}

// sureSeries returns the series of which a file certainly has a sample that has
// neither expired nor been deleted. It does not read the files.
func (st *state) sureSeries(nowMS int64) *roaring.Bitmap {
	sure := roaring.New()
	for _, f := range st.files {
		if f.expiry.DueMS(f.File) <= nowMS || f.ExpiresMS <= nowMS {
			continue
		}
		if !slices.ContainsFunc(st.deletions(), func(d *record.Deletion) bool { return concerns(d, f.File) }) {
			sure.Or(f.expiry.Rest(f.File))
		}
	}
	return sure
}

// mayEmpty reports whether a series of f may have no samples any more when those in
// f have expired.
func (s *Store) mayEmpty(st *state, f *openFile, sure *roaring.Bitmap, nowMS int64) bool {
	for it := roaring.AndNot(f.expiry.Rest(f.File), sure).Iterator(); it.HasNext(); {
		id := model.SeriesNumber(it.Next())
		if s.series.Kind(id) == 0 {
			continue // forgotten
		}
		if ms, ok := st.active.Expiry(id); !ok || ms <= nowMS {
			return true
		}
	}
	return false
}

// scanExpiries adds the series of f that have expired, and remembers those that will
// expire next.
func (s *Store) scanExpiries(ctx context.Context, f *openFile, nowMS int64, expired *roaring.Bitmap) error {
	s.metrics.expiryScans.Inc()
	s.metrics.expiryScanBytes.Add(float64(f.Bytes))
	return f.expiry.Scan(ctx, f.File, nowMS, expired)
}
