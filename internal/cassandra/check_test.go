package cassandra

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// TestSeriesThatCannotBeHeld: a series that KairosDB's rows and index tables cannot
// hold is refused before anything of it is acknowledged; the longest that they can
// hold gets to Cassandra, with what came beside it.
func TestSeriesThatCannotBeHeld(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	ofBytes := func(tagMap int) model.Series {
		size := 4 // of the tag map, which is a part of clustering keys
		var pairs []string
		for i := range 20 {
			name := fmt.Sprintf("t%02d", i)
			value := strings.Repeat("x", (tagMap-size)/(20-i)-8-len(name))
			size += 8 + len(name) + len(value)
			pairs = append(pairs, name, value)
		}
		return model.Series{Metric: "p", Tags: model.MustTags(pairs...), Type: model.TypeLong}
	}
	var input *store.InputError
	refused := 0
	for _, series := range []model.Series{
		ofBytes(70_000), ofBytes(65_536), ofBytes(65_535),
		{Metric: "p\xff", Type: model.TypeLong}, {Type: model.TypeLong}, {Metric: "p", Tags: model.MustTags("a", "\xff"), Type: model.TypeLong},
		{Metric: "p", Tags: model.MustTags("a", "b"), Type: "acme.blob"},
	} {
		if _, err := s.Create(t.Context(), series); errors.As(err, &input) {
			refused++
		} else if err != nil {
			t.Errorf("%.100v", err)
		}
	}
	if refused < 6 {
		t.Errorf("%d series are refused", refused)
	}
	longest := 0
	for size := 65_535; size > 65_400; size-- {
		series := ofBytes(size)
		ref, err := s.Create(t.Context(), series)
		if errors.As(err, &input) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if longest++; longest > 5 {
			break
		}
		var b store.Batch
		b.Reset(s.Epoch())
		b.AddLong(ref, 1501672887988, int64(size), 0)
		if err := s.Append(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "other", "a", story(0))
	flushed(t, s)
	if dropped := s.Status().Refused; len(dropped) > 0 {
		t.Errorf("refused after they were acknowledged: %+v", dropped)
	}
	if found := answer(t, s, "p", all()); len(found) < 5 {
		t.Errorf("%d of the longest series are there", len(found))
	}
}
