package carbon

import (
	"bytes"
	"math"
	"strconv"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
)

// parseFloat reads a number as Python's float does: decimal digits, between two of
// which an underscore may stand, a sign, a point, an exponent; inf, infinity and nan in
// any case.
func parseFloat(b []byte) (f float64, ok bool) {
	if n := decimal.Scan(b); n.Len > 0 && n.Len == len(b) {
		return n.Float64(b), true
	}
	if len(b) > maxNumber || bytes.ContainsAny(b, "xXpP") {
		return 0, false
	}
	if bytes.IndexByte(b, '_') >= 0 {
		if b, ok = withoutUnderscores(b); !ok {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(ingest.View(b), 64)
	if err != nil && !math.IsInf(f, 0) { // too large is infinite, as in Python
		return 0, false
	}
	return f, true
}

// maxNumber bounds numbers in bytes; the digits of the longest double are fewer.
const maxNumber = 1100

// withoutUnderscores takes out underscores that have a digit on both sides.
func withoutUnderscores(b []byte) ([]byte, bool) {
	digit := func(i int) bool { return i >= 0 && i < len(b) && b[i] >= '0' && b[i] <= '9' }
	out := make([]byte, 0, len(b))
	for i, c := range b {
		if c != '_' {
			out = append(out, c)
		} else if !digit(i-1) || !digit(i+1) {
			return nil, false
		}
	}
	return out, true
}
