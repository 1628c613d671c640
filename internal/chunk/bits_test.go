package chunk

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPack packs every width at every length up to a few words, so that the
// end of the data falls on every byte.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for width := uint(0); width <= 64; width++ {
		for n := range 40 {
			base := rng.Uint64()
			vals := make([]uint64, n)
			for i := range vals {
				vals[i] = base
				if width > 0 {
					vals[i] += rng.Uint64() >> (64 - width)
				}
			}
			packed := appendPacked([]byte{1, 2, 3}, vals, base, width)[3:]
			if len(packed) != packedLen(n, width) {
				t.Fatalf("%d numbers of %d bits: %d bytes, want %d", n, width, len(packed), packedLen(n, width))
			}
			got := make([]uint64, n)
			unpack(slices.Clip(packed), width, base, got)
			if !slices.Equal(got, vals) {
				t.Fatalf("%d numbers of %d bits: %x, want %x", n, width, got, vals)
			}
		}
	}
}
