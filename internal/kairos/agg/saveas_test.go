package agg

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/query"
)

// A savedPoints is a Saver that keeps points. It fails once it has kept a number of batches.
type savedPoints struct {
	batches []int
	points  []sample
	most    int
}

var errSaver = errors.New("nothing can be written")

func (s *savedPoints) Save(_ context.Context, target Target, points []Point) error {
	if target.Metric != "copy" || len(s.batches) == s.most {
		return errSaver
	}
	s.batches = append(s.batches, len(points))
	for i := range points {
		s.points = append(s.points, sample{points[i].TimeMS, valueOf(&points[i])})
	}
	return nil
}

// save_as writes all points in batches of bounded number and size, and passes all of them on.
func TestSaveAsWritesBatches(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	var numbers, texts []sample
	for i := range 2500 {
		numbers = append(numbers, sample{int64(i), i})
	}
	for i := range 7 {
		texts = append(texts, sample{int64(i), strings.Repeat(string(rune('a'+i)), 100<<10)})
	}
	f.put("numbers", model.MustTags("h", "a"), numbers...)
	f.put("texts", model.MustTags("h", "a"), texts...)
	steps := []Step{newStep(t, "save_as", Args{"metric_name": "copy"})}
	for metric, want := range map[string]struct {
		points  []sample
		batches []int
	}{"numbers": {numbers, []int{1024, 1024, 452}}, "texts": {texts, []int{3, 3, 1}}} {
		for most := range len(want.batches) + 1 {
			saver := &savedPoints{most: most}
			f.saver = saver
			groups, _, err := f.ask(0, 3000, "UTC", MetricQuery{Metric: metric, Steps: steps})
			if most < len(want.batches) {
				if !errors.Is(err, errSaver) {
					t.Errorf("%s: batch %d fails, the answer: %v", metric, most, err)
				}
			} else if err != nil || len(groups) != 1 || !slices.Equal(groups[0].Points, want.points) || !slices.Equal(saver.points, want.points) {
				t.Errorf("%s: %d groups, %v; %d points are saved", metric, len(groups), err, len(saver.points))
			}
			if !slices.Equal(saver.batches, want.batches[:most]) {
				t.Errorf("%s: batches of %v points, want %v", metric, saver.batches, want.batches[:most])
			}
		}
	}
}
