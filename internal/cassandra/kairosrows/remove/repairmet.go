package remove

import (
	"hash/maphash"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/machine"
)

// metBytes is what a hash takes in a map that has just grown.
const metBytes = 24

// met is what a repair has met on its way: rows, row keys and tag rows that are there.
// Later phases need not ask Cassandra for them: that is most of what a repair without it
// takes. It holds hashes of 64 bits with a seed of its own, so a fault can be hidden by a
// collision from one repair, not from the next; with a hundred million rows of two tags the
// chance is below 1 in 10^10 for each fault. It takes a sixteenth of the memory at most.
// For rows that are not in it, the repair asks Cassandra, as after it was interrupted.
//
// A row that disappears after the repair has met it is not noticed; the next repair finds it.
type met struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
	most   int
}

func newMet() *met {
	return &met{maphash.MakeSeed(), map[uint64]struct{}{}, int(machine.Share(0) / 4 / metBytes)}
}

// A metTag is a row of varve_row_index.
type metTag struct {
	partedKey
	place rowkey.TagPlace
}

func (m *met) rowKey(k partedKey) uint64 { return maphash.Comparable(m.seed, k) }

func (m *met) tagRow(k partedKey, at rowkey.TagPlace) uint64 {
	return maphash.Comparable(m.seed, metTag{k, at})
}

// row is that of a row of data_points.
func (m *met) row(key []byte) uint64 { return maphash.Bytes(m.seed, key) }

func (m *met) note(hash uint64) {
	if len(m.hashes) < m.most {
		m.hashes[hash] = struct{}{}
	}
}

func (m *met) has(hash uint64) bool {
	_, ok := m.hashes[hash]
	return ok
}

// all says which of n were met.
func (m *met) all(n int, hash func(i int) uint64) []bool {
	met := make([]bool, n)
	for i := range met {
		met[i] = m.has(hash(i))
	}
	return met
}
