package offline

import (
	"math"
	"strings"
	"testing"

	"varve/internal/chunk"
	"varve/internal/model"
)

// TestCompareEntry changes each thing that a chunk says of its samples.
func TestCompareEntry(t *testing.T) {
	var cols model.Columns
	for i, v := range []float64{1.5, -2, 7} {
		cols.AppendFixed(int64(1000+i*10), math.Float64bits(v), 60)
	}
	right := func() *chunk.Entry {
		return &chunk.Entry{
			Kind: model.Double, Count: 3, FirstMS: 1000, LastMS: 1020, HasTTL: true, MaxExpiryMS: 61_020,
			HasStats: true, Stats: model.Stats{
				Count: 3, FirstMS: 1000, LastMS: 1020, Min: -2, Max: 7, Sum: 6.5,
				First: math.Float64bits(1.5), Last: math.Float64bits(7),
			},
		}
	}
	if problem := compareEntry(right(), &cols); problem != "" {
		t.Errorf("nothing was changed: %s", problem)
	}
	for problem, change := range map[string]func(e *chunk.Entry){
		"expected 4 samples, got 3":                       func(e *chunk.Entry) { e.Count++ },
		"expected samples from 999 to 1020 ms":            func(e *chunk.Entry) { e.FirstMS-- },
		"expected samples from 1000 to 1021 ms":           func(e *chunk.Entry) { e.LastMS++ },
		"the last sample to expire at 61021 ms":           func(e *chunk.Entry) { e.MaxExpiryMS++ },
		"expected minimum -3, maximum 7, sum 6.5, got -2": func(e *chunk.Entry) { e.Stats.Min-- },
		"expected minimum -2, maximum 8, sum 6.5, got -2": func(e *chunk.Entry) { e.Stats.Max++ },
		"expected minimum -2, maximum 7, sum 7.5, got -2": func(e *chunk.Entry) { e.Stats.Sum++ },
		"expected minimum -2, maximum 7, sum 6.5, got -2": func(e *chunk.Entry) { e.Stats.First++ },
		"sum 6.5, got -2, 7, 6.5":                         func(e *chunk.Entry) { e.Stats.Last++ },
	} {
		e := right()
		if change(e); !strings.Contains(compareEntry(e, &cols), problem) {
			t.Errorf("%q, want %q", compareEntry(e, &cols), problem)
		}
	}
	cols.Times[1] = cols.Times[0]
	if problem := compareEntry(right(), &cols); problem != "sample at 1000 ms after sample at 1000 ms" {
		t.Errorf("two samples at one time: %q", problem)
	}
}
