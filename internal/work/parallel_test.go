package work

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// TestPanicOfAPart: a fault in one part is the error of all.
func TestPanicOfAPart(t *testing.T) {
	for _, n := range []int{1, 100} {
		err := Parallel(t.Context(), 2, n, "count sheep", func(ctx context.Context, i int) error {
			if i == min(7, n-1) {
				var none []int
				none[0]++
			}
			return ctx.Err()
		})
		if fault := (*PanicError)(nil); !errors.As(err, &fault) {
			t.Errorf("%d parts: %v", n, err)
		}
	}
}

// TestFirstErrorOfParts: parts that end because another one has failed do not hide its error.
func TestFirstErrorOfParts(t *testing.T) {
	failed := errors.New("failed")
	for range 20_000 {
		err := Parallel(t.Context(), 2, 2, "count sheep", func(ctx context.Context, i int) error {
			if i == 0 {
				return failed
			}
			for ctx.Err() == nil { // it notices at once
				runtime.Gosched()
			}
			return ctx.Err()
		})
		if err != failed {
			t.Fatal(err)
		}
	}
}
