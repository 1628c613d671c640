package chunk

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"varve/internal/model"
	"varve/internal/quantile"
)

// The generators make columns of every kind and shape that the codec treats
// apart. They are driven by a random source, so that a seed repeats a failure.

var kinds = []model.Kind{model.Long, model.Double, model.String, model.Complex, model.Null, model.Custom, model.AggregateKind}

// randomColumns makes n samples of the given kind.
func randomColumns(rng *rand.Rand, kind model.Kind, n int) *model.Columns {
	c := &model.Columns{Times: randomTimes(rng, n)}
	switch {
	case kind == model.Long:
		c.Values = randomLongs(rng, n)
	case kind == model.Double:
		c.Values = randomDoubles(rng, n)
	case kind.Variable():
		randomBytes(rng, kind, n, c)
	}
	c.TTLs = randomTTLs(rng, n)
	return c
}

func randomTimes(rng *rand.Rand, n int) []int64 {
	times := make([]int64, n)
	t := int64(1_700_000_000_000) + rng.Int64N(1_000_000)
	switch rng.IntN(6) {
	case 0: // regular
		step := 1 + rng.Int64N(100_000)
		for i := range times {
			times[i] = t + int64(i)*step
		}
	case 1: // jitter around a grid
		for i := range times {
			times[i] = t + int64(i)*10_000 + rng.Int64N(21) - 10
		}
	case 2: // gaps
		for i := range times {
			times[i] = t
			t += 10_000 * (1 + int64(rng.IntN(20)/19)*rng.Int64N(50))
		}
	case 3: // arbitrary distances
		for i := range times {
			times[i] = t
			t += 1 + rng.Int64N(1<<rng.IntN(40))
		}
	case 4: // the whole range of times
		step := uint64(math.MaxUint64) / uint64(n)
		for i := range times {
			times[i] = int64(uint64(1)<<63 + uint64(i)*step + rng.Uint64N(step))
		}
		times[0] = math.MinInt64
		if n > 1 {
			times[n-1] = math.MaxInt64
		}
	default: // negative, dense
		for i := range times {
			times[i] = -int64(n) + int64(i)
		}
	}
	return times
}

func randomLongs(rng *rand.Rand, n int) []uint64 {
	vals := make([]uint64, n)
	v := int64(rng.Uint64()) >> rng.IntN(64)
	shape, bits := rng.IntN(8), rng.IntN(63)
	for i := range vals {
		switch shape {
		case 0:
		case 1: // counter with resets
			v += rng.Int64N(1000)
			if rng.IntN(100) == 0 {
				v = 0
			}
		case 2: // gauge
			v += rng.Int64N(1<<bits) - 1<<bits>>1
		case 3: // level with spikes both ways
			v = 500 + rng.Int64N(8)
			if rng.IntN(40) == 0 {
				v += (rng.Int64N(3) - 1) << rng.IntN(62)
			}
		case 4: // any bits
			v = int64(rng.Uint64())
		case 5: // ends of the range
			v = [...]int64{math.MinInt64, math.MaxInt64, 0, -1, 1}[rng.IntN(5)]
		case 6: // steady growth
			v += 1 << bits
		case 7: // acceleration
			v = int64(i) * int64(i) * 3
		}
		vals[i] = uint64(v)
	}
	return vals
}

var oddDoubles = []uint64{
	0x7ff8000000000001, 0x7ff0000000000001, 0xfff8dead0000beef, // NaN
	1 << 63, 0, // both zeros
	0x7ff0000000000000, 0xfff0000000000000, // infinities
	1, 0x000fffffffffffff, 0x800fffffffffffff, // denormal
	0x7fefffffffffffff, 0x0010000000000000, // largest, smallest normal
	math.Float64bits(9e15), math.Float64bits(1 << 53), math.Float64bits(-1e-15), math.Float64bits(0.1 + 0.2),
}

func randomDoubles(rng *rand.Rand, n int) []uint64 {
	vals := make([]uint64, n)
	v := float64(rng.IntN(10_000))
	shape, digits := rng.IntN(8), rng.IntN(6)
	scale := math.Pow10(digits)
	for i := range vals {
		switch shape {
		case 0: // constant
		case 1: // decimal walk
			v = math.Round((v+rng.NormFloat64())*scale) / scale
		case 2: // decimal with something odd now and then
			v = math.Round(rng.Float64()*1000*scale) / scale
			if rng.IntN(30) == 0 {
				v = math.Float64frombits(oddDoubles[rng.IntN(len(oddDoubles))])
			}
		case 3: // full precision
			v = rng.Float64() * 100
		case 4: // full precision, both signs, many magnitudes
			v = rng.NormFloat64() * math.Pow(10, float64(rng.IntN(40)-20))
		case 5:
			v = math.Float64frombits(rng.Uint64())
		case 6:
			v = math.Float64frombits(oddDoubles[rng.IntN(len(oddDoubles))])
		case 7: // large integers
			v += float64(rng.Int64N(1 << 50))
		}
		vals[i] = math.Float64bits(v)
	}
	return vals
}

func randomBytes(rng *rand.Rand, kind model.Kind, n int, c *model.Columns) {
	shape := rng.IntN(5)
	if kind == model.Complex && shape > 1 {
		parts := [2][]uint64{randomDoubles(rng, n), randomDoubles(rng, n)}
		c.Offsets = append(c.Offsets, 0)
		for i := range n {
			c.Data = binary.BigEndian.AppendUint64(c.Data, parts[0][i])
			c.Data = binary.BigEndian.AppendUint64(c.Data, parts[1][i])
			c.Offsets = append(c.Offsets, uint32(len(c.Data)))
		}
		return
	}
	if kind == model.AggregateKind && shape > 1 {
		sums, lasts, counts := randomDoubles(rng, n), randomDoubles(rng, n), randomLongs(rng, n)
		c.Offsets = append(c.Offsets, 0)
		for i := range n {
			a := model.Aggregate{Sum: math.Float64frombits(sums[i]), Count: int64(counts[i]), Last: math.Float64frombits(lasts[i])}
			a.Min, a.Max, a.LastMS = a.Last, a.Sum, c.Times[i]+rng.Int64N(60_000)
			if shape == 4 && rng.IntN(5) > 0 {
				a.Sketch = quantile.Of(randomSketched(rng)...)
			}
			c.Data = a.Append(c.Data)
			c.Offsets = append(c.Offsets, uint32(len(c.Data)))
		}
		return
	}
	c.Offsets = append(c.Offsets, 0)
	for i := range n {
		switch shape {
		case 0:
			c.Data = append(c.Data, "up"...)
		case 1: // few distinct
			c.Data = append(c.Data, [...]string{"ok", "warning", "", "critical: disk full"}[rng.IntN(4)]...)
		case 2: // alike
			c.Data = fmt.Appendf(c.Data, "request %d took %d ms", i, rng.IntN(1000))
		case 3: // random bytes
			for range rng.IntN(20) {
				c.Data = append(c.Data, byte(rng.Uint32()))
			}
		case 4: // empty
		}
		c.Offsets = append(c.Offsets, uint32(len(c.Data)))
	}
}

// randomSketched makes the values of a sketch, at times few distinct ones.
func randomSketched(rng *rand.Rand) []float64 {
	values := make([]float64, 1+rng.IntN(20))
	for i := range values {
		values[i] = math.Exp(rng.NormFloat64())
		if len(values) < 5 {
			values[i] = 1
		}
	}
	return values
}

func randomTTLs(rng *rand.Rand, n int) []uint32 {
	ttls := make([]uint32, n)
	switch rng.IntN(6) {
	case 0:
		for i := range ttls {
			ttls[i] = 86400
		}
	case 1:
		for i := range ttls {
			ttls[i] = uint32(rng.IntN(3)) * 3600
		}
	case 2:
		for i := range ttls {
			ttls[i] = 1 + rng.Uint32N(model.MaxTTL)
		}
	default:
		return nil
	}
	return ttls
}
