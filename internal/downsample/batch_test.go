package downsample

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

var errTooMuch, errBroken = errors.New("too much"), errors.New("broken")

// computed are the ranges that Once was called with.
type computed struct {
	most  int // buckets at once
	fails int64
	spans Spans
}

func (c *computed) once(_ context.Context, from, until int64) error {
	switch {
	case until-from > int64(c.most)*hourMS:
		return errTooMuch
	case from <= c.fails && c.fails < until:
		return errBroken
	}
	c.spans = append(c.spans, Span{from, until})
	return nil
}

func (c *computed) batches(most int) *Batches {
	return &Batches{Grid: hours{}, Most: most, Once: c.once, TooMuch: func(err error) bool { return errors.Is(err, errTooMuch) }}
}

// A batch has at most the given number of buckets, ends where the grid says, and is
// halved while it is too much.
func TestBatches(t *testing.T) {
	for _, tc := range []struct {
		most, bearable int
		from, to       int64 // hours
		want           []int64
	}{
		{5, 5, 1, 11, []int64{1, 6, 11, 12}},
		{100, 100, 20, 30, []int64{20, 24, 31}},
		{8, 3, 0, 8, []int64{0, 2, 4, 6, 8, 9}},
		{7, 3, 0, 6, []int64{0, 3, 5, 7}},
		{1, 1, -2, 0, []int64{-2, -1, 0, 1}},
	} {
		c := computed{most: tc.bearable, fails: -100 * hourMS}
		var ends []int64
		err := c.batches(tc.most).Compute(t.Context(), tc.from*hourMS+1, tc.to*hourMS+1, func(until int64) error {
			ends = append(ends, until)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var want Spans
		for i, from := range tc.want[:len(tc.want)-1] {
			want = append(want, Span{from * hourMS, tc.want[i+1] * hourMS})
		}
		if !slices.Equal(c.spans, want) || ends[len(ends)-1] != want[len(want)-1].UntilMS {
			t.Errorf("%+v: computed %v, want %v; ends %v", tc, c.spans, want, ends)
		}
	}
}

// A single bucket that is too much, and any other error, end a run.
func TestBatchesFail(t *testing.T) {
	none := func(int64) error { return nil }
	c := computed{most: 0, fails: -1}
	if err := c.batches(4).Compute(t.Context(), 0, 3*hourMS, none); !errors.Is(err, errTooMuch) || len(c.spans) > 0 {
		t.Errorf("%v, computed %v", err, c.spans)
	}
	c = computed{most: 9, fails: 5 * hourMS}
	if err := c.batches(4).Compute(t.Context(), 0, 9*hourMS, none); !errors.Is(err, errBroken) || len(c.spans) != 1 {
		t.Errorf("%v, computed %v", err, c.spans)
	}
	for fails := range int64(4) { // in any of the parts that a batch is divided into
		c = computed{most: 1, fails: fails * hourMS}
		ends := 0
		err := c.batches(4).Compute(t.Context(), 0, 4*hourMS-1, func(int64) error { ends++; return nil })
		if !errors.Is(err, errBroken) || ends != 0 || len(c.spans) != int(fails) {
			t.Errorf("hour %d fails: %v, computed %v, %d batches are complete", fails, err, c.spans, ends)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = computed{most: 9, fails: -1}
	err := c.batches(4).Compute(ctx, 0, 9*hourMS, func(int64) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || len(c.spans) != 1 {
		t.Errorf("%v, computed %v", err, c.spans)
	}
}

// The watermark follows the batches, but not into the current bucket, and the next run
// goes back by the horizon.
func TestAdvance(t *testing.T) {
	c := computed{most: 9, fails: -1}
	var marks []Watermark
	now := 9*hourMS + 5
	err := c.batches(4).Advance(t.Context(), 2*hourMS, now, func(w Watermark) error {
		marks = append(marks, w)
		return nil
	})
	want := []Watermark{until(6*hourMS, now), until(9*hourMS, now)}
	if err != nil || !slices.Equal(marks, want) {
		t.Fatalf("%v, watermarks %v, want %v", err, marks, want)
	}
	for horizon, from := range map[time.Duration]int64{time.Minute: now - 60_000, 0: 9 * hourMS, 3 * time.Hour: now - 3*hourMS} {
		if got := marks[1].Next(horizon); got != from {
			t.Errorf("with a horizon of %s the next run begins at %d, want %d", horizon, got, from)
		}
	}
}

// Of late spans, those before the run's own buckets are computed, and each is kept
// until then.
func TestComputeLate(t *testing.T) {
	var kept map[string]Spans
	l := newList(t, func(_ context.Context, _ string, late map[string]Spans) error { kept = late; return nil })
	late := map[string]Spans{"x": {{0, hourMS}, {3 * hourMS, 6 * hourMS}, {20 * hourMS, 30 * hourMS}}, "y": {{0, hourMS}}}
	if err := l.Include(t.Context(), "t", late); err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	compute := func(c *computed) (n int, err error) {
		err = l.ComputeLate(t.Context(), "t", "x", l.Take("t", "x"), 22*hourMS, c.batches(2), func() { n++ })
		return n, err
	}
	c := computed{most: 9, fails: 5 * hourMS}
	if n, err := compute(&c); !errors.Is(err, errBroken) || n != 1 {
		t.Errorf("%d spans, %v", n, err)
	}
	if want := (Spans{{5 * hourMS, 6 * hourMS}, {20 * hourMS, 22 * hourMS}}); !slices.Equal(kept["x"], want) || l.Count("", "") != 2 {
		t.Errorf("kept are %v, want %v", kept["x"], want)
	}
	c = computed{most: 9, fails: -1}
	if n, err := compute(&c); err != nil || n != 2 || len(kept) != 0 || l.Count("t", "x") != 0 {
		t.Errorf("%d spans, %v, kept are %v", n, err, kept)
	}
}

// A point that arrives late for a batch that has been computed stays noted while the
// next batches are computed.
func TestLateWhileLateAreComputed(t *testing.T) {
	l := newList(t, keepNothing)
	must(t, l.Include(t.Context(), "t", map[string]Spans{"x": {{0, 4 * hourMS}}}))
	c := computed{most: 9, fails: -1}
	b := c.batches(2)
	once := b.Once
	b.Once = func(ctx context.Context, from, until int64) error {
		if from > 0 {
			late(t, l, 1)()
		}
		return once(ctx, from, until)
	}
	must(t, l.ComputeLate(t.Context(), "t", "x", l.Take("t", "x"), 22*hourMS, b, func() {}))
	if got := l.Take("t", "x"); !slices.Equal(got, Spans{{0, hourMS}}) || len(c.spans) != 2 {
		t.Errorf("%v are noted after %v were computed", got, c.spans)
	}
}
