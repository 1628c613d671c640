package ingest

import (
	"fmt"
	"math"

	"varve/internal/model"
	"varve/internal/store"
)

// TTLFrom says when the time-to-live of a point begins.
type TTLFrom string

const (
	FromWrite     TTLFrom = "write"     // as in KairosDB by default
	FromTimestamp TTLFrom = "timestamp" // KairosDB's align_datapoint_ttl_with_timestamp
)

// NeverExpires stands for a time-to-live that was sent as 0: default_ttl does not
// apply to the point. 0 stands for a point that was sent without a time-to-live.
const NeverExpires = math.MaxUint32

// CheckTTL turns a number into a time-to-live in seconds, 0 for none.
func CheckTTL(v int64) (uint32, *Fault) {
	if v < 0 || v > model.MaxTTL {
		return 0, Faultf(BadTTL, "ttl of %d seconds must be between 0 and %d", v, int64(model.MaxTTL))
	}
	return uint32(v), nil
}

// SentTTL is CheckTTL for a time-to-live that comes with a point, where 0 is
// NeverExpires.
func SentTTL(v int64) (uint32, *Fault) {
	ttl, f := CheckTTL(v)
	if f == nil && ttl == 0 {
		ttl = NeverExpires
	}
	return ttl, f
}

var (
	faultExpired = Faultf(Expired, "timestamp plus ttl has passed already; ingest.ttl_from is timestamp")
	faultTooOld  = Faultf(BadTTL, "timestamp is more than a century ago, too long for a ttl that counts from the write")
)

// AddLong adds a sample of a Long series to the batch of the running fill
// function. ttl is as it was sent.
func (w *Writer) AddLong(r store.Ref, ms, v int64, ttl uint32) *Fault {
	ttl, f := w.admit(r, model.Long, ms, uint64(v), nil, ttl)
	if f == nil {
		w.batch.AddLong(r, ms, v, ttl)
	}
	return f
}

// AddDouble is AddLong for a Double series.
func (w *Writer) AddDouble(r store.Ref, ms int64, v float64, ttl uint32) *Fault {
	ttl, f := w.admit(r, model.Double, ms, math.Float64bits(v), nil, ttl)
	if f == nil {
		w.batch.AddDouble(r, ms, v, ttl)
	}
	return f
}

// AddBytes is AddLong for a series of a variable kind. v is copied.
func (w *Writer) AddBytes(k model.Kind, r store.Ref, ms int64, v []byte, ttl uint32) *Fault {
	ttl, f := w.admit(r, k, ms, 0, v, ttl)
	if f == nil {
		w.batch.AddBytes(r, ms, v, ttl)
	}
	return f
}

// AddNull is AddLong for a Null series.
func (w *Writer) AddNull(r store.Ref, ms int64, ttl uint32) *Fault {
	ttl, f := w.admit(r, model.Null, ms, 0, nil, ttl)
	if f == nil {
		w.batch.AddNull(r, ms, ttl)
	}
	return f
}

// admit turns the time-to-live of a sample as it was sent into the one that is
// stored. A Fault says why the sample cannot be stored.
func (w *Writer) admit(r store.Ref, k model.Kind, ms int64, value uint64, data []byte, ttl uint32) (uint32, *Fault) {
	ttl, f := w.lifetime(ms, ttl)
	if f != nil || w.p.checker == nil {
		return ttl, f
	}
	if err := w.p.checker.CheckSample(r, k, ms, value, data, ttl); err != nil {
		return 0, &Fault{Reason: Refused, Text: err.Error(), Err: err}
	}
	return ttl, nil
}

// lifetime turns a time-to-live as it was sent into the one that is stored, in
// seconds from the sample's time, 0 for none.
func (w *Writer) lifetime(ms int64, ttl uint32) (uint32, *Fault) {
	p := w.p
	switch {
	case p.cfg.ForceDefaultTTL || ttl == 0:
		ttl = p.defaultTTL
	case ttl == NeverExpires:
		ttl = 0
	}
	switch {
	case ttl == 0:
		return 0, nil
	case p.cfg.TTLFrom == FromTimestamp:
		if model.ExpiryMS(ms, ttl) <= w.nowMS {
			return 0, faultExpired
		}
		return ttl, nil
	}
	return fromWrite(w.nowMS, ms, ttl)
}

// coarse limits the rounding up of a time-to-live, to one part in coarse. Points arrive with
// different delays; after rounding, most points of a series have the same time-to-live, which takes
// no space.
const coarse = 1024

// century is 100 years, in seconds. With MaxTTL it is still a uint32.
const century = 36_525 * 24 * 3600

// fromWrite turns a time-to-live that counts from now into one that counts from the sample's time,
// ms. A sample with a time in the future lives at least until that time.
func fromWrite(nowMS, ms int64, ttl uint32) (uint32, *Fault) {
	step := max(1, int64(ttl)/coarse)
	if ms > nowMS {
		ahead := (ms - nowMS) / 1000 / step * step
		return uint32(max(1, int64(ttl)-ahead)), nil
	}
	if ms < nowMS-century*1000 {
		return 0, faultTooOld
	}
	age := (nowMS - ms + 999) / 1000
	late := (age + step - 1) / step * step
	// Stores take at most MaxTTL from now on.
	return uint32(min(int64(ttl)+late, (nowMS-ms)/1000+model.MaxTTL)), nil
}

// Lifetime returns how long points that are sent like s live, in ms from their own time, if
// they arrive in time. The sample has just arrived. 0 is for ever.
func (p *Pipeline) Lifetime(s *store.Sample, nowMS int64) int64 {
	ms := int64(s.TTL) * 1000
	if ms > 0 && p.cfg.TTLFrom != FromTimestamp {
		ms -= max(0, nowMS-s.TimeMS)
	}
	return max(0, ms)
}

// DefaultLifetime is Lifetime of points that are sent without a time-to-live.
func (p *Pipeline) DefaultLifetime() int64 { return int64(p.defaultTTL) * 1000 }

func checkTTLFrom(from TTLFrom) error {
	if from != FromWrite && from != FromTimestamp {
		return fmt.Errorf("ttl_from: is %q, must be %s or %s", string(from), FromWrite, FromTimestamp)
	}
	return nil
}
