package read

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/chunk"
	"varve/internal/collectors"
)

// TestCacheGroups: after any sequence of calls, a cache has the values that a plain list of the
// recently used ones has.
func TestCacheGroups(t *testing.T) {
	type at = cacheKey[int, int]
	const room = 20
	c := newCache[int, int, int](room, collectors.Named(""), "cache", cacheHelp{})
	var recent []at // most recently used last
	remove := func(gone func(at) bool) {
		kept := recent[:0]
		for _, a := range recent {
			if !gone(a) {
				kept = append(kept, a)
			}
		}
		recent = kept
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		a := at{random.IntN(5), random.IntN(10)}
		switch random.IntN(20) {
		case 0:
			c.forget(a.group)
			remove(func(b at) bool { return a.group == b.group })
		case 1:
			c.get(a.group, a.key, func(int) (use, drop bool) { return false, true })
			remove(func(b at) bool { return a == b })
		default:
			c.put(a.group, a.key, a.group*10+a.key, 1, c.begin(a.group))
			remove(func(b at) bool { return a == b })
			recent = append(recent, a)
			recent = recent[max(0, len(recent)-room):]
		}
		there := map[at]bool{}
		groups := map[int]bool{}
		for _, a := range recent {
			there[a], groups[a.group] = true, true
		}
		for a.group = range 5 {
			for a.key = range 10 {
				if has := c.values[a] != nil; has != there[a] {
					t.Fatalf("step %d: has %v: %v, want %v", i, a, has, there[a])
				}
			}
			if c.holds(a.group) != groups[a.group] {
				t.Fatalf("step %d: holds group %d: %v", i, a.group, !groups[a.group])
			}
		}
		if c.size() != int64(len(recent)) {
			t.Fatalf("step %d: %d bytes for %v", i, c.size(), recent)
		}
	}
}

// TestCacheBytes: small values take no more memory than is counted for them.
func TestCacheBytes(t *testing.T) {
	const n = 50_000
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // what the first one left in pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	check := func(what string, fill func() (size func() int64)) {
		before := heap()
		size := fill()
		if takes, counted := (heap()-before)/n, size()/n; takes > counted*115/100 {
			t.Errorf("%s takes %d bytes, of which %d are counted", what, takes, counted)
		}
	}
	check("a slice", func() func() int64 {
		c := newChunkCache(1<<30, time.Hour, time.Now, collectors.Named(""))
		for i := range n {
			key := fmt.Sprintf("%048d", i)
			c.put(key, Typed, &chunkEntry{chunks: make([]chunk.Entry, 1)}, int64(len(key)+entryOverhead+chunkOverhead), c.begin(key))
		}
		return c.size
	})
	for _, per := range []int{1, 1000} {
		check(fmt.Sprintf("one of %d lists of a partition", per), func() func() int64 {
			c := newPostingsCache(1<<30, time.Now, collectors.Named(""))
			for i := range n {
				p := rowkey.Partition{Metric: fmt.Sprintf("%048d", i/per)}
				c.put(p, tagPair{"host", fmt.Sprintf("%016d", i)}, &keyList{}, version{}, time.Time{}, c.begin(p))
			}
			return c.size
		})
	}
}
