package embedded

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/record"
)

const (
	// expiriesKept is the number of series of a file of which a scan remembers
	// when they expire: 64 KiB of memory for a file that was scanned.
	expiriesKept = 4096

	// scanRate and scanBurst limit what scans for expired series read: scanRate is in bytes per
	// second on average, with files read as a whole, scanBurst in bytes at once.
	scanRate  = 16 << 20
	scanBurst = 512 << 20
)

// expiries is what a store knows of the series of a block file whose samples have
// times-to-live. It is guarded by Store.expiry, but for openFile.expired.
type expiries struct {
	scanned bool
	next    []expiry // those that expire next, the first one first
	allMS   int64    // next has all that expire before
}

// expiry is when the last sample that a file has of a series expires.
type expiry struct {
	ms int64
	id model.SeriesNumber
}

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

// expireSeries forgets the series of which the last sample has expired since the
// last call, in the active head or in a file. What expires in the frozen head is
// found by the checkpoint, or in the file that it writes.
func (s *Store) expireSeries(ctx context.Context) error {
	s.expiry.Lock()
	defer s.expiry.Unlock()
	candidates, err := s.newlyExpired(ctx)
	return errors.Join(err, s.forgetEmpty(ctx, candidates))
}

// newlyExpired returns the series that may have no samples any more since the last
// call.
func (s *Store) newlyExpired(ctx context.Context) (*roaring.Bitmap, error) {
	nowMS := s.now().UnixMilli()
	ids := roaring.New()
	st := s.acquire()
	defer s.release(st)
	st.active.Expired(nowMS, func(id model.SeriesNumber) { ids.Add(uint32(id)) })
	err := s.expireFiles(ctx, st, nowMS, ids)
	return ids, err
}

// expireFiles adds the series whose samples in one of the files have all expired, and removes those
// that another file still has. Most series that expire in a file continue in a later one: a file is
// scanned only if a series may have no other sample.
func (s *Store) expireFiles(ctx context.Context, st *state, nowMS int64, candidates *roaring.Bitmap) error {
	var due []*openFile
	for _, f := range st.files {
		if f.expiryDue() <= nowMS && f.damage.Load() == nil {
			due = append(due, f)
		}
	}
	if len(due) == 0 && candidates.IsEmpty() {
		return nil
	}
	sure := st.sureSeries(nowMS)
	slices.SortStableFunc(due, func(a, b *openFile) int { return cmp.Compare(a.expiryDue(), b.expiryDue()) })
	var errs []error
	for _, f := range due {
		expired := f.takeExpired(nowMS)
		if f.mustScan(nowMS) && s.mayEmpty(st, f, sure, nowMS) {
			if !s.mayScan(f) {
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
			f.addExpired(expired)
		}
	}
	candidates.AndNot(sure)
	return errors.Join(errs...)
}

// sureSeries returns the series of which a file has a sample that has neither expired
// nor been deleted, as far as that is known without reading.
func (st *state) sureSeries(nowMS int64) *roaring.Bitmap {
	sure := roaring.New()
	for _, f := range st.files {
		if f.expiryDue() <= nowMS || f.ExpiresMS <= nowMS {
			continue
		}
		if !slices.ContainsFunc(st.deletions(), func(d *record.Deletion) bool { return concerns(d, f.File) }) {
			sure.Or(f.unexpired())
		}
	}
	return sure
}

// expiryDue returns when the next series of f expires, math.MaxInt64 if none does
// or it is not known.
func (f *openFile) expiryDue() int64 {
	e := &f.expiries
	switch {
	case !e.scanned && f.SeriesExpireMS == 0:
		return math.MaxInt64
	case !e.scanned:
		return f.SeriesExpireMS
	case len(e.next) > 0:
		return e.next[0].ms
	}
	return e.allMS
}

// mustScan reports whether what is known of f's series ends at nowMS or before.
func (f *openFile) mustScan(nowMS int64) bool {
	e := &f.expiries
	return !e.scanned && f.expiryDue() <= nowMS || e.scanned && e.allMS <= nowMS
}

// takeExpired removes the series that have expired from those that come next.
func (f *openFile) takeExpired(nowMS int64) *roaring.Bitmap {
	e := &f.expiries
	ids := roaring.New()
	n := 0
	for ; n < len(e.next) && e.next[n].ms <= nowMS; n++ {
		ids.Add(uint32(e.next[n].id))
	}
	e.next = e.next[n:]
	return ids
}

// addExpired adds to f.expired.
func (f *openFile) addExpired(ids *roaring.Bitmap) {
	if old := f.expired.Load(); old != nil {
		ids = roaring.Or(old, ids)
	}
	ids.RunOptimize()
	f.expired.Store(ids)
}

// unexpired returns the series of which f has a sample that has not expired, as
// far as is known. It is not to be changed.
func (f *openFile) unexpired() *roaring.Bitmap {
	if expired := f.expired.Load(); expired != nil {
		return roaring.AndNot(f.Series, expired)
	}
	return f.Series
}

// hasExpired reports whether it is known that all samples that f has of a series
// have expired.
func (f *openFile) hasExpired(id model.SeriesNumber) bool {
	expired := f.expired.Load()
	return expired != nil && expired.Contains(uint32(id))
}

// mayEmpty reports whether a series of f may have no samples any more when those in
// f have expired.
func (s *Store) mayEmpty(st *state, f *openFile, sure *roaring.Bitmap, nowMS int64) bool {
	for it := roaring.AndNot(f.unexpired(), sure).Iterator(); it.HasNext(); {
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

// mayScan reports whether f may be read now. A file may be read while any of the allowance since
// the last one is left. What it takes beyond that is deducted later.
func (s *Store) mayScan(f *openFile) bool {
	now := s.now()
	since := min(max(0, now.Sub(s.expiry.allowedAt)), scanBurst/scanRate*time.Second)
	s.expiry.allowedAt = now
	s.expiry.allowed = min(scanBurst, s.expiry.allowed+int64(since.Seconds()*scanRate))
	if s.expiry.allowed <= 0 {
		return false
	}
	s.expiry.allowed -= f.Bytes
	return true
}

// scanExpiries reads the heads of f's chunks, adds the series that have expired, and
// remembers those that will next.
func (s *Store) scanExpiries(ctx context.Context, f *openFile, nowMS int64, expired *roaring.Bitmap) error {
	s.metrics.expiryScans.Inc()
	s.metrics.expiryScanBytes.Add(float64(f.Bytes))
	c := expiryCollector{nowMS: nowMS, expired: expired, allMS: math.MaxInt64}
	var id model.SeriesNumber
	last := int64(math.MinInt64)
	err := f.Scan(ctx, func(e *chunk.Entry) {
		if e.Series != id && last > math.MinInt64 {
			c.add(id, last)
			last = math.MinInt64
		}
		id, last = e.Series, max(last, e.MaxExpiryMS)
	})
	if err != nil {
		return err
	}
	c.add(id, last)
	c.cut()
	if known := f.expired.Load(); known != nil {
		expired.AndNot(known)
	}
	f.expiries = expiries{scanned: true, next: slices.Clip(c.next), allMS: c.allMS}
	return nil
}

// expiryCollector keeps the series that expire first, expiriesKept of them.
type expiryCollector struct {
	nowMS   int64
	expired *roaring.Bitmap
	next    []expiry
	allMS   int64 // next has all that expire before
}

func (c *expiryCollector) add(id model.SeriesNumber, ms int64) {
	switch {
	case ms <= c.nowMS:
		c.expired.Add(uint32(id))
	case ms < c.allMS:
		if c.next = append(c.next, expiry{ms, id}); len(c.next) >= 2*expiriesKept {
			c.cut()
		}
	}
}

// cut sorts what was collected and leaves the first ones.
func (c *expiryCollector) cut() {
	slices.SortFunc(c.next, func(a, b expiry) int { return cmp.Compare(a.ms, b.ms) })
	if len(c.next) > expiriesKept {
		c.allMS = c.next[expiriesKept].ms
		c.next = c.next[:expiriesKept]
	}
}
