package ingest

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"varve/internal/model"
	"varve/internal/store"
)

// An Alias is a series as a sender spells it: head and tail are the bytes of
// metric and tags as they were sent.
type Alias struct {
	Ref store.Ref
	TTL uint32 // as it was sent, when the tail says so (telnet), else 0

	gen    atomic.Uint32 // generation of the cache that holds it
	hash   uint32        // the lower half
	kind   model.Kind
	syntax uint8
	word   bool

	// A sender spells the tags of a host in the same way for all its metrics. Such aliases share
	// the texts, which thus also stay in the processor's cache.
	head, tail string

	// next is the alias that followed when this one was last seen. It may be
	// of any connection: a wrong guess costs one comparison.
	next atomic.Pointer[Alias]
}

func (a *Alias) matches(kind model.Kind, syntax uint8, head, tail []byte) bool {
	return a.kind == kind && a.syntax == syntax && a.tail == string(tail) && a.head == string(head)
}

// Kind is the kind of the values that the alias is for.
func (a *Alias) Kind() model.Kind { return a.kind }

// Word reports whether the head is one word, as CutWord cuts words, that does not begin
// with a double quote.
func (a *Alias) Word() bool { return a.word }

// Head is how the sender spells the metric.
func (a *Alias) Head() string { return a.head }

// Tail is how the sender spells the tags.
func (a *Alias) Tail() string { return a.tail }

// aliasBytes is what an alias costs beside its texts: itself and two slots.
const aliasBytes = 64 + 16

// aliasTable is an open-addressing hash table that is read without locks.
// A slot that was filled stays filled.
type aliasTable struct {
	slots []atomic.Pointer[Alias] // a power of two, at most half full
	count int                     // guarded by aliasCache.mu
}

func newAliasTable(size int) *aliasTable {
	return &aliasTable{slots: make([]atomic.Pointer[Alias], size)}
}

func (t *aliasTable) find(hash uint64, kind model.Kind, syntax uint8, head, tail []byte) *Alias {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		a := t.slots[i].Load()
		if a == nil {
			return nil
		}
		if a.hash == uint32(hash) && a.matches(kind, syntax, head, tail) {
			return a
		}
	}
}

func (t *aliasTable) put(a *Alias) {
	mask := uint64(len(t.slots) - 1)
	i := uint64(a.hash) & mask
	for t.slots[i].Load() != nil {
		i = (i + 1) & mask
	}
	t.slots[i].Store(a)
	t.count++
}

// replace puts a in the place of an alias of the same spelling.
func (t *aliasTable) replace(old, a *Alias) {
	mask := uint64(len(t.slots) - 1)
	for i := uint64(a.hash) & mask; ; i = (i + 1) & mask {
		switch t.slots[i].Load() {
		case old:
			t.slots[i].Store(a)
			return
		case nil:
			return
		}
	}
}

// aliasCache holds the aliases of one epoch of the store in two generations. New aliases go to the
// young one. When that is full it becomes the old one, whose members move to the young one when
// they are used. So aliases that were not used for a whole generation are forgotten.
type aliasCache struct {
	epoch    uint64
	maxBytes int64 // of one generation
	seed     maphash.Seed
	gen      atomic.Uint32
	young    atomic.Pointer[aliasTable]
	old      atomic.Pointer[aliasTable]

	mu struct {
		sync.Mutex
		youngBytes, oldBytes int64

		texts [256]string // of the latest aliases, by hash
	}
}

func newAliasCache(epoch uint64, maxBytes int64) *aliasCache {
	c := &aliasCache{epoch: epoch, maxBytes: maxBytes / 2, seed: maphash.MakeSeed()}
	c.gen.Store(1)
	c.young.Store(newAliasTable(1024))
	c.old.Store(newAliasTable(1))
	return c
}

func (c *aliasCache) hash(kind model.Kind, syntax uint8, head, tail []byte) uint64 {
	h := maphash.Bytes(c.seed, tail)
	h ^= maphash.Bytes(c.seed, head) * 0x9e3779b97f4a7c15
	return h + uint64(kind)<<8 + uint64(syntax)
}

func (c *aliasCache) find(hash uint64, kind model.Kind, syntax uint8, head, tail []byte) *Alias {
	if a := c.young.Load().find(hash, kind, syntax, head, tail); a != nil {
		return a
	}
	a := c.old.Load().find(hash, kind, syntax, head, tail)
	if a != nil {
		c.promote(a)
	}
	return a
}

// current reports whether a is in the young generation, so that using it
// without a find does not let it grow old.
func (c *aliasCache) current(a *Alias) bool { return a.gen.Load() == c.gen.Load() }

func (c *aliasCache) promote(a *Alias) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.gen.Load() == c.gen.Load() {
		return // another one was faster
	}
	c.insertLocked(a)
}

// add makes an alias, unless it exists by now or is too large for the cache; the caller can use it
// in either case. It replaces an alias of the same spelling that leads to a series that was
// forgotten.
func (c *aliasCache) add(hash uint64, kind model.Kind, syntax uint8, head, tail []byte, ref store.Ref, ttl uint32) *Alias {
	a := &Alias{Ref: ref, TTL: ttl, kind: kind, syntax: syntax, hash: uint32(hash), word: isWord(head)}
	if aliasBytes+int64(len(head)+len(tail)) > c.maxBytes/16 {
		a.head, a.tail = string(head), string(tail)
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	there := c.young.Load().find(hash, kind, syntax, head, tail)
	if there != nil && there.Ref == ref {
		return there
	}
	a.head, a.tail = c.textLocked(head), c.textLocked(tail)
	if there == nil {
		c.insertLocked(a)
		return a
	}
	c.young.Load().replace(there, a)
	a.gen.Store(c.gen.Load())
	there.gen.Store(0)
	there.next.Store(nil)
	return a
}

// sharedText is the longest text that is kept for other aliases to share: all such texts take a
// quarter of a MiB at most.
const sharedText = 1 << 10

// textLocked returns b as a text, if possible that of an earlier alias. c.mu must be
// held.
func (c *aliasCache) textLocked(b []byte) string {
	if len(b) > sharedText {
		return string(b)
	}
	kept := c.slot(b)
	if *kept != string(b) {
		*kept = string(b)
	}
	return *kept
}

// slot returns where a text is kept. c.mu must be held.
func (c *aliasCache) slot(b []byte) *string {
	return &c.mu.texts[maphash.Bytes(c.seed, b)%uint64(len(c.mu.texts))]
}

// bytes counts the texts as if no other alias shared them.
func (a *Alias) bytes() int64 { return aliasBytes + int64(len(a.head)+len(a.tail)) }

// insertLocked puts a into the young generation. c.mu must be held.
func (c *aliasCache) insertLocked(a *Alias) {
	if c.mu.youngBytes+a.bytes() > c.maxBytes {
		c.turnLocked()
	}
	t := c.young.Load()
	if 2*(t.count+1) > len(t.slots) {
		larger := newAliasTable(2 * len(t.slots))
		for i := range t.slots {
			if x := t.slots[i].Load(); x != nil {
				larger.put(x)
			}
		}
		t = larger
	}
	t.put(a)
	a.gen.Store(c.gen.Load())
	c.mu.youngBytes += a.bytes()
	c.young.Store(t)
}

// turnLocked begins a new generation. The aliases that are dropped lose their
// successor, so that a chain of guesses cannot keep them alive. c.mu must be
// held.
func (c *aliasCache) turnLocked() {
	gen, dropped := c.gen.Load(), c.old.Load()
	for i := range dropped.slots {
		if a := dropped.slots[i].Load(); a != nil && a.gen.Load() != gen {
			a.next.Store(nil)
		}
	}
	c.old.Store(c.young.Load())
	c.young.Store(newAliasTable(1024))
	c.gen.Store(gen + 1)
	c.mu.oldBytes, c.mu.youngBytes = c.mu.youngBytes, 0
}

// size returns how many aliases are held, some twice, and their bytes.
func (c *aliasCache) size() (count int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.young.Load().count + c.old.Load().count, c.mu.youngBytes + c.mu.oldBytes
}
