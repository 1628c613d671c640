package model

import (
	"math"
	"slices"
	"sort"
)

// MaxTTL is the longest time-to-live of a sample when it is written, in seconds: 20
// years, the maximum of Cassandra. A stored time-to-live counts from the sample's own
// time, so it may exceed MaxTTL if the sample arrived late.
const MaxTTL = 630720000

// Columns holds samples of one series, column by column. Times strictly
// increase unless the producer says descending. Which value columns are filled
// depends on the series' kind:
//
//	Long, Double             Values[i]: int64 bits, IEEE-754 bits
//	String, Complex, Custom  Data[Offsets[i]:Offsets[i+1]], len(Offsets) = n+1
//	Null                     neither
type Columns struct {
	Times   []int64  // ms since the Unix epoch
	Values  []uint64 // fixed kinds
	TTLs    []uint32 // seconds, 0 = none; nil when no sample has one
	Offsets []uint32 // variable kinds
	Data    []byte   // variable kinds

	// Stamps are write timestamps in ms, one for each sample; nil if the reader did
	// not ask for them.
	Stamps []int64
}

// Len returns the number of samples.
func (c *Columns) Len() int { return len(c.Times) }

// Memory is about how many bytes the samples take in memory.
func (c *Columns) Memory() int64 {
	const each = 24 // time, value or offset, time-to-live
	return int64(c.Len())*each + int64(len(c.Data))
}

// Reset empties c and keeps its memory.
func (c *Columns) Reset() {
	c.Times, c.Values, c.TTLs = c.Times[:0], c.Values[:0], c.TTLs[:0]
	c.Offsets, c.Data, c.Stamps = c.Offsets[:0], c.Data[:0], c.Stamps[:0]
}

// Bytes returns the i-th value of a variable kind. It shares c's memory.
func (c *Columns) Bytes(i int) []byte { return c.Data[c.Offsets[i]:c.Offsets[i+1]] }

// TTL returns the i-th sample's time-to-live in seconds, 0 for none.
func (c *Columns) TTL(i int) uint32 {
	if len(c.TTLs) == 0 {
		return 0
	}
	return c.TTLs[i]
}

// AppendFixed adds a sample of kind Long or Double.
func (c *Columns) AppendFixed(ms int64, bits uint64, ttl uint32) {
	c.appendTTL(ttl)
	c.Times = append(c.Times, ms)
	c.Values = append(c.Values, bits)
}

// AppendBytes adds a sample of a variable kind. value is copied.
func (c *Columns) AppendBytes(ms int64, value []byte, ttl uint32) {
	c.appendTTL(ttl)
	if len(c.Offsets) == 0 {
		c.Offsets = append(c.Offsets, 0)
	}
	c.Times = append(c.Times, ms)
	c.Data = append(c.Data, value...)
	c.Offsets = append(c.Offsets, uint32(len(c.Data)))
}

// AppendNull adds a sample of kind Null.
func (c *Columns) AppendNull(ms int64, ttl uint32) {
	c.appendTTL(ttl)
	c.Times = append(c.Times, ms)
}

// AppendFrom adds the i-th sample of src, which has the given kind, with its
// write timestamp if src has any.
func (c *Columns) AppendFrom(kind Kind, src *Columns, i int) {
	if len(src.Stamps) > 0 {
		c.Stamps = append(c.Stamps, src.Stamps[i])
	}
	switch {
	case kind.Fixed():
		c.AppendFixed(src.Times[i], src.Values[i], src.TTL(i))
	case kind.Variable():
		c.AppendBytes(src.Times[i], src.Bytes(i), src.TTL(i))
	default:
		c.AppendNull(src.Times[i], src.TTL(i))
	}
}

// Append adds the samples of src with indexes in [from, to). Both must have the same
// kind.
func (c *Columns) Append(src *Columns, from, to int) {
	if from >= to {
		return
	}
	if len(src.TTLs) > 0 || len(c.TTLs) > 0 {
		c.TTLs = padded(c.TTLs, len(c.Times))
		if len(src.TTLs) > 0 {
			c.TTLs = append(c.TTLs, src.TTLs[from:to]...)
		} else {
			c.TTLs = padded(c.TTLs, len(c.Times)+to-from)
		}
	}
	c.Times = append(c.Times, src.Times[from:to]...)
	if len(src.Stamps) > 0 {
		c.Stamps = append(c.Stamps, src.Stamps[from:to]...)
	}
	switch {
	case len(src.Values) > 0:
		c.Values = append(c.Values, src.Values[from:to]...)
	case len(src.Offsets) > 0:
		c.appendData(src, from, to)
	}
}

func (c *Columns) appendData(src *Columns, from, to int) {
	if len(c.Offsets) == 0 {
		c.Offsets = append(c.Offsets, 0)
	}
	shift := uint32(len(c.Data)) - src.Offsets[from]
	c.Data = append(c.Data, src.Data[src.Offsets[from]:src.Offsets[to]]...)
	for _, end := range src.Offsets[from+1 : to+1] {
		c.Offsets = append(c.Offsets, end+shift)
	}
}

// padded returns times-to-live, extended with zeros to length n.
func padded(ttls []uint32, n int) []uint32 {
	for len(ttls) < n {
		ttls = append(ttls, 0)
	}
	return ttls
}

// Slice returns the samples with indexes in [from, to). They share c's memory.
func (c *Columns) Slice(from, to int) Columns {
	s := Columns{Times: c.Times[from:to]}
	switch {
	case len(c.Values) > 0:
		s.Values = c.Values[from:to]
	case len(c.Offsets) > 0:
		s.Offsets, s.Data = c.Offsets[from:to+1], c.Data
	}
	if len(c.TTLs) > 0 {
		s.TTLs = c.TTLs[from:to]
	}
	if len(c.Stamps) > 0 {
		s.Stamps = c.Stamps[from:to]
	}
	return s
}

// Within returns the indexes [from, to) of the samples that lie in r. The samples must be
// ascending.
func (c *Columns) Within(r TimeRange) (from, to int) {
	from = sort.Search(len(c.Times), func(i int) bool { return c.Times[i] >= r.StartMS })
	to = from + sort.Search(len(c.Times)-from, func(i int) bool { return c.Times[from+i] > r.EndMS })
	return from, to
}

// Drop removes the samples for which drop returns true. If there are any, Drop copies the
// other samples into spare's memory, and c and spare swap their memory.
func (c *Columns) Drop(spare *Columns, drop func(i int) bool) {
	first := 0
	for first < c.Len() && !drop(first) {
		first++
	}
	if first == c.Len() {
		return
	}
	spare.Reset()
	spare.Append(c, 0, first)
	for from := first + 1; from < c.Len(); {
		to := from
		for to < c.Len() && !drop(to) {
			to++
		}
		spare.Append(c, from, to)
		from = to + 1
	}
	*c, *spare = *spare, *c
}

// DropExpired removes the samples whose time-to-live has passed, as Drop does.
func (c *Columns) DropExpired(spare *Columns, nowMS int64) {
	if len(c.TTLs) == 0 {
		return
	}
	c.Drop(spare, func(i int) bool { return ExpiryMS(c.Times[i], c.TTLs[i]) <= nowMS })
}

// Reverse reverses the order of the samples. Fixed kinds are reversed in place. Variable
// kinds are copied into spare's memory, and c and spare swap their memory.
func (c *Columns) Reverse(spare *Columns) {
	if len(c.Offsets) > 0 {
		spare.Reset()
		for i := c.Len(); i > 0; i-- {
			spare.Append(c, i-1, i)
		}
		*c, *spare = *spare, *c
		return
	}
	slices.Reverse(c.Times)
	slices.Reverse(c.Values)
	slices.Reverse(c.TTLs)
	slices.Reverse(c.Stamps)
}

// appendTTL must run before the sample's time is added: the first non-zero time-to-live
// adds zeros for all earlier samples.
func (c *Columns) appendTTL(ttl uint32) {
	if ttl == 0 && len(c.TTLs) == 0 {
		return
	}
	c.TTLs = append(padded(c.TTLs, len(c.Times)), ttl)
}

// ExpiryMS returns when a sample at ms with a time-to-live of ttl seconds expires: the
// first millisecond at which it is invisible. Without a time-to-live the result is
// math.MaxInt64, never.
func ExpiryMS(ms int64, ttl uint32) int64 {
	if ttl == 0 {
		return math.MaxInt64
	}
	life := int64(ttl) * 1000
	if ms > math.MaxInt64-life {
		return math.MaxInt64
	}
	return ms + life
}

// Stats summarises consecutive samples of a Long or Double series. Min, Max and Sum are
// of the values as float64. -0 is less than 0. Values are added left to right, so the
// sum may be infinite or NaN even if no value is.
type Stats struct {
	Count           int
	FirstMS, LastMS int64
	First, Last     uint64 // value bits
	Min, Max, Sum   float64
}

// A StatSet is the set of Stats fields that a reader needs besides count and times. The
// other fields may have any value.
type StatSet uint8

const (
	StatSum StatSet = 1 << iota
	StatMin
	StatMax
	StatFirst
	StatLast

	AllStats = StatSum | StatMin | StatMax | StatFirst | StatLast
)

// Float returns a fixed value as a float64.
func Float(k Kind, bits uint64) float64 {
	if k == Long {
		return float64(int64(bits))
	}
	return math.Float64frombits(bits)
}

// Bits returns a number as a value of a fixed kind, rounded for Long.
func Bits(k Kind, v float64) uint64 {
	if k != Long {
		return math.Float64bits(v)
	}
	v = math.RoundToEven(v)
	switch {
	case v >= 1<<63:
		return math.MaxInt64
	case v < -1<<63:
		return 1 << 63
	}
	return uint64(int64(v))
}
