package spool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
)

// TestRunsHold: runs take memory for samples that are out of order in memory, and for those that
// they read from files, one generation at a time, and give it back.
func TestRunsHold(t *testing.T) {
	const samples, size = 100, 10_000
	full := errors.New("full")
	for name, spills := range map[string][]bool{"memory": {false}, "files": {true, true}} {
		s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{})
		var want []int
		for _, spill := range spills {
			for i := range samples {
				putText(t, s, "text", strings.Repeat("a", size), int64(i*7919%samples)*1000)
			}
			if want = append(want, samples); spill {
				spillActive(t, s)
			}
		}
		series := model.Series{Metric: "text", Type: model.TypeString, Tags: model.MustTags("a", "b")}
		ref, _ := s.Lookup(series.AppendKey(nil))
		id := model.SeriesNumber(ref)
		v := s.View()

		var held, most, limit int64
		hold := func(bytes int64) error {
			if limit > 0 && held+bytes > limit {
				return full
			}
			held += bytes
			most = max(most, held)
			return nil
		}
		if counts, err := runsOf(v, id, model.AllTime, hold); err != nil || !slices.Equal(counts, want) {
			t.Errorf("%s: %d samples, %v", name, counts, err)
		}
		if most < samples*size*3/4 || most > 3*samples*size || held != 0 {
			t.Errorf("%s: of runs of %d bytes each, at most %d were held, and %d are at the end", name, samples*size, most, held)
		}
		for _, limit = range []int64{1, most - 1} {
			if counts, err := runsOf(v, id, model.AllTime, hold); !errors.Is(err, full) || held != 0 {
				t.Errorf("%s, with a limit of %d: %d, %v; %d are held", name, limit, counts, err, held)
			}
		}
		v.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
