package index_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"varve/internal/index"
	"varve/internal/model"
)

// Bytes approximates Stats, and removing series frees their memory.
func TestBytes(t *testing.T) {
	long := strings.Repeat("v", 3000)
	for name, tagsOf := range map[string]func(i int) model.Tags{
		"hosts of a few racks": func(i int) model.Tags {
			return model.MustTags("host", fmt.Sprint("host-", i/20), "rack", fmt.Sprint(i%7), "dc", "lga")
		},
		"long names that never repeat": func(i int) model.Tags {
			return model.MustTags(fmt.Sprint("a", i, long[:100]), "v", "trace", fmt.Sprint(i, long))
		},
		"no tags": func(int) model.Tags { return model.Tags{} },
	} {
		t.Run(name, func(t *testing.T) {
			x := index.New()
			const count = 5000
			series := func(i int) model.Series {
				return model.Series{Metric: fmt.Sprint("metric", i%20), Tags: tagsOf(i), Type: model.TypeLong}
			}
			for i := range count {
				x.Add(model.SeriesNumber(i), series(i))
				x.Add(model.SeriesNumber(i), series(i))
			}
			if got, want := x.Bytes(), x.Stats().SizeBytes; got < want/2 || got > want*3/2 {
				t.Errorf("%d bytes, Stats has %d", got, want)
			}
			for _, i := range rand.Perm(count) {
				x.Remove(model.SeriesNumber(i), series(i))
				x.Remove(model.SeriesNumber(i), series(i))
			}
			if n := x.Bytes(); n != 0 {
				t.Errorf("%d bytes without series", n)
			}
		})
	}
}

// An index without any list of several series counts none.
func TestBytesOfOneSeries(t *testing.T) {
	x := index.New()
	one := model.Series{Metric: "metric", Tags: model.MustTags("host", "a"), Type: model.TypeLong}
	x.Add(1, one)
	x.Remove(1, one)
	if n := x.Bytes(); n != 0 {
		t.Errorf("%d bytes without series", n)
	}
}
