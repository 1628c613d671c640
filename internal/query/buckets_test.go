package query

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A store that thins out nothing shows samples where buckets alone are asked for: there are
// no buckets then.
func TestBucketsOfPlainStore(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.put("m", model.MustTags("h", "a"), sample{1, 1}, sample{2, 2})
	f.put("m", model.MustTags("h", "a"), sample{1, 0.5}, sample{3, 2.5}) // of the other type
	f.put("m", model.MustTags("h", "b"), sample{1, 1}, sample{2, 2})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	l := s.Lease()
	defer l.Release()
	for host, n := range f.numbers(t, s, "m") {
		var got store.Buckets
		if err := s.AppendBuckets(&got, n, model.AllTime, model.AllStats, &l); err != nil || got.Len() != 0 {
			t.Errorf("%s: %d buckets, %v", host, got.Len(), err)
		}
	}
}

// downsampled is a store that has downsampled every series: it shows buckets where these alone
// are asked for.
type downsampled struct {
	*reference.Store
	buckets map[model.Type][]store.Bucket
}

func (d downsampled) View(ctx context.Context) (store.View, error) {
	v, err := d.Store.View(ctx)
	return downsampledView{v, d}, err
}

type downsampledView struct {
	store.View
	of downsampled
}

func (v downsampledView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	if o.Buckets != store.BucketsOnly {
		return v.View.Read(ctx, s, o)
	}
	b := &store.Block{Buckets: &store.Buckets{}}
	for _, one := range v.of.buckets[s.Type] {
		b.Buckets.Add(one, o.Needs)
	}
	return &oneBlock{b}
}

// oneBlock is a cursor over a block.
type oneBlock struct{ block *store.Block }

func (c *oneBlock) Next() (*store.Block, error) {
	b := c.block
	c.block = nil
	return b, nil
}

func (*oneBlock) Close() {}

// TestBucketsOfBothTypes: a number has the buckets of its long and of its double series, by
// start, and of those with one start the wider first.
func TestBucketsOfBothTypes(t *testing.T) {
	bucket := func(start, step int64, sum float64) store.Bucket {
		return store.Bucket{StartMS: start, StepMS: step, Aggregate: model.Aggregate{Sum: sum, Count: 1}}
	}
	samples := reference.New(nil)
	t.Cleanup(func() { samples.Close() })
	d := downsampled{samples, map[model.Type][]store.Bucket{
		model.TypeLong:   {bucket(0, 60, 1), bucket(60, 60, 2), bucket(120, 60, 3)},
		model.TypeDouble: {bucket(0, 60, 4), bucket(60, 120, 5), bucket(180, 60, 6)},
	}}
	f := fixtureOver(t, d, DefaultConfig())
	f.store = samples
	f.put("m", model.MustTags("h", "long"), sample{1, 1})
	f.put("m", model.MustTags("h", "double"), sample{1, 1.5})
	f.put("m", model.MustTags("h", "both"), sample{1, 1}, sample{1, 1.5})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	numbers := f.numbers(t, s, "m")
	for host, want := range map[string]string{
		"long":   "0+60:1 60+60:2 120+60:3 ",
		"double": "0+60:4 60+120:5 180+60:6 ",
		"both":   "0+60:4 0+60:1 60+120:5 60+60:2 120+60:3 180+60:6 ",
	} {
		l := s.Lease()
		var to store.Buckets
		if err := s.AppendBuckets(&to, numbers[host], model.AllTime, model.AllStats, &l); err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range to.Len() {
			b := to.At(i)
			got += fmt.Sprintf("%d+%d:%v ", b.StartMS, b.StepMS, b.Sum)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
		l.Release()
	}
}

// Buckets take memory of the query, of one series and of both types.
func TestBucketsWithoutMemory(t *testing.T) {
	samples := reference.New(nil)
	t.Cleanup(func() { samples.Close() })
	many := make([]store.Bucket, 4096)
	for i := range many {
		many[i] = store.Bucket{StartMS: int64(i) * 60, StepMS: 60, Aggregate: model.Aggregate{Sum: 1, Count: 1}}
	}
	config := DefaultConfig()
	config.MaxMemory = 4096 * bucketWords
	f := fixtureOver(t, downsampled{samples, map[model.Type][]store.Bucket{model.TypeLong: many, model.TypeDouble: many}}, config)
	f.store = samples
	f.put("m", model.MustTags("h", "one"), sample{1, 1})
	f.put("m", model.MustTags("h", "both"), sample{1, 1}, sample{1, 1.5})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	for host, n := range f.numbers(t, s, "m") {
		l := s.Lease()
		var to store.Buckets
		var limit *store.LimitError
		if err := s.AppendBuckets(&to, n, model.AllTime, model.AllStats, &l); !errors.As(err, &limit) || limit.Limit != "query.max_memory" || to.Len() > 0 {
			t.Errorf("%s: %d buckets, %v", host, to.Len(), err)
		}
		l.Release()
	}
}
