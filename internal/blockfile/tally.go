package blockfile

import (
	"cmp"
	"math"
	"slices"

	"varve/internal/model"
)

// A Tally computes a file's properties from its samples.
type Tally struct {
	props  Properties
	expiry []expiry

	series model.SeriesNumber // of the last chunk
	latest int64              // the latest expiry of its samples so far
}

// expiry is when a chunk expires, and its number of samples.
type expiry struct {
	ms      int64
	samples int64
}

// NewTally begins a tally of a file of samples, or of buckets. p has what was read from
// the header.
func NewTally(p Properties) Tally {
	return Tally{props: Properties{StepMS: p.StepMS, Sketches: p.Sketches}}
}

// Add counts the samples of the next chunk, in the order of the file.
func (t *Tally) Add(series model.SeriesNumber, c *model.Columns) { t.add(series, c, 0, c.Len()) }

// add counts samples [from, to) of c, a chunk.
func (t *Tally) add(series model.SeriesNumber, c *model.Columns, from, to int) {
	p := &t.props
	if p.Chunks == 0 {
		p.MinMS, p.MaxMS = math.MaxInt64, math.MinInt64
	}
	if p.Chunks == 0 || series != t.series {
		t.endSeries()
		t.series, t.latest = series, math.MinInt64
	}
	p.Samples += int64(to - from)
	p.Chunks++
	p.MinMS = min(p.MinMS, c.Times[from])
	p.MaxMS = max(p.MaxMS, lastInstant(c.Times[to-1], p.StepMS))
	latest := int64(math.MinInt64)
	for i := from; i < to && latest < math.MaxInt64; i++ {
		latest = max(latest, model.ExpiryMS(c.Times[i], c.TTL(i)))
	}
	t.latest = max(t.latest, latest)
	if latest < math.MaxInt64 {
		t.expiry = append(t.expiry, expiry{latest, int64(to - from)})
	}
}

// lastInstant returns the last instant of a bucket; of a sample, whose step is 0, it is
// ms.
func lastInstant(ms, stepMS int64) int64 {
	if stepMS == 0 || ms > math.MaxInt64-stepMS+1 {
		return ms
	}
	return ms + stepMS - 1
}

// endSeries applies the series of the last chunk to SeriesExpireMS.
func (t *Tally) endSeries() {
	p := &t.props
	if p.Chunks == 0 {
		p.SeriesExpireMS = math.MaxInt64
		return
	}
	if p.SeriesExpireMS = min(p.SeriesExpireMS, t.latest); p.SeriesExpireMS == 0 {
		p.SeriesExpireMS = 1 // 0 means unknown
	}
}

// Properties returns the result. For a new Tally they lack sequence and deletions, which do not
// follow from the samples.
func (t *Tally) Properties() Properties {
	p := &t.props
	t.endSeries()
	p.ExpiresMS, p.HalfExpiresMS = math.MaxInt64, math.MaxInt64
	slices.SortFunc(t.expiry, func(a, b expiry) int { return cmp.Compare(a.ms, b.ms) })
	var gone int64
	for _, e := range t.expiry {
		gone += e.samples
		if p.HalfExpiresMS == math.MaxInt64 && gone >= (p.Samples+1)/2 {
			p.HalfExpiresMS = e.ms
		}
		if gone == p.Samples {
			p.ExpiresMS = e.ms
		}
	}
	return *p
}
