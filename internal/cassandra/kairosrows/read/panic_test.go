package read

import (
	"context"
	"errors"
	"testing"

	"varve/internal/work"
)

// faulty panics like code that has a fault.
func faulty() error {
	var none []int
	none[0]++
	return nil
}

// TestPanicIsTheErrorOfItsRequest: a fault of Varve in a goroutine that works for a
// request is the error of that request. The others of its goroutines end, and
// nothing that they took is kept.
func TestPanicIsTheErrorOfItsRequest(t *testing.T) {
	look := &Look{slots: make(chan struct{}, 2)}
	for name, run := range map[string]func(context.Context) error{
		"parts of an index": func(ctx context.Context) error {
			return look.parallel(ctx, 100, func(ctx context.Context, i int) error {
				if i == 7 {
					return faulty()
				}
				return nil
			})
		},
		"keys of a tag value": func(ctx context.Context) error {
			c := &contest{look: look, cancel: func() {}} // without a partition to read
			_, err := c.round(ctx, []*contender{{places: make([]contestPlace, 2)}}, 1)
			return err
		},
	} {
		var fault *work.PanicError
		if err := run(t.Context()); !errors.As(err, &fault) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(look.slots); n != 0 {
		t.Errorf("%d places for reads of the index are kept", n)
	}
}
