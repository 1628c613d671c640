package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// sample is one sample beside the columns that hold it.
type sample struct {
	ms   int64
	bits uint64
	data string
	ttl  uint32
}

func TestColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := Kind(rapid.IntRange(int(Long), int(Custom)).Draw(t, "kind"))
		var c, copied Columns
		if rapid.Bool().Draw(t, "used before") {
			c.AppendFixed(1, 2, 3)
			c.AppendBytes(1, []byte("x"), 3)
			c.Reset()
		}
		var want []sample
		for range rapid.IntRange(0, 20).Draw(t, "samples") {
			s := sample{ms: rapid.Int64().Draw(t, "ms"), ttl: rapid.SampledFrom([]uint32{0, 0, 0, 1, MaxTTL}).Draw(t, "ttl")}
			switch {
			case kind.Fixed():
				s.bits = rapid.Uint64().Draw(t, "bits")
				c.AppendFixed(s.ms, s.bits, s.ttl)
			case kind.Variable():
				s.data = rapid.String().Draw(t, "data")
				c.AppendBytes(s.ms, []byte(s.data), s.ttl)
			default:
				c.AppendNull(s.ms, s.ttl)
			}
			want = append(want, s)
		}
		check(t, kind, &c, want)
		for i := range c.Len() {
			copied.AppendFrom(kind, &c, i)
		}
		check(t, kind, &copied, want)
	})
}

func check(t *rapid.T, kind Kind, c *Columns, want []sample) {
	if c.Len() != len(want) {
		t.Fatalf("Len = %d, want %d", c.Len(), len(want))
	}
	anyTTL := false
	for i, s := range want {
		got := sample{ms: c.Times[i], ttl: c.TTL(i)}
		if kind.Fixed() {
			got.bits = c.Values[i]
		}
		if kind.Variable() {
			got.data = string(c.Bytes(i))
		}
		if got != s {
			t.Fatalf("sample %d = %+v, want %+v", i, got, s)
		}
		anyTTL = anyTTL || s.ttl != 0
	}
	if wantTTLs := len(want); anyTTL && len(c.TTLs) != wantTTLs || !anyTTL && len(c.TTLs) != 0 {
		t.Fatalf("%d TTLs for %d samples", len(c.TTLs), wantTTLs)
	}
	if kind.Variable() && len(want) > 0 && len(c.Offsets) != len(want)+1 {
		t.Fatalf("%d offsets for %d samples", len(c.Offsets), len(want))
	}
}

func TestExpiryMS(t *testing.T) {
	for _, test := range []struct {
		ms   int64
		ttl  uint32
		want int64
	}{
		{0, 0, math.MaxInt64},
		{math.MinInt64, 0, math.MaxInt64},
		{1000, 1, 2000},
		{-1000, 1, 0},
		{math.MinInt64, 1, math.MinInt64 + 1000},
		{math.MaxInt64, 1, math.MaxInt64},
		{math.MaxInt64 - 1000, 1, math.MaxInt64},
		{math.MaxInt64 - 1001, 1, math.MaxInt64 - 1},
		{0, MaxTTL, MaxTTL * 1000},
		{0, math.MaxUint32, math.MaxUint32 * 1000},
	} {
		if got := ExpiryMS(test.ms, test.ttl); got != test.want {
			t.Errorf("ExpiryMS(%d, %d) = %d, want %d", test.ms, test.ttl, got, test.want)
		}
	}
}

func TestFloat(t *testing.T) {
	if got := Float(Long, uint64(1<<64-3)); got != -3 {
		t.Errorf("Float of long -3 = %v", got)
	}
	if got := Float(Double, math.Float64bits(-1.5)); got != -1.5 {
		t.Errorf("Float of double -1.5 = %v", got)
	}
}

// TestBits: values of a series of whole numbers are rounded to even, and bounded.
func TestBits(t *testing.T) {
	for v, want := range map[float64]int64{
		0.5: 0, 1.5: 2, 2.5: 2, -1.5: -2, 1e300: math.MaxInt64, -1e300: math.MinInt64, 1 << 63: math.MaxInt64, -1 << 63: math.MinInt64, 1 << 62: 1 << 62, -1 << 62: -1 << 62, -3 << 61: -3 << 61,
	} {
		if got := int64(Bits(Long, v)); got != want {
			t.Errorf("%v becomes %d, want %d", v, got, want)
		}
	}
	if got := math.Float64frombits(Bits(Double, 1.5)); got != 1.5 {
		t.Errorf("1.5 becomes %v", got)
	}
}
