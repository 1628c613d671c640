package chunk

import (
	"math"
	"sort"

	"varve/internal/model"
)

// A Cut defines which samples are reduced, how they are divided into runs, and which
// statistics of a run are computed.
type Cut struct {
	Range model.TimeRange      // samples outside are left out
	Final func(ms int64) int64 // latest time that a run with a sample at ms may have, at least ms
	Needs model.StatSet        // statistics to compute
}

// ReduceEntry appends the statistics of each run of e to dst, in ascending time. The
// result is that of DecodeEntry and a pass over its samples, for less work: times at
// equal steps are not expanded, decimals are divided one by one only for a sum, and
// values are not decoded if no statistic needs them. Samples that are a
// model.StaleMarker are skipped. e must be of a fixed kind. Times-to-live are ignored.
// After an error, a *FormatError, the result is dst unchanged.
func (d *Decoder) ReduceEntry(e *Entry, cut *Cut, dst []model.Stats) ([]model.Stats, error) {
	r := reader{b: e.page[:e.end], pos: e.body}
	times := timeline{count: e.Count, first: e.FirstMS}
	if e.times.mode == timesRegular {
		times.step = regularStep(e.times.count, e.times.first, e.times.last)
	} else {
		times.column = d.sharedTimes(&r, e)
	}
	if r.err == nil && e.flags&flagTTL == ttlColumn {
		d.ints(&r, resize(&d.numbers, e.Count))
	}
	return d.reduce(&r, e.Kind, &times, cut, dst, !e.HasStats, true)
}

// Reduce is ReduceEntry for the chunk at the start of src, which Append has written. If
// samples have times-to-live, ok is false and nothing is appended.
func (d *Decoder) Reduce(src []byte, kind model.Kind, cut *Cut, dst []model.Stats) (_ []model.Stats, ok bool, err error) {
	r := reader{b: src}
	h := readHeader(&r, kind)
	if r.err != nil || h.flags&flagTTL != ttlNone {
		return dst, false, r.err
	}
	times := timeline{count: h.count, first: h.first}
	if h.flags&flagTimes == timesRegular {
		times.step = regularStep(h.count, h.first, h.last)
	} else {
		d.timesOf = timesKey{}
		d.times = d.codedTimes(&r, d.times[:0], h.count, h.first, h.last)
		times.column = d.times
	}
	dst, err = d.reduce(&r, kind, &times, cut, dst, true, false)
	return dst, true, err
}

// reduce reads the values from r and appends the statistics of each run. nan means that
// values may be NaN. closed means that bytes after the values are an error.
func (d *Decoder) reduce(r *reader, kind model.Kind, times *timeline, cut *Cut, dst []model.Stats, nan, closed bool) ([]model.Stats, error) {
	if r.err != nil {
		return dst, r.err
	}
	lo, hi := times.within(cut.Range)
	if lo >= hi {
		return dst, nil
	}
	var v values
	if cut.Needs != 0 || nan && kind == model.Double && !decimalNext(r) {
		v = d.values(r, kind, times.count)
		if r.err == nil && closed && r.pos != len(r.b) {
			r.fail("%d bytes after the entry's columns", len(r.b)-r.pos)
		}
		if r.err != nil {
			return dst, r.err
		}
	}
	if nan && kind == model.Double && v.bits != nil && !v.decimal && model.HasStale(v.bits[lo:hi]) {
		times, lo, hi = d.withoutStale(times, &v, lo, hi)
	}
	for lo < hi {
		first := times.at(lo)
		next := times.after(lo, hi, cut.Final(first))
		dst = append(dst, model.Stats{Count: next - lo, FirstMS: first, LastMS: times.at(next - 1)})
		v.reduce(lo, next, cut.Needs, &dst[len(dst)-1])
		lo = next
	}
	return dst, nil
}

// withoutStale copies the times and values in [lo, hi) that are not staleness markers,
// and returns where the copies are.
func (d *Decoder) withoutStale(times *timeline, v *values, lo, hi int) (kept *timeline, from, to int) {
	d.fresh.Reset()
	for i := lo; i < hi; i++ {
		if v.bits[i] != model.StaleMarker {
			d.fresh.AppendFixed(times.at(i), v.bits[i], 0)
		}
	}
	v.bits = d.fresh.Values
	return &timeline{count: d.fresh.Len(), column: d.fresh.Times}, 0, d.fresh.Len()
}

// decimalNext reports whether the next column of doubles is decimal, which excludes
// NaN.
func decimalNext(r *reader) bool {
	return r.err == nil && r.pos < len(r.b) && r.b[r.pos]&^doubleExponentMask == 0
}

// A timeline holds the times of a chunk: a column of them, or equal steps.
type timeline struct {
	count  int
	first  int64
	step   uint64  // between times, if there is no column
	column []int64 // nil for equal steps
}

// regularStep returns the time between samples at equal steps, 1 if there is only
// one sample.
func regularStep(count int, first, last int64) uint64 {
	if count == 1 {
		return 1
	}
	return (uint64(last) - uint64(first)) / uint64(count-1)
}

func (t *timeline) at(i int) int64 {
	if t.column != nil {
		return t.column[i]
	}
	return int64(uint64(t.first) + uint64(i)*t.step)
}

// after returns the first index from i+1 to hi whose time is after ms, or hi. The
// time of i is not after ms.
func (t *timeline) after(i, hi int, ms int64) int {
	if t.column == nil {
		return int(min(uint64(hi-1), (uint64(ms)-uint64(t.first))/t.step)) + 1
	}
	if t.column[hi-1] <= ms {
		return hi
	}
	lo, stride := i, 1 // short runs cost little, long ones log n
	for lo+stride < hi && t.column[lo+stride] <= ms {
		lo += stride
		stride *= 2
	}
	end := min(lo+stride, hi)
	return lo + sort.Search(end-lo, func(k int) bool { return t.column[lo+k] > ms })
}

// within returns the indexes from lo to hi, exclusive, of the times in r.
func (t *timeline) within(r model.TimeRange) (lo, hi int) {
	last := t.at(t.count - 1)
	if r.StartMS > last || r.EndMS < t.first {
		return 0, 0
	}
	lo, hi = 0, t.count
	if r.EndMS < last {
		hi = t.after(0, t.count, r.EndMS)
	}
	if r.StartMS > t.first {
		lo = t.after(0, t.count, r.StartMS-1)
	}
	return lo, hi
}

// values is a column of fixed values: integers with a scale, or doubles.
type values struct {
	bits    []uint64
	scale   float64 // of mantissas
	kind    model.Kind
	decimal bool // bits are integers to divide by scale, which is 1 for Long
}

// values reads a column of n values.
func (d *Decoder) values(r *reader, kind model.Kind, n int) values {
	v := values{bits: resize(&d.column, n), scale: 1, kind: kind, decimal: true}
	if kind == model.Long {
		d.ints(r, v.bits)
		return v
	}
	if decimalNext(r) {
		v.scale = powersOfTen[r.u8()]
		d.ints(r, v.bits)
		return v
	}
	v.decimal = false
	d.doubles(r, v.bits)
	return v
}

// reduce sets the needed statistics of the values [from,to). There must be at least
// one.
func (v *values) reduce(from, to int, needs model.StatSet, s *model.Stats) {
	if needs == 0 {
		return
	}
	bits := v.bits[from:to]
	if !v.decimal {
		reduceDoubles(bits, needs, s)
		return
	}
	if needs&model.StatMax != 0 {
		s.Max = float64(model.MaxLong(bits)) / v.scale
	}
	if needs&model.StatMin != 0 {
		s.Min = float64(model.MinLong(bits)) / v.scale
	}
	if needs&model.StatSum != 0 {
		s.Sum = sumScaled(bits, v.scale)
	}
	if needs&(model.StatFirst|model.StatLast) != 0 {
		s.First, s.Last = v.exact(bits[0]), v.exact(bits[len(bits)-1])
	}
}

// exact is the value in the form of the series.
func (v *values) exact(bits uint64) uint64 {
	if v.kind == model.Long {
		return bits
	}
	return math.Float64bits(float64(int64(bits)) / v.scale)
}

// sumScaled divides mantissas and adds the quotients, as doubles, from left to right.
func sumScaled(mantissas []uint64, scale float64) (sum float64) {
	if scale == 1 {
		for _, m := range mantissas {
			sum += float64(int64(m))
		}
		return sum
	}
	for _, m := range mantissas {
		sum += float64(int64(m)) / scale
	}
	return sum
}

// reduceDoubles sets the needed statistics of doubles. There must be at least one.
func reduceDoubles(bits []uint64, needs model.StatSet, s *model.Stats) {
	s.First, s.Last = bits[0], bits[len(bits)-1]
	if needs&model.StatSum != 0 {
		s.Sum = model.Sum(model.Double, bits)
	}
	if needs&model.StatMax != 0 {
		s.Max = model.Max(model.Double, bits)
	}
	if needs&model.StatMin != 0 {
		s.Min = model.Min(model.Double, bits)
	}
}
