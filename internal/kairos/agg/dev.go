package agg

import (
	"math"

	"varve/internal/clip"
)

// devSpec is the standard deviation of a bucket, or its mean plus or minus a
// multiple of it.
var devSpec = AggregatorSpec{
	Name: "dev", Doc: "Standard deviation of the values.",
	Properties: append(rangeProperties,
		Property{Name: "return_type", Kind: TextProperty, Doc: "value, pos_sd or neg_sd", Hidden: true},
		Property{Name: "dev_count", Kind: IntProperty, Doc: "number of standard deviations between the mean and pos_sd or neg_sd", Hidden: true}),
	New: newDev,
}

func newDev(a Args) (Step, error) {
	kind, count := a.Text("return_type", "value"), float64(a.Long("dev_count", 1))
	switch kind {
	case "pos_sd":
	case "neg_sd":
		count = -count
	case "value":
	default:
		return nil, &ArgumentError{[]string{"return_type must be 'value', 'pos_sd' or 'neg_sd', not " + clip.Text(kind, clippedBytes)}}
	}
	return &collectStep{Range: rangeOf(a), collector: func(*Env) collector {
		return &devCollector{alone: kind == "value", count: count}
	}}, nil
}

// devCollector uses Welford's method. KairosDB's own sums of squares lose all digits
// for values that are large compared with their spread. Once the square of a difference
// may overflow a double, it keeps the root of the sum of squares instead. Once
// differences of values may overflow, it counts in units of farUnit.
type devCollector struct {
	alone    bool    // the result is the deviation itself
	count    float64 // otherwise the result is the mean plus this many deviations
	n        float64
	mean, m2 float64
	root     float64 // root of the sum of squares, in place of m2; 0 = m2 has the sum
	far      bool    // mean and root are in units of farUnit
}

// farUnit is a power of two, which divides large doubles without rounding.
const farUnit = 1 << 64

// squareMax is a difference whose square, summed over any number of samples, does not
// overflow a double.
const squareMax = 1e140

// nearMax bounds two values whose difference does not overflow a double, nor does the
// root of any number of squares of such differences.
const nearMax = 1e290

func (d *devCollector) add(p *Point) error {
	v := p.Float()
	if !d.far && math.Abs(v) > nearMax {
		d.root = max(d.root, math.Sqrt(d.m2)) / farUnit
		d.mean, d.m2, d.far = d.mean/farUnit, 0, true
	}
	if d.far {
		v /= farUnit
	}
	d.n++
	delta := v - d.mean
	d.mean += delta / d.n
	if d.root == 0 && math.Abs(delta) <= squareMax {
		d.m2 += delta * (v - d.mean)
		return nil
	}
	if d.root == 0 {
		d.root = math.Sqrt(d.m2)
	}
	d.root = math.Hypot(d.root, math.Abs(delta)*math.Sqrt((d.n-1)/d.n))
	return nil
}

func (d *devCollector) emit(stamp int64, out []Point) ([]Point, error) {
	sd := 0.0 // if there is one value
	if d.n > 1 {
		sd = max(d.root/math.Sqrt(d.n-1), math.Sqrt(d.m2/(d.n-1)))
	}
	v := sd
	if !d.alone {
		v = d.mean + sd*d.count
	}
	if d.far {
		v *= farUnit
	}
	d.n, d.mean, d.m2, d.root, d.far = 0, 0, 0, 0, false
	var p Point
	p.setDouble(stamp, v)
	return append(out, p), nil
}
