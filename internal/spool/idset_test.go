package spool

import (
	"testing"

	"pgregory.net/rapid"

	"varve/internal/model"
)

func TestIDSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s idSet
		want := map[model.SeriesNumber]bool{}
		id := rapid.SampledFrom([]model.SeriesNumber{0, 1, 63, 64, 4095, 4096, 4097, 1 << 20, 1<<20 + 1})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				n := id.Draw(t, "id")
				if s.add(n) == want[n] {
					t.Fatalf("add(%d) says the opposite", n)
				}
				want[n] = true
			},
			"remove": func(t *rapid.T) {
				n := id.Draw(t, "id")
				if s.remove(n) != want[n] {
					t.Fatalf("remove(%d) says the opposite", n)
				}
				delete(want, n)
			},
			"": func(t *rapid.T) {
				for _, n := range []model.SeriesNumber{0, 1, 2, 63, 64, 4095, 4096, 4097, 1 << 20, 1<<20 + 1, 1 << 30} {
					if s.has(n) != want[n] {
						t.Fatalf("has(%d) is %v", n, s.has(n))
					}
				}
			},
		})
	})
}
