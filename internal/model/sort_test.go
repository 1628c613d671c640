package model

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSortFunc(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, sortRun, sortRun + 1, 5*sortRun + 3} {
		for _, values := range []int{2, 1 << 30} {
			s := make([]int, n)
			for i := range s {
				s[i] = r.IntN(values)
			}
			want := slices.Clone(s)
			slices.Sort(want)
			if err := SortFunc(context.Background(), s, cmp.Compare[int]); err != nil || !slices.Equal(s, want) {
				t.Errorf("%d of %d: %v, not sorted", n, values, err)
			}
		}
	}
}

// A sort ends within a run of the end of its context.
func TestSortFuncGivesUp(t *testing.T) {
	s := make([]int, 40*sortRun)
	for i := range s {
		s[i] = -i
	}
	s[0], s[1] = s[1], s[0]
	ctx, cancel := context.WithCancel(context.Background())
	compared, after := 0, 0
	err := SortFunc(ctx, s, func(a, b int) int {
		if compared++; compared == 100_000 {
			cancel()
		}
		if ctx.Err() != nil {
			after++
		}
		return cmp.Compare(a, b)
	})
	if !errors.Is(err, context.Canceled) || after > 40*sortRun {
		t.Errorf("%v, %d comparisons after the end", err, after)
	}
}

// TestSortFuncNeverEndsHalfDone ends the context at one comparison after the
// other: a sort that says nothing of it has sorted.
func TestSortFuncNeverEndsHalfDone(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	values := make([]int, 3*sortRun)
	for i := range values { // halves that need no merging, nor do their halves
		values[i] = i/sortRun*1000 + r.IntN(1000)
	}
	gaveUp, at := 0, 0
	for ; ; at += 20_000 {
		s := slices.Clone(values)
		ctx, cancel := context.WithCancel(context.Background())
		compared := 0
		err := SortFunc(ctx, s, func(a, b int) int {
			if compared++; compared == at {
				cancel()
			}
			return cmp.Compare(a, b)
		})
		cancel()
		switch {
		case err == nil && !slices.IsSorted(s):
			t.Fatalf("ended at comparison %d: no error, not sorted", at)
		case errors.Is(err, context.Canceled):
			gaveUp++
		case err != nil:
			t.Fatal(err)
		}
		if compared < at {
			break
		}
	}
	if gaveUp < at/20_000/2 {
		t.Errorf("gave up %d times of %d", gaveUp, at/20_000)
	}
}
