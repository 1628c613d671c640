package work

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLinger: the context ends so much later than that which it is made of, with its cause and its
// values, or when it is stopped. No goroutine is left.
func TestLinger(t *testing.T) {
	type key struct{}
	cause := errors.New("the client has left")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, 1))
		long, stop := Linger(ctx, time.Second)
		short, stopShort := Linger(ctx, time.Minute)
		if long.Value(key{}) != 1 {
			t.Error("its values are lost")
		}
		cancel(cause)
		began := time.Now()
		stopShort()
		if short.Err() == nil || time.Since(began) != 0 {
			t.Error("it does not end when it is stopped")
		}
		<-long.Done()
		if d := time.Since(began); d != time.Second || !errors.Is(context.Cause(long), cause) {
			t.Errorf("it ends after %v: %v", d, context.Cause(long))
		}
		stop()
		unused, stop := Linger(t.Context(), time.Second)
		stop()
		if unused.Err() == nil {
			t.Error("it does not end when it is stopped first")
		}
	})
}
