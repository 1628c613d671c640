package kairos

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestShortDecimals compares appendShort with strconv's shortest form.
func TestShortDecimals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(v float64) {
		t.Helper()
		if got, ok := appendShort(nil, v); ok && string(got) != strconv.FormatFloat(v, 'f', -1, 64) {
			t.Fatalf("%v is rendered as %s", v, got)
		}
	}
	for _, v := range []float64{0.001, 0.01, 0.1, 1, 1.5, 1.05, 1.005, 9999999, 9999999.999, -0.25, -3, 0.3, 0.1 + 0.2, 1.0005, 1e-3 + 1e-16} {
		check(v)
	}
	for range 2_000_000 {
		v := float64(rng.Int64N(2e10)-1e10) / math.Pow10(rng.IntN(6))
		check(v)
		check(math.Nextafter(v, math.Inf(1)))
		check(rng.Float64() * math.Pow10(rng.IntN(8)))
	}
	if got, ok := appendShort(nil, 12.34); !ok || string(got) != "12.34" {
		t.Errorf("12.34 is not rendered the quick way: %s, %v", got, ok)
	}
}

func BenchmarkAppendDouble(b *testing.B) {
	values := make([]float64, 1024)
	for i := range values {
		values[i] = float64(i*37%100000) / 100
	}
	var out []byte
	for b.Loop() {
		out = out[:0]
		for _, v := range values {
			out = appendDouble(out, v)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(values)), "ns/value")
}

// TestTimeText compares consecutive times with strconv.
func TestTimeText(t *testing.T) {
	var text timeText
	for _, ms := range []int64{
		1_700_000_000_000, 1_700_000_000_001, 1_700_000_999_999, 1_700_001_000_000, 999_999, 1_000_000, 0, -1, -1_700_000_000_000,
		math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, 12_345_678_901_234_567, 1_000_001,
	} {
		if got := string(text.append([]byte("x"), ms)); got != "x"+strconv.FormatInt(ms, 10) {
			t.Errorf("%d is rendered as %s", ms, got)
		}
	}
}
