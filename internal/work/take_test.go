package work

import (
	"context"
	"errors"
	"testing"
)

// TestTake: a place is free again after its release, and no place is taken once the context has
// ended, even if one is free.
func TestTake(t *testing.T) {
	places := make(chan struct{}, 1)
	release, err := Take(t.Context(), places)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	taken := make(chan error)
	go func() {
		_, err := Take(ctx, places)
		taken <- err
	}()
	cancel(gone)
	if err := <-taken; err != gone {
		t.Errorf("while it waited: %v", err)
	}
	release()
	for range 100 { // select takes either case
		if _, err := Take(ctx, places); err != gone {
			t.Fatalf("with a free place: %v", err)
		}
	}
	if _, err := Take(t.Context(), places); err != nil {
		t.Errorf("after the release: %v", err)
	}
}
