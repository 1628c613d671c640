package quantile

import (
	"fmt"
	"iter"
)

const (
	// RelativeError bounds the difference between a value of a sketch and the number
	// that it represents, divided by that number.
	RelativeError = 0.01

	// MaxBins bounds the bins of a sketch. 2,048 adjacent bins span a factor of 2^58.
	MaxBins = 2048

	// maxCount bounds how many numbers a sketch may have that is read, so that adding
	// the counts of many sketches does not overflow.
	maxCount = 1 << 53
)

// A Sketch is an encoded sketch of at least one number; "" is the sketch of none.
type Sketch string

// Of returns the sketch of numbers.
func Of(values ...float64) Sketch {
	var b Builder
	for _, v := range values {
		b.Add(v)
	}
	return b.Sketch()
}

// Merge returns the sketch of all numbers of both.
func Merge(x, y Sketch) Sketch {
	var b Builder
	b.AddSketch(x)
	b.AddSketch(y)
	return b.Sketch()
}

// Parse checks the bytes of a sketch. It accepts only bytes that a Builder would make
// of the same numbers.
func Parse(b []byte) (Sketch, error) {
	s := Sketch(b)
	r := reader{rest: s}
	for n := 0; r.rest != "" || n == 0; n++ {
		if n == MaxBins {
			return "", fmt.Errorf("sketch of more than %d bins", MaxBins)
		}
		if !r.next() {
			return "", fmt.Errorf("sketch of %d bytes: bin %d cannot be read", len(b), n)
		}
	}
	return s, nil
}

// Count returns how many numbers the sketch has.
func (s Sketch) Count() int64 {
	r := reader{rest: s}
	for r.next() {
	}
	return r.total
}

// Values yields, in ascending order, values and how many numbers each represents. low
// and high are the least and the greatest number: Values yields both exactly, and no
// value beyond them.
func (s Sketch) Values(low, high float64) iter.Seq2[float64, int64] {
	return func(yield func(float64, int64) bool) {
		r := reader{rest: s}
		for first := true; r.next(); first = false {
			v, n := min(max(valueOf(r.bin), low), high), r.count
			if first && !yield(low, 1) {
				return
			}
			if first {
				n--
			}
			last := r.rest == "" && r.total > 1
			if last {
				n--
			}
			if n > 0 && !yield(v, n) || last && !yield(high, 1) {
				return
			}
		}
	}
}

// At returns the value of a rank; the least number has rank 1. low and high are as for
// Values.
func (s Sketch) At(rank int64, low, high float64) float64 {
	for v, n := range s.Values(low, high) {
		if rank -= n; rank <= 0 {
			return v
		}
	}
	return high
}

// A reader reads the bins of a sketch.
type reader struct {
	rest  Sketch
	begun bool
	bin   int32
	count int64
	total int64 // sum of the counts so far
}

// next reads the next bin. It returns false at the end, and if the bytes are invalid.
func (r *reader) next() bool {
	if r.rest == "" {
		return false
	}
	head, ok := r.uvarint()
	if !ok {
		return false
	}
	bin, least, counted := int64(r.bin), int64(1), true
	if r.begun {
		if head>>1 >= 2*topBin {
			return false
		}
		bin += int64(head>>1) + 1
		if counted = head&1 != 0; counted {
			least = 2
		}
	} else {
		if head > 4*topBin {
			return false
		}
		bin = oneBin + (int64(head>>1) ^ -int64(head&1))
	}
	if bin > topBin || bin < -topBin {
		return false
	}
	count := int64(1)
	if counted {
		more, ok := r.uvarint()
		if !ok || more > maxCount {
			return false
		}
		count = int64(more) + least
	}
	if count > maxCount-r.total {
		return false
	}
	r.begun, r.bin, r.count, r.total = true, int32(bin), count, r.total+count
	return true
}

// uvarint reads an integer in its shortest form.
func (r *reader) uvarint() (v uint64, ok bool) {
	for i := 0; i < len(r.rest) && i < 10; i++ {
		c := r.rest[i]
		if i == 9 && c > 1 || i > 0 && c == 0 {
			return 0, false
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.rest = r.rest[i+1:]
			return v, true
		}
	}
	return 0, false
}
