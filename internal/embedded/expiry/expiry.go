// Package expiry remembers when the series of a block file expire, so that a store can forget a
// series whose samples have all expired although files still have them. The properties of a file
// say when its first series expires. From then on, a scan of the file finds the series that
// have expired, and when the next ones expire.
package expiry

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
)

// Kept is the number of series per file whose expiry a scan remembers: 64 KiB of memory for a
// scanned file.
const Kept = 4096

// Rate and Burst limit what scans read: Rate is in bytes per second on average, with files read as
// a whole, Burst in bytes at once.
const (
	Rate  = 16 << 20
	Burst = 512 << 20
)

// Series records when series of one block file expire: all methods that get a file must get that
// one. The zero value relies on the properties of the file. Only one goroutine at a time may call
// methods other than Expired and Rest.
type Series struct {
	scanned bool
	next    []expiry // the series that expire next, in order of expiry
	allMS   int64    // next has all that expire before
	expired atomic.Pointer[roaring.Bitmap]
}

// expiry is when the last sample that a file has of a series expires.
type expiry struct {
	ms int64
	id model.SeriesNumber
}

// DueMS returns when the next series of f expires, math.MaxInt64 if none does or it is not known.
func (s *Series) DueMS(f *blockfile.File) int64 {
	switch {
	case !s.scanned && f.SeriesExpireMS == 0:
		return math.MaxInt64
	case !s.scanned:
		return f.SeriesExpireMS
	case len(s.next) > 0:
		return s.next[0].ms
	}
	return s.allMS
}

// MustScan reports whether f must be scanned to find the series that have
// expired at nowMS.
func (s *Series) MustScan(f *blockfile.File, nowMS int64) bool {
	return !s.scanned && s.DueMS(f) <= nowMS || s.scanned && s.allMS <= nowMS
}

// Take removes the series that have expired from those that come next, and returns them.
func (s *Series) Take(nowMS int64) *roaring.Bitmap {
	ids := roaring.New()
	n := 0
	for ; n < len(s.next) && s.next[n].ms <= nowMS; n++ {
		ids.Add(uint32(s.next[n].id))
	}
	s.next = s.next[n:]
	return ids
}

// Scan reads the heads of f's chunks, adds the series that have expired, and remembers those that
// will next. Series that were noted before are not added.
func (s *Series) Scan(ctx context.Context, f *blockfile.File, nowMS int64, expired *roaring.Bitmap) error {
	c := collector{nowMS: nowMS, expired: expired, allMS: math.MaxInt64}
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
	if known := s.expired.Load(); known != nil {
		expired.AndNot(known)
	}
	s.scanned, s.next, s.allMS = true, slices.Clip(c.next), c.allMS
	return nil
}

// Note records that all samples that the file has of some series have expired.
func (s *Series) Note(ids *roaring.Bitmap) {
	if old := s.expired.Load(); old != nil {
		ids = roaring.Or(old, ids)
	}
	ids.RunOptimize()
	s.expired.Store(ids)
}

// Expired reports whether it is known that all samples that the file has of a series have expired.
func (s *Series) Expired(id model.SeriesNumber) bool {
	expired := s.expired.Load()
	return expired != nil && expired.Contains(uint32(id))
}

// Rest returns the series of which f has a sample that has not expired, as far as is known. It is
// not to be changed.
func (s *Series) Rest(f *blockfile.File) *roaring.Bitmap {
	if expired := s.expired.Load(); expired != nil {
		return roaring.AndNot(f.Series, expired)
	}
	return f.Series
}

// collector keeps the series that expire first, Kept of them.
type collector struct {
	nowMS   int64
	expired *roaring.Bitmap
	next    []expiry
	allMS   int64 // next has all that expire before
}

func (c *collector) add(id model.SeriesNumber, ms int64) {
	switch {
	case ms <= c.nowMS:
		c.expired.Add(uint32(id))
	case ms < c.allMS:
		if c.next = append(c.next, expiry{ms, id}); len(c.next) >= 2*Kept {
			c.cut()
		}
	}
}

// cut sorts what was collected and leaves the first ones.
func (c *collector) cut() {
	slices.SortFunc(c.next, func(a, b expiry) int { return cmp.Compare(a.ms, b.ms) })
	if len(c.next) > Kept {
		c.allMS = c.next[Kept].ms
		c.next = c.next[:Kept]
	}
}

// An Allowance limits how much scans read, see Rate. The zero value allows a whole Burst. It is not
// safe for concurrent use.
type Allowance struct {
	bytes int64 // below 0 after a large file
	at    time.Time
}

// Take reports whether a file of some bytes may be read now. It may be read while any of the
// allowance is left. What it takes beyond that is deducted later.
func (a *Allowance) Take(now time.Time, bytes int64) bool {
	since := min(max(0, now.Sub(a.at)), Burst/Rate*time.Second)
	a.at = now
	a.bytes = min(Burst, a.bytes+int64(since.Seconds()*Rate))
	if a.bytes <= 0 {
		return false
	}
	a.bytes -= bytes
	return true
}
