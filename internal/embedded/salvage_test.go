package embedded

import (
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/registry"
	"varve/internal/store"
)

// TestSalvageOfPartOfARecord: of a record that names an unknown series, and of a deletion that cannot be
// decoded, nothing is used. Without a salvage, a replay ends there.
func TestSalvageOfPartOfARecord(t *testing.T) {
	series := registry.New()
	known, err := series.CreateSeries(model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		refs     []store.Ref
		deletion *record.Deletion
		samples  int
	}{
		{"known series", []store.Ref{known, known}, nil, 2},
		{"unknown series", []store.Ref{known, known + 1}, nil, 0},
		{"deletion", []store.Ref{known}, &record.Deletion{}, 0},
	} {
		step := &replayStep{deletion: c.deletion, kinds: []model.Kind{model.String}}
		for _, ref := range c.refs {
			step.batch.AddLong(ref, 1, 1, 0)
		}
		l := &logSalvage{}
		if !l.keep(series, step) || l.unusable != 1 {
			t.Errorf("%s: %d records are unusable", c.name, l.unusable)
		}
		if len(step.batch.Samples) != c.samples || !slices.Equal(step.kinds, slices.Repeat([]model.Kind{model.Long}, c.samples)) || step.deletion != nil {
			t.Errorf("%s: %d samples of kinds %v, deletion %v", c.name, len(step.batch.Samples), step.kinds, step.deletion)
		}
	}
	if (*logSalvage)(nil).keep(series, &replayStep{}) {
		t.Error("a replay without a salvage continues")
	}
}
