package index

import "hash/maphash"

// A Table maps hashes of texts to numbers. It does not hold the texts: an entry takes
// 11 to 21 bytes, without a pointer, where a map of strings takes 45. A large table is
// split, so that growing never blocks for long: a part of a table with ten million
// entries is rebuilt in a few milliseconds. Make one with NewTable. A Table does not
// lock.
type Table struct {
	seed  maphash.Seed
	count int
	parts []tablePart // one, or tableParts
}

const (
	tableParts = 64
	tableSplit = 32 << 10 // entries from which a table is split
	partMin    = 8        // slots of a part, at least
)

// A tablePart is an open-addressing hash table with linear probing. A slot is the low
// half of a hash << 32 | number + 1; 0 is free. The number of slots is a power of two;
// at most three quarters are occupied.
type tablePart struct {
	slots []uint64
	count int
}

// NewTable returns an empty table.
func NewTable() Table { return Table{seed: maphash.MakeSeed(), parts: make([]tablePart, 1)} }

// Hash returns the hash of a text in this table.
func (t *Table) Hash(text []byte) uint64 { return maphash.Bytes(t.seed, text) }

// HashString is Hash.
func (t *Table) HashString(text string) uint64 { return maphash.String(t.seed, text) }

// Len returns the number of entries.
func (t *Table) Len() int { return t.count }

// part returns the part with the entries of a hash. The high bits of the hash's low
// half choose the part, the low bits the slot.
func (t *Table) part(low uint32) *tablePart {
	if len(t.parts) == 1 {
		return &t.parts[0]
	}
	return &t.parts[low/(1<<32/tableParts)]
}

// Find returns a number with this hash for which is returns true.
func (t *Table) Find(hash uint64, is func(number uint32) bool) (uint32, bool) {
	low := uint32(hash)
	p := t.part(low)
	if p.count == 0 {
		return 0, false
	}
	mask := uint32(len(p.slots) - 1)
	for i := low & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if s := p.slots[i]; uint32(s>>32) == low && is(uint32(s)-1) {
			return uint32(s) - 1, true
		}
	}
	return 0, false
}

// Add adds a number, which must be new and below the greatest uint32.
func (t *Table) Add(hash uint64, number uint32) {
	if t.count == tableSplit && len(t.parts) == 1 {
		t.split()
	}
	t.part(uint32(hash)).add(hash<<32 | uint64(number+1))
	t.count++
}

func (t *Table) split() {
	whole := t.parts[0]
	t.parts = make([]tablePart, tableParts)
	for _, s := range whole.slots {
		if s != 0 {
			t.part(uint32(s >> 32)).add(s)
		}
	}
}

// Remove removes a number, if present.
func (t *Table) Remove(hash uint64, number uint32) {
	if t.part(uint32(hash)).remove(hash<<32 | uint64(number+1)) {
		t.count--
	}
}

func (p *tablePart) add(slot uint64) {
	if 4*(p.count+1) > 3*len(p.slots) {
		p.resize(max(partMin, 2*len(p.slots)))
	}
	p.put(slot)
	p.count++
}

func (p *tablePart) remove(slot uint64) bool {
	if p.count == 0 {
		return false
	}
	mask := uint32(len(p.slots) - 1)
	i := uint32(slot>>32) & mask
	for p.slots[i] != slot {
		if p.slots[i] == 0 {
			return false
		}
		i = (i + 1) & mask
	}
	p.vacate(i)
	p.count--
	if n := len(p.slots); n > partMin && 8*p.count < n {
		p.resize(n / 2)
	}
	return true
}

// vacate empties slot i and moves those later entries that could no longer be found.
func (p *tablePart) vacate(i uint32) {
	mask := uint32(len(p.slots) - 1)
	for j := (i + 1) & mask; p.slots[j] != 0; j = (j + 1) & mask {
		home := uint32(p.slots[j]>>32) & mask
		if (j-home)&mask >= (j-i)&mask {
			p.slots[i] = p.slots[j]
			i = j
		}
	}
	p.slots[i] = 0
}

func (p *tablePart) put(slot uint64) {
	mask := uint32(len(p.slots) - 1)
	i := uint32(slot>>32) & mask
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slot
}

func (p *tablePart) resize(n int) {
	old := p.slots
	p.slots = make([]uint64, n)
	for _, s := range old {
		if s != 0 {
			p.put(s)
		}
	}
}
