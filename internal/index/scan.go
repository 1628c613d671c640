package index

import (
	"math/bits"
	"slices"
	"sync"
)

const (
	// scanSlice is how many values are copied under the lock: some 100 us. They are
	// matched after that.
	scanSlice = 16 << 10

	// scanCacheBytes bounds the cached results. That of a million values takes 125 kB.
	scanCacheBytes = 8 << 20
)

// A scan is the set of values of a tag that a plan matches, found by matching the plan
// against all of them. It is updated in slices: new values are matched, and those
// listed as changes are matched again. So the result can be cached, and costs the next
// query only the changes.
//
// A scan in the cache never changes; a Select works on a copy.
type scan struct {
	tag   *tag
	at    uint64   // changes of the dictionary that the scan includes
	next  int      // values with lower numbers are matched
	bits  []uint64 // by value number
	count int      // bits that are set
	kept  bool     // bits belong to a scan in the cache
}

// gather appends to todo the values to match next: those that changed, and further ones
// below until. known is false if there were more changes than the dictionary keeps. The
// index must be locked for reading; set must be called for all of todo before the next
// gather.
func (s *scan) gather(todo []value, until int) (_ []value, known bool) {
	d := &s.tag.values
	changes, known := d.since(s.at)
	if !known {
		return todo, false
	}
	for _, number := range distinct(changes) {
		if int(number) < s.next {
			todo = append(todo, value{number, d.texts[number]})
		}
	}
	s.at = d.changed()
	for to := min(until, s.next+scanSlice); s.next < to; s.next++ {
		todo = append(todo, value{uint32(s.next), d.texts[s.next]})
	}
	return todo, true
}

// settle removes from the result the values that changed since the last gather, so that
// the next user of the scan matches them again. It returns false if the dictionary no
// longer has these changes. The index must be locked for reading.
func (s *scan) settle() (known bool) {
	changes, known := s.tag.values.since(s.at)
	for _, number := range changes {
		if int(number) < s.next {
			s.set(number, false)
		}
	}
	return known
}

// distinct returns the numbers without duplicates.
func distinct(numbers []uint32) []uint32 {
	numbers = slices.Clone(numbers)
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// set records whether the value with this number matches.
func (s *scan) set(number uint32, matched bool) {
	word, bit := int(number/64), uint64(1)<<(number%64)
	if word < len(s.bits) && s.bits[word]&bit != 0 == matched || word >= len(s.bits) && !matched {
		return
	}
	if s.kept {
		s.bits, s.kept = slices.Clone(s.bits), false
	}
	for word >= len(s.bits) {
		s.bits = append(s.bits, 0)
	}
	s.bits[word] ^= bit
	if matched {
		s.count++
	} else {
		s.count--
	}
}

// has reports whether a value matches.
func (s *scan) has(number uint32) bool {
	word := int(number / 64)
	return word < len(s.bits) && s.bits[word]&(1<<(number%64)) != 0
}

// appendTo appends the postings of the values of mt that match.
func (s *scan) appendTo(lists []handle, mt *metricTag) []handle {
	if s.count > 2*mt.values.len() {
		for number, h := range mt.values.all() {
			if s.has(number) {
				lists = append(lists, h)
			}
		}
		return lists
	}
	for word, set := range s.bits {
		for ; set != 0; set &= set - 1 {
			if h, ok := mt.values.get(uint32(word*64 + bits.TrailingZeros64(set))); ok {
				lists = append(lists, h)
			}
		}
	}
	return lists
}

// unionOf returns the union of scans of the same tag.
func unionOf(scans []*scan) *scan {
	if len(scans) == 1 {
		return scans[0]
	}
	union := &scan{}
	for _, s := range scans {
		for len(union.bits) < len(s.bits) {
			union.bits = append(union.bits, 0)
		}
		for word, set := range s.bits {
			union.bits[word] |= set
		}
	}
	for _, set := range union.bits {
		union.count += bits.OnesCount64(set)
	}
	return union
}

func (s *scan) bytes() int { return 8*cap(s.bits) + 256 }

// A scanCache keeps the most recently used scans, up to scanCacheBytes.
type scanCache struct {
	mu    sync.Mutex
	scans map[scanKey]*keptScan
	bytes int
	clock uint64
}

type scanKey struct {
	tag  *tag
	expr string
}

type keptScan struct {
	scan scan
	used uint64 // clock of the last use
}

// get returns a copy of the cached scan of expr, a new one if there is none.
func (c *scanCache) get(t *tag, expr string) *scan {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	k := c.scans[scanKey{t, expr}]
	if k == nil {
		return &scan{tag: t}
	}
	k.used = c.clock
	s := k.scan
	return &s
}

// put caches s, which its owner continues to read.
func (c *scanCache) put(expr string, s *scan) {
	if s.bytes() > scanCacheBytes/2 {
		return
	}
	s.kept = true
	c.mu.Lock()
	defer c.mu.Unlock()
	key := scanKey{s.tag, expr}
	if old := c.scans[key]; old != nil {
		c.bytes -= old.scan.bytes()
	}
	if c.scans == nil {
		c.scans = make(map[scanKey]*keptScan)
	}
	c.scans[key] = &keptScan{*s, c.clock}
	c.bytes += s.bytes()
	for c.bytes > scanCacheBytes {
		c.evict()
	}
}

// evict drops the least recently used scan. c.mu must be held.
func (c *scanCache) evict() {
	var oldest scanKey
	used := c.clock + 1
	for key, k := range c.scans {
		if k.used < used {
			oldest, used = key, k.used
		}
	}
	c.bytes -= c.scans[oldest].scan.bytes()
	delete(c.scans, oldest)
}
