package work

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// TestAttended: the work that several goroutines report reaches the goroutine of the caller. Only a last
// part that is too small is lost.
func TestAttended(t *testing.T) {
	const parts, each = 100, 1000
	accounted, inside := 0, atomic.Int64{}
	err := Attended("count sheep", func(work int) error {
		accounted += work // the race detector would see another goroutine
		if inside.Add(1) != 1 {
			t.Error("two reports are accounted at once")
		}
		inside.Add(-1)
		return nil
	}, func(report func(int) error) error {
		return Parallel(t.Context(), 4, parts, "count a flock", func(context.Context, int) error {
			for range each {
				if err := report(10); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil || accounted > 10*parts*each || accounted < 10*parts*each-reportFrom {
		t.Errorf("accounted %d of %d, %v", accounted, 10*parts*each, err)
	}
}

// TestAttendedEnds: report returns the error of account, and a panic becomes an error.
func TestAttendedEnds(t *testing.T) {
	enough := errors.New("enough")
	err := Attended("count sheep", func(int) error { return enough }, func(report func(int) error) error {
		for {
			if err := report(reportFrom); err != nil {
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

// A panic of account becomes an error that report returns, so that f ends.
func TestAttendedPanic(t *testing.T) {
	err := Attended("test", func(int) error { panic("accounted") }, func(report func(int) error) error { return report(reportFrom) })
	var panicked *PanicError
	if !errors.As(err, &panicked) {
		t.Errorf("got %v", err)
	}
}
