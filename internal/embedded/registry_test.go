package embedded

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

func registryKey(n int) string { return "\x01m" + strings.Repeat("x", n%7) + fmt.Sprint(n) }

// TestRegistry compares random use with a map.
func TestRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRegistry()
		ids := map[string]uint32{}
		key := rapid.Custom(func(t *rapid.T) string { return registryKey(rapid.IntRange(0, 2000).Draw(t, "key")) })
		create := func(k string) {
			id, err := r.create(k)
			if want, known := ids[k]; err != nil || known && id != want {
				t.Fatalf("create(%q) = %d, %v; want %d", k, id, err, want)
			}
			ids[k] = id
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) { create(key.Draw(t, "key")) },
			"many": func(t *rapid.T) {
				for i := range 300 {
					create(registryKey(3000 + i))
				}
			},
			"restore": func(t *rapid.T) {
				id, k := uint32(rapid.IntRange(5000, 7000).Draw(t, "id")), key.Draw(t, "key")
				if r.keyLocked(id) != "" && r.keyLocked(id) != k {
					return
				}
				r.restore(record.Definition{ID: id, Key: k})
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
				r.forget(some)
			},
			"settle": func(t *rapid.T) { r.settle() },
			"": func(t *rapid.T) {
				if r.count() != len(ids) {
					t.Fatalf("%d series, want %d", r.count(), len(ids))
				}
				for k, id := range ids {
					if got, ok := r.lookup([]byte(k)); !ok || got != id || r.keyLocked(id) != k || r.kind(id) != 1 {
						t.Fatalf("%q has id %d, %v and key %q; want %d", k, got, ok, r.keyLocked(id), id)
					}
				}
				if _, ok := r.lookup([]byte("\x01none")); ok {
					t.Fatal("a key is found that was never there")
				}
				for _, id := range slices.Sorted(maps.Values(ids)) {
					if !slices.Contains(r.ids(), id) {
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
	r := newRegistry()
	const generation, generations = 10_000, 100
	var last []uint32
	for g := range generations {
		var ids []uint32
		for i := range generation {
			id, err := r.create(registryKey(g*generation + i))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		r.forget(last)
		last = ids
	}
	pages := 0
	for _, p := range r.pages {
		if p != nil {
			pages++
		}
	}
	if pages > generation/registryPageSize+2 {
		t.Errorf("%d series have %d pages", r.count(), pages)
	}
	if n := len(r.ids()); n != generation {
		t.Errorf("%d ids, want %d", n, generation)
	}
}

// TestPagesArePackedAgain: one series that stays keeps little of 255 that went.
func TestPagesArePackedAgain(t *testing.T) {
	r := newRegistry()
	for i := range registryPageSize + 1 { // one more makes the first page pack
		if _, err := r.create(registryKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	p := r.pages[0]
	if p.loose != nil {
		t.Fatal("a full page is not packed")
	}
	for id := range uint32(registryPageSize - 1) {
		r.forget([]uint32{id})
	}
	if want := registryKey(registryPageSize - 1); p.key(registryPageSize-1) != want || len(p.text) > 2*len(want) {
		t.Errorf("the key is %q in a text of %d bytes", p.key(registryPageSize-1), len(p.text))
	}
}

// TestUnused: a series that gets no sample is forgotten at the second look.
func TestUnused(t *testing.T) {
	r := newRegistry()
	used, _ := r.create(registryKey(1))
	never, _ := r.create(registryKey(2))
	if ids := r.unused(); ids != nil {
		t.Fatalf("%v given up at the first look", ids)
	}
	r.introduce(nil, []store.Sample{{Ref: store.Ref(used)}})
	late, _ := r.create(registryKey(3))
	if ids := r.unused(); !slices.Equal(ids, []uint32{never}) {
		t.Fatalf("given up: %v, want %v", ids, []uint32{never})
	}
	r.forget([]uint32{never})
	if ids := r.unused(); !slices.Equal(ids, []uint32{late}) {
		t.Fatalf("given up: %v, want %v", ids, []uint32{late})
	}
	r.forget([]uint32{late})
	if r.unlogged.Load() != 0 || r.unused() != nil {
		t.Error("something is left")
	}
}
