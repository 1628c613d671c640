package embedded

import "hash/maphash"

// A keyTable finds ids by the hash of their keys, which it does not hold: 11 to
// 21 bytes a series, without a pointer, where a map with the keys' strings takes
// 45. It is split so that growing never holds anybody up for long: a part of a
// table of ten million series is rebuilt in a few milliseconds.
type keyTable struct {
	seed  maphash.Seed
	count int
	parts [keyTableParts]keyTablePart
}

const (
	keyTableParts = 64
	keyPartMin    = 16 // slots of a part, at least
)

// A keyTablePart is an open-addressing hash table with linear probing. A slot
// is the low half of a hash << 32 | id + 1; 0 is free. The number of slots is a
// power of two; at most three quarters are taken.
type keyTablePart struct {
	slots []uint64
	count int
}

func newKeyTable() keyTable { return keyTable{seed: maphash.MakeSeed()} }

func (t *keyTable) hash(key []byte) uint64 { return maphash.Bytes(t.seed, key) }

func (t *keyTable) len() int { return t.count }

func (t *keyTable) part(hash uint64) *keyTablePart { return &t.parts[hash>>32%keyTableParts] }

// find returns the id for which is says that it is the one, among those whose
// keys have this hash.
func (t *keyTable) find(hash uint64, is func(id uint32) bool) (uint32, bool) {
	p := t.part(hash)
	if p.count == 0 {
		return 0, false
	}
	mask, low := uint32(len(p.slots)-1), uint32(hash)
	for i := low & mask; p.slots[i] != 0; i = (i + 1) & mask {
		if s := p.slots[i]; uint32(s>>32) == low && is(uint32(s)-1) {
			return uint32(s) - 1, true
		}
	}
	return 0, false
}

// add puts in an id, which is below the greatest uint32 and not there.
func (t *keyTable) add(hash uint64, id uint32) {
	p := t.part(hash)
	if 4*(p.count+1) > 3*len(p.slots) {
		p.resize(max(keyPartMin, 2*len(p.slots)))
	}
	p.put(hash<<32 | uint64(id+1))
	p.count++
	t.count++
}

// remove takes an id out, if it is there.
func (t *keyTable) remove(hash uint64, id uint32) {
	p := t.part(hash)
	if p.count == 0 {
		return
	}
	mask, want := uint32(len(p.slots)-1), hash<<32|uint64(id+1)
	i := uint32(hash) & mask
	for p.slots[i] != want {
		if p.slots[i] == 0 {
			return
		}
		i = (i + 1) & mask
	}
	p.close(i)
	p.count--
	t.count--
	if n := len(p.slots); n > keyPartMin && 8*p.count < n {
		p.resize(n / 2)
	}
}

// close empties slot i and moves those behind it that would not be found any
// more.
func (p *keyTablePart) close(i uint32) {
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

func (p *keyTablePart) put(slot uint64) {
	mask := uint32(len(p.slots) - 1)
	i := uint32(slot>>32) & mask
	for p.slots[i] != 0 {
		i = (i + 1) & mask
	}
	p.slots[i] = slot
}

func (p *keyTablePart) resize(n int) {
	old := p.slots
	p.slots = make([]uint64, n)
	for _, s := range old {
		if s != 0 {
			p.put(s)
		}
	}
}
