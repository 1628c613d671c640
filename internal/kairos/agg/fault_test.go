package agg

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/work"
)

// faulty is a store with a fault of ours in its cursors.
type faulty struct{ store.Viewer }

type faultyView struct{ store.View }

type faultyCursor struct{ store.Cursor }

func (f faulty) View(ctx context.Context) (store.View, error) {
	v, err := f.Viewer.View(ctx)
	return faultyView{v}, err
}

func (v faultyView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	return faultyCursor{v.View.Read(ctx, s, o)}
}

func (faultyCursor) Next() (*store.Block, error) { panic("an invariant is broken") }

// A panic while series are read becomes the error of the query, whichever goroutine
// reads, and all resources of the query are released.
func TestAPanicOfAReaderEndsItsQueryOnly(t *testing.T) {
	f := newFixture(t, query.DefaultConfig())
	for i := range 100 {
		f.put("m", model.MustTags("h", fmt.Sprint(i)), sample{1, 1})
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // there are never more workers
	config := query.DefaultConfig()
	config.MaxConcurrent, config.MaxWait = 1, time.Millisecond // a place that is not given back refuses the next query
	for _, config.Workers = range []int{1, 4} {
		on := fixtureOver(t, faulty{f.store}, config)
		for _, steps := range [][]Step{nil, {newStep(t, "max", nil)}} {
			var fault *work.PanicError
			if _, _, err := on.ask(0, 10, "UTC", MetricQuery{Metric: "m", Steps: steps}); !errors.As(err, &fault) {
				t.Errorf("%d workers, %d steps: %v", config.Workers, len(steps), err)
			}
			if n := len(on.Running()); n != 0 {
				t.Errorf("%d workers: %d queries still run", config.Workers, n)
			}
		}
	}
}
