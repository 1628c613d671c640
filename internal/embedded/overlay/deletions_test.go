package overlay

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/record"
)

// Deletions find those of a series, and what these hide of it, as if they examined each. Readers
// may have grouped earlier Deletions, or not.
func TestDeletions(t *testing.T) {
	const series, lastMS = 20, 1000
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var d *Deletions
		var all []*record.Deletion
		for n := range uint64(rng.IntN(700)) {
			next := &record.Deletion{Sequence: n + 1, IDs: roaring.New()}
			next.Range.StartMS = rng.Int64N(lastMS)
			next.Range.EndMS = next.Range.StartMS + rng.Int64N(20)
			for range rng.IntN(3) {
				next.IDs.Add(rng.Uint32N(series))
			}
			all = append(all, next)
			other := d.With(&record.Deletion{Sequence: n + 1, IDs: roaring.BitmapOf(series)}) // of another state
			if d = d.With(next); rng.IntN(50) == 0 {
				for range d.Of(0) {
				}
				for range other.Of(0) {
				}
			}
		}
		if !slices.Equal(d.List(), all) {
			t.Fatalf("seed %d: %d deletions, want %d", seed, len(d.List()), len(all))
		}
		for id := range model.SeriesNumber(series + 1) {
			var want []*record.Deletion
			hidden := make([]bool, 2*lastMS)
			applied, r := uint64(rng.IntN(len(all)+1)), model.TimeRange{StartMS: rng.Int64N(lastMS), EndMS: lastMS}
			for _, m := range all {
				if !m.IDs.Contains(uint32(id)) {
					continue
				}
				want = append(want, m)
				for ms := m.Range.StartMS; m.Sequence > applied && m.Range.Overlaps(r) && ms <= m.Range.EndMS; ms++ {
					hidden[ms] = true
				}
			}
			if got := slices.Collect(d.Of(id)); !slices.Equal(got, want) {
				t.Fatalf("seed %d, series %d: %d deletions, want %d", seed, id, len(got), len(want))
			}
			spans := d.Hidden(Spans{model.AllTime}, id, applied, r)
			for i, s := range spans {
				if i > 0 && s.StartMS <= spans[i-1].EndMS {
					t.Fatalf("seed %d, series %d: spans %v", seed, id, spans)
				}
			}
			for ms := range int64(len(hidden)) {
				if spans.contain(ms) != hidden[ms] {
					t.Fatalf("seed %d, series %d: time %d is hidden: %t, want %t", seed, id, ms, !hidden[ms], hidden[ms])
				}
				q := model.TimeRange{StartMS: ms, EndMS: min(ms+rng.Int64N(5), lastMS)}
				if q.StartMS > q.EndMS {
					continue
				}
				part := hidden[q.StartMS : q.EndMS+1]
				if overlap := slices.Contains(part, true); spans.overlap(q) != overlap {
					t.Fatalf("seed %d, series %d: spans %v overlap with %v: %t, want %t", seed, id, spans, q, !overlap, overlap)
				}
				if spans.cover(q) && slices.Contains(part, false) {
					t.Fatalf("seed %d, series %d: spans %v cover %v", seed, id, spans, q)
				}
			}
		}
	}
}

// A series that no deletion concerns is found in few steps, regardless of the number of deletions.
func TestManyDeletionsOfOthers(t *testing.T) {
	var list []*record.Deletion
	for n := range uint32(40_000) {
		list = append(list, &record.Deletion{Sequence: uint64(n) + 1, Range: model.AllTime, IDs: roaring.BitmapOf(n)})
	}
	d := NewDeletions(list)
	for _, c := range []struct {
		id   model.SeriesNumber
		most int // steps
	}{{50_000, 40}, {7, 80}, {39_999, 80}} {
		steps := 0
		all := d.grouped()
		for i := 0; i < len(list); steps++ {
			i += max(1, d.without(all, i, c.id))
		}
		if steps > c.most {
			t.Errorf("series %d takes %d steps, want at most %d", c.id, steps, c.most)
		}
	}
}
