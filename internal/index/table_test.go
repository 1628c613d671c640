package index

import (
	"math/rand/v2"
	"testing"
)

// TestTable compares random use with a map. Half of the numbers share their
// hashes with others.
func TestTable(t *testing.T) {
	x := NewTable()
	rng := rand.New(rand.NewPCG(5, 6))
	there := map[uint32]bool{}
	hash := func(n uint32) uint64 { return x.Hash([]byte{byte(n / 2), byte(n / 2 >> 8), byte(n / 2 >> 16)}) }
	find := func(n uint32) bool {
		got, ok := x.Find(hash(n), func(m uint32) bool { return m == n })
		return ok && got == n
	}
	for round, n := range []int{10, 1000, 3 * tableSplit, 100, 2 * tableSplit, 0} {
		for len(there) < n {
			if m := rng.Uint32N(1 << 20); !there[m] {
				x.Add(hash(m), m)
				there[m] = true
			}
		}
		for m := range there {
			if len(there) <= n {
				break
			}
			x.Remove(hash(m), m)
			x.Remove(hash(m), m)
			delete(there, m)
		}
		if x.Len() != len(there) {
			t.Fatalf("round %d: %d entries, want %d", round, x.Len(), len(there))
		}
		for m := range uint32(1 << 20) {
			if find(m) != there[m] {
				t.Fatalf("round %d: find(%d) = %v", round, m, !there[m])
			}
		}
	}
	slots := 0
	for i := range x.parts {
		slots += len(x.parts[i].slots)
	}
	if slots > tableParts*partMin {
		t.Errorf("an empty table has %d slots", slots)
	}
}
