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
		for _, values := range []int{2, 1 << 40} {
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
