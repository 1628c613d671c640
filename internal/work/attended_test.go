package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestAttended: work that several goroutines tell of comes to the goroutine of the caller, and none is lost
// but a last part that is too little.
func TestAttended(t *testing.T) {
	const parts, each = 100, 1000
	heeded, inside := 0, atomic.Int64{}
	err := Attended("count sheep", func(work int) error {
		heeded += work // the race detector would see another goroutine
		if inside.Add(1) != 1 {
			t.Error("two are heeded at once")
		}
		inside.Add(-1)
		return nil
	}, func(tell func(int) error) error {
		return Parallel(t.Context(), 4, parts, "count a flock", func(context.Context, int) error {
			for range each {
				if err := tell(10); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil || heeded > 10*parts*each || heeded < 10*parts*each-tellFrom {
		t.Errorf("heeded %d of %d, %v", heeded, 10*parts*each, err)
	}
}

// TestAttendedEnds: what heed returns comes to those that tell, and a fault is an error.
func TestAttendedEnds(t *testing.T) {
	enough := errors.New("enough")
	err := Attended("count sheep", func(int) error { return enough }, func(tell func(int) error) error {
		for {
			if err := tell(tellFrom); err != nil {
				return err
			}
		}
	})
	if err != enough {
		t.Errorf("it ends with %v", err)
	}
	err = Attended("count sheep", func(int) error { return nil }, func(func(int) error) error { panic("wolf") })
	if fault := (*PanicError)(nil); !errors.As(err, &fault) {
		t.Errorf("it ends with %v", err)
	}
}

// A panic of heed becomes an error that those who tell get, so that they end.
func TestAttendedPanic(t *testing.T) {
	err := Attended("test", func(int) error { panic("heeded") }, func(tell func(int) error) error { return tell(tellFrom) })
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		t.Errorf("got %v", err)
	}
}
