package write

import (
	"errors"
	"testing"
	"time"

	"varve/internal/rowtime"
	"varve/internal/work"
)

// TestPanicLeavesSeries: a fault of Varve in a goroutine that writes leaves its series to
// the next attempt, and is the error of this one.
func TestPanicLeavesSeries(t *testing.T) {
	pass := unconnected(t, rowtime.Default, DefaultConfig(), &recorder{}, time.Now()).begin(1, nil) // without a source
	queue := make(chan []pendingSeries, 2)
	queue <- []pendingSeries{{id: 1}}
	queue <- []pendingSeries{{id: 2}}
	close(queue)
	pass.work(t.Context(), queue)
	if !pass.left.has(1) || !pass.left.has(2) {
		t.Error("series whose writing met a fault count as written")
	}
	if fault := (*work.PanicError)(nil); !errors.As(pass.err, &fault) {
		t.Error(pass.err)
	}
}
