package kairosjson

import (
	"math"
	"math/rand/v2"
	"testing"

	"varve/internal/ingest/decimal"
)

// What shortNumber reads is what decimal.Scan reads, bit by bit; what it leaves is no number
// of JSON that a bracket ends, or a longer one.
func TestShortNumber(t *testing.T) {
	const letters = "0123456789012345678901234567890123456789-.]e:/" // the last two stand beside the digits
	rng := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 300_000 {
		text := make([]byte, rng.IntN(20), 21)
		for i := range text {
			text[i] = letters[rng.IntN(len(letters))]
		}
		text = append(text, ']')
		n, fraction, neg, width := shortNumber(text)
		want := decimal.Scan(text)
		digits := want.Len
		if want.Neg {
			digits--
		}
		if want.Dot {
			digits--
		}
		if short := want.Len > 0 && want.JSON && !want.E && digits <= 15 && text[want.Len] == ']'; short != (width > 0) {
			t.Fatalf("%s: width %d, want a number: %v", text, width, short)
		}
		if width == 0 {
			continue
		}
		read++
		if width != want.Len || (fraction > 0) != want.Dot {
			t.Fatalf("%s: %d bytes, fraction of %d", text, width, fraction)
		}
		if got := signed(decimal.Quotient(n, fraction), neg); math.Float64bits(got) != math.Float64bits(want.Float64(text)) {
			t.Fatalf("%s: %v", text, got)
		}
		if v, whole := wholeNumber(&want); whole && v != signed(int64(n), neg) {
			t.Fatalf("%s: %d", text, signed(int64(n), neg))
		}
	}
	if read < 10_000 {
		t.Errorf("%d numbers read", read)
	}
}

// TestCommonTime: a time of 13 digits is read as any other, and what is none is not.
func TestCommonTime(t *testing.T) {
	const point = "[1709876543210,5],[1709876543211,6]"
	for at := range 14 {
		for c := range 256 {
			b := []byte(point)
			b[1+at] = byte(c)
			wantMS, wantValue := anyTime(b)
			if ms, value, ok := commonTime(b); ms != wantMS || value != wantValue || ok != (wantValue > 0) {
				t.Errorf("%s: %d, which ends at %d, want %d and %d", b, ms, value, wantMS, wantValue)
			}
		}
	}
}
