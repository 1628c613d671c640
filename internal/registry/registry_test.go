package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"varve/internal/record"
	"varve/internal/store"
)

func testKey(n int) string { return "\x01m" + strings.Repeat("x", n%7) + fmt.Sprint(n) }

// TestRegistry compares random use with a map.
func TestRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		ids := map[string]uint32{}
		key := rapid.Custom(func(t *rapid.T) string { return testKey(rapid.IntRange(0, 2000).Draw(t, "key")) })
		create := func(k string) {
			id, err := r.Create(k)
			if want, known := ids[k]; err != nil || known && id != want {
				t.Fatalf("create(%q) = %d, %v; want %d", k, id, err, want)
			}
			ids[k] = id
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) { create(key.Draw(t, "key")) },
			"many": func(t *rapid.T) {
				for i := range 300 {
					create(testKey(3000 + i))
				}
			},
			"restore": func(t *rapid.T) {
				id, k := uint32(rapid.IntRange(5000, 7000).Draw(t, "id")), key.Draw(t, "key")
				if r.keyLocked(id) != "" && r.keyLocked(id) != k {
					return
				}
				r.Restore(record.Definition{ID: id, Key: k})
				ids[k] = id
			},
			"forget": func(t *rapid.T) {
				var some []uint32
				for k, id := range ids {
					if id%3 == uint32(len(ids)%3) {
						some = append(some, id)
						delete(ids, k)
					}
				}
				r.Forget(some)
			},
			"settle": func(t *rapid.T) { r.Settle() },
			"": func(t *rapid.T) {
				if r.Count() != len(ids) {
					t.Fatalf("%d series, want %d", r.Count(), len(ids))
				}
				for k, id := range ids {
					if got, ok := r.Lookup([]byte(k)); !ok || got != id || r.keyLocked(id) != k || r.Kind(id) != 1 {
						t.Fatalf("%q has id %d, %v and key %q; want %d", k, got, ok, r.keyLocked(id), id)
					}
				}
				if _, ok := r.Lookup([]byte("\x01none")); ok {
					t.Fatal("a key is found that was never there")
				}
				for _, id := range slices.Sorted(maps.Values(ids)) {
					if !slices.Contains(r.IDs(), id) {
						t.Fatalf("%d is not listed", id)
					}
				}
			},
		})
	})
}

// TestForgottenSeriesCostNothing: a registry through which a million series
// have gone is as small as what is alive in it.
func TestForgottenSeriesCostNothing(t *testing.T) {
	r := New()
	const generation, generations = 10_000, 100
	var last []uint32
	for g := range generations {
		var ids []uint32
		for i := range generation {
			id, err := r.Create(testKey(g*generation + i))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		r.Forget(last)
		last = ids
	}
	if pages := r.Pages(); pages > generation/PageSize+2 {
		t.Errorf("%d series have %d pages", r.Count(), pages)
	}
	if n := len(r.IDs()); n != generation {
		t.Errorf("%d ids, want %d", n, generation)
	}
}

// TestPagesArePackedAgain: one series that stays keeps little of 255 that went.
func TestPagesArePackedAgain(t *testing.T) {
	r := New()
	for i := range PageSize + 1 { // one more makes the first page pack
		if _, err := r.Create(testKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	p := r.pages[0]
	if p.loose != nil {
		t.Fatal("a full page is not packed")
	}
	for id := range uint32(PageSize - 1) {
		r.Forget([]uint32{id})
	}
	if want := testKey(PageSize - 1); p.key(PageSize-1) != want || len(p.text) > 2*len(want) {
		t.Errorf("the key is %q in a text of %d bytes", p.key(PageSize-1), len(p.text))
	}
}

// TestUnused: a series that gets no sample is forgotten at the second look.
func TestUnused(t *testing.T) {
	r := New()
	used, _ := r.Create(testKey(1))
	never, _ := r.Create(testKey(2))
	if ids := r.Unused(); ids != nil {
		t.Fatalf("%v given up at the first look", ids)
	}
	r.Introduce(nil, []store.Sample{{Ref: store.Ref(used)}})
	late, _ := r.Create(testKey(3))
	if ids := r.Unused(); !slices.Equal(ids, []uint32{never}) {
		t.Fatalf("given up: %v, want %v", ids, []uint32{never})
	}
	r.Forget([]uint32{never})
	if ids := r.Unused(); !slices.Equal(ids, []uint32{late}) {
		t.Fatalf("given up: %v, want %v", ids, []uint32{late})
	}
	r.Forget([]uint32{late})
	if r.unlogged.Load() != 0 || r.Unused() != nil {
		t.Error("something is left")
	}
}
