package head

import (
	"math"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// TestSmallDeletes deletes single samples of a long series: each delete rewrites one
// fragment, not the series.
func TestSmallDeletes(t *testing.T) {
	const samples, deletes, id = 100_000, 150, 1
	h := New(0)
	for i := range int64(samples) {
		write(h, id, sample{MS: i, Value: uint64(i*i) * 0x9e3779b97f4a7c15})
	}
	before := h.Bytes()
	for i := range int64(deletes) {
		at := i * (samples / deletes)
		if err := h.Delete(id, model.TimeRange{StartMS: at, EndMS: at}); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Count(id); n != samples-deletes {
		t.Errorf("%d samples are left", n)
	}
	// At most a fragment of 32 incompressible samples each.
	if grown := h.Bytes() - before; grown > deletes*600 {
		t.Errorf("%d deletes took %d bytes", deletes, grown)
	}
	checkBytes(t, h)
}

// TestDeletesOfNothing: a delete between the samples of a series takes no memory,
// however often it is repeated.
func TestDeletesOfNothing(t *testing.T) {
	const id = 1
	h := New(0)
	for i := range int64(1000) {
		write(h, id, sample{MS: 10 * i, Value: uint64(i*i) * 0x9e3779b97f4a7c15})
	}
	before := h.Bytes()
	for i := range int64(999) {
		if err := h.Delete(id, model.TimeRange{StartMS: 10*i + 1, EndMS: 10*i + 9}); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.Count(id); n != 1000 || h.Bytes() != before {
		t.Errorf("%d samples are left, and %d bytes more are taken", n, h.Bytes()-before)
	}
	checkBytes(t, h)
}

// TestHighIDs: the memory of a head does not depend on the ids of its series.
func TestHighIDs(t *testing.T) {
	for _, base := range []model.SeriesNumber{0, 100_000_000, math.MaxUint32 - shardCount*pageSize + 1} {
		h := New(0)
		for i := range model.SeriesNumber(shardCount) { // a series in each shard
			h.Append(&store.Batch{Samples: []store.Sample{{Ref: store.Ref(base + i*pageSize), TimeMS: 1}}}, []model.Kind{model.Long})
		}
		for i := range h.shards {
			if n := len(h.shards[i].dirs); n > math.MaxUint32/pageSize/shardCount/dirPages+1 {
				t.Errorf("ids from %d: a shard has %d directories", base, n)
			}
		}
		if most := shardCount * (pageBytes + dirBytes + blockBytes); h.Bytes() > most {
			t.Errorf("ids from %d: %d bytes, want at most %d", base, h.Bytes(), most)
		}
		n := 0
		for id := range h.Series() {
			if id != base+model.SeriesNumber(n)*pageSize {
				t.Fatalf("series %d is %d", n, id)
			}
			n++
		}
		if n != shardCount {
			t.Errorf("ids from %d: %d series listed", base, n)
		}
	}
}

// TestFragmentRefs: references reach every even offset of as many arena blocks as
// a full head fills when each holds one fragment of half its size, and twice that.
func TestFragmentRefs(t *testing.T) {
	seen := uint32(0)
	for _, block := range []int{0, 1, 2, MaxBytes / (arenaBytes / 2), 2*MaxBytes/(arenaBytes/2) - 2} {
		for _, offset := range []int{0, 2, arenaBytes / 2, arenaBytes - 2} {
			ref := fragmentRef(block, offset)
			if b, o := place(ref); ref <= seen || b != block || o != offset {
				t.Errorf("fragment at %d of block %d: reference %d leads to %d of block %d", offset, block, ref, o, b)
			}
			seen = ref
		}
	}
}

// TestNoDeleteWithStamps: a head with stamps does not delete: its samples are deleted in the store that
// they are drained to, by their stamps.
func TestNoDeleteWithStamps(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a head with stamps deletes")
		}
	}()
	_ = NewStamped(0).Delete(1, model.AllTime)
}
