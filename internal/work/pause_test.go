package work

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPause: a pause ends with its time, or with its context and the cause of that.
func TestPause(t *testing.T) {
	if err := Pause(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := Pause(ctx, time.Hour); !errors.Is(err, reason) {
		t.Errorf("%v, want the cause", err)
	}
}
