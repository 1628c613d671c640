package storetest

import (
	"context"
	"fmt"

	"varve/internal/store"
)

// Select collects what a view selects. It is for tests: the product does not collect
// without a bound.
func Select(ctx context.Context, v store.View, sel store.Selection) ([]store.Series, error) {
	var all []store.Series
	var failed error
	ended := false
	for s, err := range v.Select(ctx, sel) {
		switch {
		case ended:
			return nil, fmt.Errorf("Select went on with %v, %v after its error %w", s, err, failed)
		case err != nil && s != (store.Series{}):
			return nil, fmt.Errorf("Select yielded %v together with an error: %w", s, err)
		case err != nil:
			failed, ended = err, true
		default:
			all = append(all, s)
		}
	}
	if failed != nil {
		return nil, failed
	}
	return all, nil
}
