package registry

import (
	"strings"
	"unsafe"

	"varve/internal/model"
)

// PageSize is the number of ids of a page: few enough that a series which outlives its
// neighbours keeps little of their memory.
const PageSize = 256

// A page holds the keys of consecutive ids. While ids are still being assigned each key
// is a string of its own. Then the keys are packed into one string, which takes a tenth
// less memory and gives the garbage collector one pointer to follow instead of 256.
// Once half of it belongs to forgotten series it is packed again, so that forgotten
// keys take at most as much memory as live ones.
type page struct {
	kinds [PageSize]model.Kind // 0 = no such series
	marks [PageSize]mark
	live  int
	bytes int // of the keys in memory

	loose []string // by slot, nil when packed

	text string // all keys, by slot
	ends [PageSize]uint32
	dead int // bytes of text that no series has
}

// pageBytes is the memory of a packed page besides its keys.
const pageBytes = int64(unsafe.Sizeof(page{}))

// A mark says whether a log record has introduced a series.
type mark uint8

const (
	logged mark = iota // introduced
	fresh              // not yet
	stale              // not yet, since before the last call of Unused
)

func newPage() *page {
	return &page{loose: make([]string, PageSize)}
}

// key returns the key of a slot that has a series.
func (p *page) key(slot uint32) string {
	if p.loose != nil {
		return p.loose[slot]
	}
	start := uint32(0)
	if slot > 0 {
		start = p.ends[slot-1]
	}
	return p.text[start:p.ends[slot]]
}

// set adds a series.
func (p *page) set(slot uint32, key string, m mark) {
	p.unpack()
	if p.kinds[slot] == 0 {
		p.live++
	}
	p.bytes += len(key) - len(p.loose[slot])
	p.loose[slot], p.kinds[slot], p.marks[slot] = key, model.Kind(key[0]), m
}

// forget removes a series.
func (p *page) forget(slot uint32) {
	size := len(p.key(slot))
	p.kinds[slot], p.marks[slot] = 0, logged
	p.live--
	if p.loose != nil {
		p.loose[slot] = ""
		p.bytes -= size
		return
	}
	if p.dead += size; p.live > 0 && 2*p.dead > len(p.text) {
		p.unpack()
		p.pack()
	}
}

// pack joins the keys into one string.
func (p *page) pack() {
	if p.loose == nil {
		return
	}
	size := 0
	for _, key := range p.loose {
		size += len(key)
	}
	var b strings.Builder
	b.Grow(size)
	for slot, key := range p.loose {
		b.WriteString(key)
		p.ends[slot] = uint32(b.Len())
	}
	p.text, p.loose, p.dead, p.bytes = b.String(), nil, 0, size
}

// unpack gives each key a string of its own again.
func (p *page) unpack() {
	if p.loose != nil {
		return
	}
	loose := make([]string, PageSize)
	for slot := range uint32(PageSize) {
		if p.kinds[slot] != 0 {
			loose[slot] = p.key(slot)
		}
	}
	p.loose, p.text, p.dead, p.bytes = loose, "", 0, len(p.text)-p.dead
}
