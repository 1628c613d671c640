package model

import (
	"context"
	"slices"
)

// sortRun is how many elements are sorted or merged between two checks of the context:
// some milliseconds of work.
const sortRun = 1 << 14

// SortFunc sorts s like slices.SortFunc. Soon after ctx ends it returns the context's
// error, and leaves s in any order: comparing a million elements takes seconds, which a
// cancelled query must not spend. SortFunc allocates half the size of s.
func SortFunc[E any](ctx context.Context, s []E, compare func(a, b E) int) error {
	if len(s) <= sortRun || slices.IsSortedFunc(s, compare) {
		slices.SortFunc(s, compare)
		return ctx.Err()
	}
	return sortHalves(ctx, s, make([]E, len(s)/2), compare)
}

// sortHalves sorts s with spare as scratch memory, which holds half of s.
func sortHalves[E any](ctx context.Context, s, spare []E, compare func(a, b E) int) error {
	if len(s) <= sortRun {
		slices.SortFunc(s, compare)
		return ctx.Err()
	}
	half := len(s) / 2
	if err := sortHalves(ctx, s[:half], spare, compare); err != nil {
		return err
	}
	if err := sortHalves(ctx, s[half:], spare, compare); err != nil {
		return err
	}
	if compare(s[half-1], s[half]) <= 0 {
		return nil
	}
	return mergeHalves(ctx, s, spare[:copy(spare, s[:half])], s[half:], compare)
}

// mergeHalves merges left and right, which is the end of s, into s.
func mergeHalves[E any](ctx context.Context, s, left, right []E, compare func(a, b E) int) error {
	for n := 0; len(left) > 0 && len(right) > 0; n++ {
		if n%sortRun == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if compare(right[0], left[0]) < 0 {
			s[n], right = right[0], right[1:]
		} else {
			s[n], left = left[0], left[1:]
		}
	}
	copy(s[len(s)-len(right)-len(left):], left)
	return nil
}
