package index

import (
	"context"
	"errors"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// Once its context has ended, a selection by a costly pattern ends before the
// next value, and keeps nothing of what it found so far.
func TestPatternsLookAtTheContext(t *testing.T) {
	x := New()
	for i := range uint32(3 * scanSlice) {
		x.Add(i+1, model.Series{Metric: "m", Tags: model.MustTags("host", strings.Repeat("a", int(i%100))+string(rune('0'+i))), Type: model.TypeLong})
	}
	costly, err := model.NewPattern("(?:a?b?){900}c")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.Select(ctx, "m", []model.Matcher{{Tag: "host", Patterns: []*model.Pattern{costly}}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Select: %v", err)
	}
	if n := len(x.scans.scans); n != 0 {
		t.Errorf("%d results of a cancelled Select were kept", n)
	}
	if _, _, err := x.Names(ctx, store.NamesQuery{Kind: store.TagValues, Metric: "m", Tag: "host", Pattern: costly}); !errors.Is(err, context.Canceled) {
		t.Errorf("Names: %v", err)
	}
}
