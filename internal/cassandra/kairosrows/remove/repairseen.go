package remove

import (
	"hash/maphash"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/machine"
)

// seenBytes is the memory for a hash in a map that has just grown.
const seenBytes = 24

// seenSet is the set of rows, row keys and tag rows that a repair has already seen. Later phases
// need not read these from Cassandra, which would be most of the work of a repair. It stores
// hashes of 64 bits with a random seed, so a collision can hide a fault from one repair, but
// not from the next; with a hundred million rows of two tags the probability is below 1 in
// 10^10 for each fault. It uses at most a sixteenth of the memory. Rows that are not in it, for
// example after an interruption, are read from Cassandra.
//
// A repair does not notice if a row disappears after it was seen; the next repair does.
type seenSet struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
	most   int
}

func newSeenSet() *seenSet {
	return &seenSet{maphash.MakeSeed(), map[uint64]struct{}{}, int(machine.Share(0) / 4 / seenBytes)}
}

// A seenTag is a row of varve_row_index.
type seenTag struct {
	partedKey
	place rowkey.TagPlace
}

func (m *seenSet) rowKey(k partedKey) uint64 { return maphash.Comparable(m.seed, k) }

func (m *seenSet) tagRow(k partedKey, at rowkey.TagPlace) uint64 {
	return maphash.Comparable(m.seed, seenTag{k, at})
}

// row returns the hash of a row of data_points.
func (m *seenSet) row(key []byte) uint64 { return maphash.Bytes(m.seed, key) }

func (m *seenSet) note(hash uint64) {
	if len(m.hashes) < m.most {
		m.hashes[hash] = struct{}{}
	}
}

func (m *seenSet) has(hash uint64) bool {
	_, ok := m.hashes[hash]
	return ok
}

// all reports which of n elements were seen.
func (m *seenSet) all(n int, hash func(i int) uint64) []bool {
	found := make([]bool, n)
	for i := range found {
		found[i] = m.has(hash(i))
	}
	return found
}
