package decimal

import (
	"math"
	"math/big"
	"strconv"
	"testing"
)

func TestScan(t *testing.T) {
	for _, c := range []struct {
		in   string
		len  int
		json bool
	}{
		{"", 0, false}, {"-", 0, false}, {".", 0, false}, {"x", 0, false}, {"-.", 0, false},
		{"0", 1, true}, {"-0", 2, true}, {"01", 2, false}, {"1.", 2, false}, {".5", 2, false},
		{"1.5,", 3, true}, {"1e", 1, true}, {"1e+", 1, true}, {"1e5]", 3, true}, {"1.5E-10 ", 7, true},
		{"99999999999999999999", 20, true}, {"1.2.3", 3, true},
	} {
		n := Scan([]byte(c.in))
		if n.Len != c.len || (n.Len > 0 && n.JSON != c.json) {
			t.Errorf("Scan(%q) = %+v, want length %d, JSON %v", c.in, n, c.len, c.json)
		}
	}
}

func TestInt(t *testing.T) {
	for _, c := range []struct {
		in          string
		want        int64
		ok, inRange bool
	}{
		{"0", 0, true, true}, {"-5", -5, true, true}, {"007", 7, true, true}, {"1234567", 1234567, true, true},
		{"9223372036854775807", math.MaxInt64, true, true},
		{"-9223372036854775808", math.MinInt64, true, true},
		{"9223372036854775808", 0, true, false}, {"-9223372036854775809", 0, true, false},
		{"18446744073709551615", 0, true, false}, {"18446744073709551616", 0, true, false},
		{"+3", 0, false, false}, {"1e5", 0, false, false}, {"-5x", 0, false, false}, {"12345678901234567890x", 0, false, false}, {"-", 0, false, false}, {"1.0", 0, false, false}, {"", 0, false, false}, {"1 ", 0, false, false},
	} {
		v, ok, inRange := Int([]byte(c.in))
		if ok != c.ok || inRange != c.inRange || (inRange && v != c.want) {
			t.Errorf("Int(%q) = %d, %v, %v", c.in, v, ok, inRange)
		}
	}
}

func TestTrunc(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"3.9", 3, true}, {"-3.9", -3, true}, {"1e3", 1000, true}, {"5e-1", 0, true}, {"25E-1", 2, true},
		{"1e999", 0, false}, {"99999999999999999999", 0, false}, {"0e999", 0, true},
		{"9223372036854775807.5", math.MaxInt64, true}, {"-9223372036854775808", math.MinInt64, true},
		{"0.000000000000000000000000000000001", 0, true},
	} {
		n := Scan([]byte(c.in))
		if v, ok := n.Trunc(); ok != c.ok || (ok && v != c.want) {
			t.Errorf("Trunc(%s) = %d, %v", c.in, v, ok)
		}
	}
}

// What is not a number as a whole is none.
func TestNoFloat(t *testing.T) {
	for _, s := range []string{"", "+", "-", ".", "x", "5x", "1.5 ", "+-1", "1e5e5", "1.2.3", "NaN"} {
		if f, ok := Float([]byte(s)); ok {
			t.Errorf("%q is taken for %v", s, f)
		}
	}
}

func FuzzFloat(f *testing.F) {
	for _, s := range []string{"1.5", "-0.0", "1e300", "9007199254740993", "0.1", "1.0E300", ".5", "5.", "+1", "1e-400", "1e400", "123456789012345678901234567890.5",
		// Between 2^53 and 2^54 a mantissa alone would be rounded first.
		"9007199254740993e1", "9007199254740995e2", "9007199254740997e-1", "900719925474099.3", "12345678901234567e-3", "1234567890123.4567"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := Float([]byte(s))
		if !ok {
			return
		}
		want, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(want, 0) {
			t.Fatalf("Float(%q) = %v, strconv says %v", s, got, err)
		}
		if math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("Float(%q) = %v, strconv says %v", s, got, want)
		}
		n := Scan([]byte(s))
		if v, ok := n.Int64(); ok && n.Len == len(s) {
			if w, err := strconv.ParseInt(s, 10, 64); err != nil || v != w {
				t.Fatalf("Int64(%q) = %d, strconv says %d, %v", s, v, w, err)
			}
		}
	})
}

func TestIsWord(t *testing.T) {
	for _, s := range []string{"NaN", "nan", "-inf", "+Infinity", "INF"} {
		if !IsWord([]byte(s)) {
			t.Errorf("%q is a word for a number that is not finite", s)
		}
	}
	for _, s := range []string{"", "-", "n", "info", "nano", "infinite"} {
		if IsWord([]byte(s)) {
			t.Errorf("%q is no such word", s)
		}
	}
}

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"-0", 0, true}, {"0e-999999999", 0, true}, {"1e3", 1000, true}, {"1000e-3", 1, true}, {"1.50e1", 15, true},
		{"1e-05", 0, false}, {"15e-1", 0, false}, {"1.5", 0, false}, {"1e18", 1e18, true}, {"1e19", 0, false}, {"1e999999999", 0, false},
		{"9223372036854775807", math.MaxInt64, true}, {"9223372036854775808", 0, false}, {"-9223372036854775808", math.MinInt64, true},
		{"-9223372036854775809", 0, false}, {"9223372036854775807e0", math.MaxInt64, true}, {"92233720368547758070e-1", 0, false},
		{"18446744073709551616", 0, false},
	} {
		n := Scan([]byte(c.text))
		if v, ok := n.Whole(); ok != c.ok || (ok && v != c.want) || n.Len != len(c.text) {
			t.Errorf("%s: %d, %v; want %d, %v", c.text, v, ok, c.want, c.ok)
		}
	}
}

// TestScanIsExact: what is not said to be over is exactly the number that was written,
// wherever its point is, near the greatest mantissa too.
func TestScanIsExact(t *testing.T) {
	scan := func(text string) {
		n := Scan([]byte(text))
		if n.Len != len(text) {
			t.Fatalf("Scan(%s) = %+v", text, n)
		}
		want, _ := new(big.Rat).SetString(text)
		if exact := number(n); !n.Over && exact.Cmp(want) != 0 {
			t.Errorf("Scan(%s) = %+v", text, n)
		}
		if f, err := strconv.ParseFloat(text, 64); err != nil || n.Float64([]byte(text)) != f {
			t.Errorf("Float64(%s) = %v, want %v", text, n.Float64([]byte(text)), f)
		}
		if whole, ok := n.Trunc(); ok && new(big.Int).Quo(want.Num(), want.Denom()).Cmp(big.NewInt(whole)) != 0 {
			t.Errorf("Trunc(%s) = %d", text, whole)
		}
	}
	for exp := -len(pow10) - 1; exp <= len(pow10)+1; exp++ {
		for _, mant := range []string{"1", "-3", "9007199254740991", "9007199254740993"} {
			scan(mant + "e" + strconv.Itoa(exp))
		}
	}
	for _, digits := range []string{
		"18446744073709551605", "18446744073709551615", "18446744073709551616", "18446744073709551690", "1999999999999999999999",
		"2049638230412172401999", "9999999999999999999", "99999999999999999", "999999999999999999", "1000000000000000000000", "12345678901234567890",
	} {
		for at := range len(digits) + 1 {
			for _, sign := range []string{"", "-"} {
				for _, exp := range []string{"", "e3", "E-7", "e+12"} {
					scan(sign + digits[:at] + "." + digits[at:] + exp)
					scan(sign + digits + exp)
				}
			}
		}
	}
}

// number returns what a number says that it is.
func number(n Number) *big.Rat {
	r := new(big.Rat).SetInt(new(big.Int).SetUint64(n.Mant))
	ten := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n.Exp, -n.Exp))), nil))
	if n.Exp < 0 {
		ten.Inv(ten)
	}
	if n.Neg {
		r.Neg(r)
	}
	return r.Mul(r, ten)
}
