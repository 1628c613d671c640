package numeric

import (
	"math"
	"unsafe"
)

// A part is the state of an aggregation after the values of a part of a window. Its zero value is that
// of no values. Nothing is ever taken out of a part, so that a value that has left the window
// leaves no rounding behind.
type part[P any] interface {
	addition | spread | product
	of(v float64) P     // a part of one value
	joined(later P) P   // with the values of the part behind it
	size() (values int) // how many it has
}

// inBlocks is Windows by parts. The values are divided into blocks as long as a window. A
// window that begins in a block is the end of that block, whose parts were made before, from
// the last value to the first, and the beginning of the next one, to which each window adds a value.
// result makes the value of the window that ends behind values[i+points].
func inBlocks[P part[P]](out, values []float64, points int, scale, xFilesFactor float64, result func(p P, i int) (float64, error), check func() error) error {
	ends := make([]P, min(points, len(out))) // ends[k] is of the values of the block from the k-th on
	looks := 0
	look := func() error {
		if looks++; looks%slidingLook != 0 {
			return nil
		}
		return check()
	}
	var none P
	for first := 0; first < len(out); first += points {
		block, end := values[first+1:first+1+points], none
		for k := points - 1; k >= 0; k-- {
			if v := block[k]; !IsNull(v) {
				end = none.of(v * scale).joined(end)
			}
			if k < len(ends) {
				ends[k] = end
			}
			if err := look(); err != nil {
				return err
			}
		}
		begin := none // of the next block
		for i := first; i < min(first+points, len(out)); i++ {
			if v := values[i+points]; i > first && !IsNull(v) {
				begin = begin.joined(none.of(v * scale))
			}
			out[i] = Null
			if window := ends[i-first].joined(begin); Enough(window.size(), float64(points), xFilesFactor) {
				var err error
				if out[i], err = result(window, i); err != nil {
					return err
				}
			}
			if err := look(); err != nil {
				return err
			}
		}
	}
	return nil
}

// A windowsFunc is Windows by one aggregation.
type windowsFunc func(out, values []float64, points int, xFilesFactor float64, check func() error) error

// blockAggregation returns what makes windows longer than [sequentialMax] by parts, nil if nothing does, and how
// many bytes a part has.
func blockAggregation(name string, points int) (windows windowsFunc, partBytes int64) {
	if points > sequentialMax {
		switch name {
		case "sum", "total":
			return sumsInBlocks(addition.sum), int64(unsafe.Sizeof(addition{}))
		case "average", "avg", "avg_zero": // nulls are taken out before
			return sumsInBlocks(addition.mean), int64(unsafe.Sizeof(addition{}))
		case "diff":
			return sumsInBlocks(addition.diff), int64(unsafe.Sizeof(addition{}))
		case "stddev":
			return deviationsInBlocks, int64(unsafe.Sizeof(spread{}))
		case "multiply":
			return productsInBlocks, int64(unsafe.Sizeof(product{}))
		}
	}
	return nil, 0
}

// A double is a sum of two float64, of which the second is what the first lacks.
type double struct{ high, low float64 }

// plus adds without rounding, as long as the sum has no more digits than two float64.
func (d double) plus(e double) double {
	sum := d.high + e.high // and what is lost, by Knuth
	if IsNull(sum) || math.IsInf(sum, 0) {
		return double{sum, 0}
	}
	back := sum - d.high
	low := (d.high - (sum - back)) + (e.high - back) + (d.low + e.low)
	high := sum + low
	return double{high, low - (high - sum)}
}

// over divides by n. Its high part is rounded, and the low one has the rest.
func (d double) over(n float64) double {
	q := d.high / n
	if IsNull(q) || math.IsInf(q, 0) {
		return double{q, 0}
	}
	return double{q, (math.FMA(-q, n, d.high) + d.low) / n}
}

// An addition has the first of the values, and the sum of the others.
type addition struct {
	n     int
	first float64
	rest  double
}

func (addition) of(v float64) addition { return addition{1, v, double{}} }

func (a addition) size() int { return a.n }

func (a addition) joined(b addition) addition {
	if a.n == 0 {
		return b
	}
	if b.n > 0 {
		a.n, a.rest = a.n+b.n, a.rest.plus(double{b.first, 0}).plus(b.rest)
	}
	return a
}

func (a addition) sum() float64  { return double{a.first, 0}.plus(a.rest).high }
func (a addition) mean() float64 { return a.sum() / float64(a.n) }
func (a addition) diff() float64 {
	return double{a.first, 0}.plus(double{-a.rest.high, -a.rest.low}).high
}

// sumsInBlocks makes sums and what follows from them, with an error in the last digit only.
func sumsInBlocks(result func(addition) float64) windowsFunc {
	return func(out, values []float64, points int, xFilesFactor float64, check func() error) error {
		return inBlocks(out, values, points, 1, xFilesFactor, func(a addition, _ int) (float64, error) { return result(a), nil }, check)
	}
}

// A spread has what a standard deviation is made of: the sum of the values, and that of the squares of
// their distances from their mean. Sums of the squares of values would cancel each other.
type spread struct {
	n       int
	sum     double
	squares double
}

func (spread) of(v float64) spread {
	return spread{1, double{v, 0}, double{v - v, 0}} // of an infinity there is none
}

func (s spread) size() int { return s.n }

// joined adds what the distance of the two means contributes, by Chan.
func (s spread) joined(t spread) spread {
	if s.n == 0 {
		return t
	}
	if t.n == 0 {
		return s
	}
	m, n := float64(s.n), float64(t.n)
	a, b := s.sum.over(m), t.sum.over(n)
	distance := (a.high - b.high) + (a.low - b.low)
	between := double{distance * distance * (m * n / (m + n)), 0}
	return spread{s.n + t.n, s.sum.plus(t.sum), s.squares.plus(t.squares).plus(between)}
}

// deviationsInBlocks makes standard deviations with an error in the last digit only. As in Graphite, they are infinite if a sum is.
func deviationsInBlocks(out, values []float64, points int, xFilesFactor float64, check func() error) error {
	scale := 1.0
	if sum, _ := greatestSum(values, points); sum > math.MaxFloat64/4 {
		scale = 0x1p-64 // the sums stay finite, and what becomes 0 has no square
	}
	return inBlocks(out, values, points, scale, xFilesFactor, func(s spread, _ int) (float64, error) {
		squares := s.squares.high
		switch {
		case IsNull(squares):
			return Null, nil
		case math.Abs(s.sum.high) > math.MaxFloat64*scale, squares > math.MaxFloat64*scale*scale:
			return math.Inf(1), nil
		}
		return math.Sqrt(squares/float64(s.n)) / scale, nil
	}, check)
}

// A product is that of values in their order, with an exponent of its own. Its zero value is 1.
type product struct {
	n        int
	fraction double // 0, infinite, null, or from 1/2 to 1, with its sign
	exponent int
	log      float64 // of the magnitude, to the base 2
	// most and least are those of log after each of the values
	most, least float64
}

func (product) of(v float64) product {
	fraction, exponent := math.Frexp(v)
	log := math.Log2(math.Abs(v))
	return product{1, double{fraction, 0}, exponent, log, log, log}
}

func (p product) size() int { return p.n }

func (p product) joined(q product) product {
	if p.n == 0 {
		return q
	}
	if q.n == 0 {
		return p
	}
	a, b := p.fraction, q.fraction
	r := product{n: p.n + q.n, exponent: p.exponent + q.exponent, most: max(p.most, p.log+q.most), least: min(p.least, p.log+q.least)}
	r.fraction.high = a.high * b.high
	size := math.Abs(r.fraction.high)
	if size > 0 && size <= 1 { // else all further ones are 0, infinite or null
		low := math.FMA(a.high, b.high, -r.fraction.high) + (a.high*b.low + a.low*b.high)
		r.fraction = double{r.fraction.high, 0}.plus(double{low, 0})
		if math.Abs(r.fraction.high) < 0.5 {
			r.fraction = double{2 * r.fraction.high, 2 * r.fraction.low}
			r.exponent--
		}
	}
	r.log = float64(r.exponent) + math.Log2(math.Abs(r.fraction.high))
	return r
}

// Bounds of product.most and product.least, with room for rounded logarithms.
const (
	certainlyFinite   = 1023.99
	certainlyInfinite = 1024.01
	certainlyNormal   = -1021.99
	certainlyZero     = -1075.01
)

// productsInBlocks makes products with an error in the last digit only. A product that
// becomes infinite or 0 on the way stays so, as in Graphite.
func productsInBlocks(out, values []float64, points int, xFilesFactor float64, check func() error) error {
	work := 0
	return inBlocks(out, values, points, 1, xFilesFactor, func(p product, i int) (float64, error) {
		sign := p.fraction.high
		switch {
		case p.most < certainlyFinite && p.least < certainlyZero:
			return math.Copysign(0, sign), nil
		case p.most < certainlyFinite:
			return math.Ldexp(p.fraction.high, p.exponent), nil
		case p.most > certainlyInfinite && p.least > certainlyNormal:
			return math.Copysign(math.Inf(1), sign), nil
		}
		// It depends on which comes first. No value before that is infinite or 0.
		acc, left := 1.0, values[i+1:i+1+points]
		for len(left) > 0 && !isSettled(acc) {
			few := left[:min(len(left), slidingLook)]
			left = left[len(few):]
			for k, v := range few {
				if !IsNull(v) {
					acc *= v
				}
				if isSettled(acc) {
					few = few[:k]
					break
				}
			}
			if work += len(few); work > 1<<18 {
				work = 0
				if err := check(); err != nil {
					return 0, err
				}
			}
		}
		switch infinite := math.IsInf(acc, 0); {
		case IsNull(acc), IsNull(sign), infinite && sign == 0, acc == 0 && math.IsInf(sign, 0):
			return Null, nil // an infinity times 0
		case infinite || acc == 0:
			return math.Copysign(acc, sign), nil
		}
		return acc, nil
	}, check)
}

// isSettled reports whether further values change no more than the sign of a product, or make it null.
func isSettled(product float64) bool {
	return product == 0 || IsNull(product) || math.IsInf(product, 0)
}
