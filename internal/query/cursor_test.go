package query

import (
	"context"
	"errors"
	"slices"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A readBy is a store whose series are read by a function.
type readBy struct {
	*reference.Store
	read func(store.ReadOptions) store.Cursor
}

func (s readBy) View(ctx context.Context) (store.View, error) {
	v, err := s.Store.View(ctx)
	return readByView{v, s.read}, err
}

type readByView struct {
	store.View
	read func(store.ReadOptions) store.Cursor
}

func (v readByView) Read(_ context.Context, _ store.Series, o store.ReadOptions) store.Cursor {
	return v.read(o)
}

// fixtureReadBy is a fixture over a series m, read by a function.
func fixtureReadBy(t *testing.T, config Config, read func(store.ReadOptions) store.Cursor) *fixture {
	samples := reference.New(nil)
	t.Cleanup(func() { samples.Close() })
	f := fixtureOver(t, readBy{samples, read}, config)
	f.store = samples
	f.put("m", model.MustTags("h", "a"), sample{1, 1})
	return f
}

// empty is a cursor with empty blocks, which goes on although its query has ended.
type empty struct{ left int }

func (c *empty) Next() (*store.Block, error) {
	if c.left--; c.left < 0 {
		return nil, nil
	}
	return &store.Block{}, nil
}

func (*empty) Close() {}

// A cursor ends with its query, also one that finds nothing for long: it is not taken for one without samples.
func TestCursorEndsWithTheQuery(t *testing.T) {
	c := &empty{left: 1000}
	f := fixtureReadBy(t, DefaultConfig(), func(store.ReadOptions) store.Cursor { return c })
	ctx, cancel := context.WithCancel(t.Context())
	s := f.session(t, ctx)
	defer s.Close(nil)
	cursor := s.Open(store.Series{}, store.ReadOptions{Range: model.AllTime})
	defer cursor.Close()
	cancel()
	if b, err := cursor.Next(); b != nil || !errors.Is(err, context.Canceled) || c.left != 1000 {
		t.Errorf("%v, %v; %d blocks were read", b, err, 1000-c.left)
	}
}

// unreadable is a cursor that fails.
type unreadable struct{ err error }

func (c unreadable) Next() (*store.Block, error) { return nil, c.err }
func (unreadable) Close()                        {}

// A series that cannot be read is not taken for one without samples.
func TestCursorFails(t *testing.T) {
	want := errors.New("the disk is broken")
	f := fixtureReadBy(t, DefaultConfig(), func(store.ReadOptions) store.Cursor { return unreadable{want} })
	s := f.session(t, t.Context())
	defer s.Close(nil)
	cursor := s.Open(store.Series{}, store.ReadOptions{Range: model.AllTime})
	defer cursor.Close()
	if b, err := cursor.Next(); b != nil || err != want {
		t.Errorf("%v, %v", b, err)
	}
	scan := Scan{Session: s, Into: &counter{session: s}}
	if err := scan.Read(store.Series{}, model.AllTime); err != want {
		t.Errorf("a scan: %v", err)
	}
}

// long is a cursor over blocks of as many samples as a Scan reads before it counts them.
type long struct{ left int }

func (c *long) Next() (*store.Block, error) {
	if c.left--; c.left < 0 {
		return nil, nil
	}
	b := &store.Block{}
	b.Times, b.Values = make([]int64, countEvery), make([]uint64, countEvery)
	return b, nil
}

func (*long) Close() {}

// A scan of a long series ends once it has read max_samples.
func TestScanEndsAtTheLimit(t *testing.T) {
	config := DefaultConfig()
	config.MaxSamples = 2 * countEvery
	c := &long{left: 10}
	f := fixtureReadBy(t, config, func(store.ReadOptions) store.Cursor { return c })
	s := f.session(t, t.Context())
	defer s.Close(nil)
	scan := Scan{Session: s, Into: &counter{session: s}}
	var limit *store.LimitError
	if err := scan.Read(store.Series{}, model.AllTime); !errors.As(err, &limit) || limit.Limit != "query.max_samples" || c.left != 7 {
		t.Errorf("%v after %d blocks, want a refusal after 3", err, 10-c.left)
	}
}

// Samples count once against the limit, however often they are counted.
func TestScanCountsOnce(t *testing.T) {
	f := newFixture(t, DefaultConfig())
	f.put("m", model.MustTags("h", "a"), sample{1, 1}, sample{2, 2}, sample{3, 3})
	s := f.session(t, t.Context())
	defer s.Close(nil)
	l := s.Lease()
	defer l.Release()
	list, err := s.Collect(store.Selection{Metric: "m", Range: model.AllTime}, &l, nil)
	if err != nil {
		t.Fatal(err)
	}
	scan := Scan{Session: s, Into: &counter{session: s}, Summary: store.Summary{Final: func(int64) int64 { return 10 }}}
	for round := int64(1); round <= 2; round++ {
		for one := range list.All() {
			if err := scan.Read(*one, model.AllTime); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := scan.Count(); err != nil {
				t.Fatal(err)
			}
			if n, runs := s.Stats().Samples, counted(t, f.metrics.summarized); n != 3*round || int64(runs) != round {
				t.Errorf("after round %d, %d samples and %v runs are counted", round, n, runs)
			}
		}
	}
}

// A traced query tells which stages it has read, and counts the same samples as one that is not traced.
func TestTraceOfStages(t *testing.T) {
	use := store.StageUse{StepMS: 60, LastMS: 119, Count: 2}
	f := fixtureReadBy(t, DefaultConfig(), func(o store.ReadOptions) store.Cursor {
		b := &store.Block{}
		switch o.Buckets {
		case store.BucketsAsSamples:
			b.Times, b.Values = []int64{0, 60}, []uint64{1, 1}
			o.Stages.Add(use)
		case store.BucketsOnly:
			b.Buckets = &store.Buckets{}
			for _, start := range []int64{0, 60} {
				b.Buckets.Add(store.Bucket{StartMS: start, StepMS: 60, Aggregate: model.Aggregate{Count: 5}}, model.AllStats)
			}
		}
		return &oneBlock{b}
	})
	for _, traced := range []bool{false, true} {
		s, err := f.Begin(t.Context(), Request{Trace: traced})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Tally(store.Selection{Metric: "m", Range: model.TimeRange{EndMS: 100}})
		if want := (Tally{1, 5}); err != nil || got != want { // the second bucket reaches beyond the range
			t.Errorf("traced %t: %+v, %v, want %+v", traced, got, err, want)
		}
		c := s.Open(store.Series{}, store.ReadOptions{Range: model.AllTime})
		for b, err := c.Next(); b != nil || err != nil; b, err = c.Next() {
			if err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
		if got := s.Stats().Stages; traced != slices.Equal(got, []store.StageUse{use}) || !traced && len(got) > 0 {
			t.Errorf("traced %t: %+v", traced, got)
		}
		s.Close(nil)
	}
}
