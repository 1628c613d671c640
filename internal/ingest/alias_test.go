package ingest

import (
	"bytes"
	"strings"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/gzip"

	"varve/internal/model"
	"varve/internal/store"
)

// textsCollide reports whether some of the texts displace each other in a cache.
func textsCollide(c *aliasCache, texts ...string) bool {
	slots := make(map[*string]bool)
	for _, text := range texts {
		slots[c.slot([]byte(text))] = true
	}
	return len(slots) < len(texts)
}

// Aliases of one host share the text of its tags, and those of one metric that of
// its name. Long texts are not kept for others.
func TestAliasesShareTexts(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	for textsCollide(c, "load", "free", "host=a", "host=b") {
		c = newAliasCache(1, 1<<20) // with another seed
	}
	add := func(ref uint64, head, tail string) *Alias {
		h, tl := []byte(head), []byte(tail)
		hash := c.hash(model.Double, 1, h, tl)
		a := c.add(hash, model.Double, 1, h, tl, store.Ref(ref), 0)
		if c.find(hash, model.Double, 1, h, tl) != a {
			t.Errorf("%s %.20s is not found", head, tail)
		}
		clear(h) // the sender's buffer is used again
		clear(tl)
		if a.head != head || a.tail != tail {
			t.Errorf("%q %.20q is kept as %q %.20q", head, tail, a.head, a.tail)
		}
		return a
	}
	first := add(1, "load", "host=a")
	other := add(2, "free", "host=a")
	same := add(3, "load", "host=b")
	if unsafe.StringData(first.tail) != unsafe.StringData(other.tail) {
		t.Error("equal tags are kept twice")
	}
	if unsafe.StringData(first.head) != unsafe.StringData(same.head) {
		t.Error("equal metrics are kept twice")
	}
	long := strings.Repeat("x", sharedText+1)
	add(4, "load", long)
	for _, text := range c.mu.texts {
		if len(text) > sharedText {
			t.Errorf("a text of %d bytes is kept", len(text))
		}
	}
	if got := add(5, "load", "host=a"); got.Ref != store.Ref(5) || got.tail != "host=a" {
		t.Errorf("the alias of another series is %v", got.Ref)
	}
}

// Two writers that meet a new spelling at the same time share one alias.
func TestAliasAddedTwice(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	head, tail := []byte("load"), []byte("host=a")
	add := func() *Alias {
		return c.add(c.hash(model.Double, 1, head, tail), model.Double, 1, head, tail, 7, 0)
	}
	if first := add(); add() != first {
		t.Error("the second writer got an alias of its own")
	}
}

// Two spellings with one hash are told apart by all that belongs to a spelling.
func TestAliasesOfOneHash(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	const hash = 7
	spellings := []struct {
		kind       model.Kind
		syntax     uint8
		head, tail string
	}{
		{model.Double, 1, "load", "host=a"}, {model.Long, 1, "load", "host=a"}, {model.Double, 2, "load", "host=a"},
		{model.Double, 1, "free", "host=a"}, {model.Double, 1, "load", "host=b"},
	}
	for i, s := range spellings {
		if a := c.find(hash, s.kind, s.syntax, []byte(s.head), []byte(s.tail)); a != nil {
			t.Errorf("%+v is taken for series %d", s, a.Ref)
		}
		c.add(hash, s.kind, s.syntax, []byte(s.head), []byte(s.tail), store.Ref(i), 0)
	}
	for i, s := range spellings {
		if a := c.find(hash, s.kind, s.syntax, []byte(s.head), []byte(s.tail)); a == nil || a.Ref != store.Ref(i) {
			t.Errorf("%+v is taken for %+v, want series %d", s, a, i)
		}
	}
}

// Two readers that find an alias of the old generation at the same time move it once. An alias that is
// not there replaces nothing.
func TestAliasMovedTwice(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	head, tail := []byte("load"), []byte("host=a")
	a := c.add(c.hash(model.Double, 1, head, tail), model.Double, 1, head, tail, 7, 0)
	c.mu.Lock()
	c.turnLocked()
	c.mu.Unlock()
	c.promote(a)
	c.promote(a)
	if young := c.young.Load(); young.count != 1 || c.mu.youngBytes != a.bytes() {
		t.Errorf("%d aliases of %d bytes, want 1 of %d", young.count, c.mu.youngBytes, a.bytes())
	}
	c.young.Load().replace(&Alias{hash: a.hash}, &Alias{})
	if got := c.find(c.hash(model.Double, 1, head, tail), model.Double, 1, head, tail); got != a {
		t.Errorf("found %v", got)
	}
}

// A reader of packed bodies that was used before refuses what is not packed.
func TestGzipReaderIsUsedAgain(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	zr, err := gzip.NewReader(&packed)
	if err != nil {
		t.Fatal(err)
	}
	gzipPool.Put(zr)
	if got, err := newGzipReader(strings.NewReader("[]")); err == nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// A ring keeps nothing where nothing was refused.
func TestNothingRefused(t *testing.T) {
	r := newRejectedRing(3, nil)
	r.add(&[reasons]uint32{})
	if r.mu.next != 0 || r.mu.timer != nil {
		t.Errorf("%d are kept", r.mu.next)
	}
}

// Aliases that are not used for a generation are forgotten, and lead to no others then: a
// chain of them would keep all in memory. Those that are used stay, and lead to the next.
func TestForgottenAliasesLetGo(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	head := []byte("load")
	add := func(tail string) *Alias {
		return c.add(c.hash(model.Double, 1, head, []byte(tail)), model.Double, 1, head, []byte(tail), 7, 0)
	}
	find := func(tail string) *Alias {
		return c.find(c.hash(model.Double, 1, head, []byte(tail)), model.Double, 1, head, []byte(tail))
	}
	turn := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.turnLocked()
	}
	used, unused := add("host=used"), add("host=unused")
	used.next.Store(unused)
	unused.next.Store(used)
	turn()
	if find("host=used") != used || used.next.Load() != unused || unused.next.Load() != used {
		t.Error("after one generation, an alias is gone or leads nowhere")
	}
	turn()
	if find("host=unused") != nil || unused.next.Load() != nil {
		t.Error("an alias that was not used for a generation is there, or holds others")
	}
	if find("host=used") != used || used.next.Load() != unused {
		t.Error("an alias that was used is gone, or leads nowhere")
	}
	if n, bytes := c.size(); n != 2 || bytes != 2*used.bytes() { // young and old
		t.Errorf("%d aliases of %d bytes are held, want one twice", n, bytes)
	}
	turn()
	turn()
	if n, bytes := c.size(); n != 0 || bytes != 0 || find("host=used") != nil || used.next.Load() != nil {
		t.Errorf("%d aliases of %d bytes are held at rest", n, bytes)
	}
}
