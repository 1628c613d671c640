package rollup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// An nth fails one of a roll-up's calls, by its number.
type nth struct {
	*breakable
	mu     sync.Mutex
	left   int    // calls until one fails; 0: none does
	failed string // the call that failed
}

func (f *nth) fail(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left--; f.left != 0 {
		return nil
	}
	f.failed = what
	return errors.New("the disk is gone")
}

func (f *nth) Append(ctx context.Context, b *store.Batch) error {
	return unless(f.fail("append"), func() error { return f.breakable.Append(ctx, b) })
}

func (f *nth) Delete(ctx context.Context, d ...store.Deletion) error {
	return unless(f.fail("delete"), func() error { return f.breakable.Delete(ctx, d...) })
}

func (f *nth) Set(ctx context.Context, service, serviceKey, key, value string) error {
	return unless(f.fail("set "+serviceKey), func() error { return f.breakable.Set(ctx, service, serviceKey, key, value) })
}

func (f *nth) Unset(ctx context.Context, service, serviceKey, key string) error {
	return unless(f.fail("unset "+serviceKey), func() error { return f.breakable.Unset(ctx, service, serviceKey, key) })
}

func (f *nth) WidestBucket(r model.TimeRange) int64 {
	of, _ := store.As[downsampler](f.breakable)
	return of.WidestBucket(r)
}

func (f *nth) HoldFolds(ctx context.Context, r model.TimeRange) (release func(), err error) {
	if err := f.fail("hold"); err != nil {
		return nil, err
	}
	of, _ := store.As[downsampler](f.breakable)
	return of.HoldFolds(ctx, r)
}

func unless(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

func (f *nth) View(ctx context.Context) (store.View, error) {
	if err := f.fail("view"); err != nil {
		return nil, err
	}
	view, err := f.breakable.View(ctx)
	return &nthView{view, f}, err
}

type nthView struct {
	store.View
	of *nth
}

func (v *nthView) Unwrap() any { return v.View }

func (v *nthView) Select(ctx context.Context, sel store.Selection) iter.Seq2[store.Series, error] {
	return func(yield func(store.Series, error) bool) {
		for s, err := range v.View.Select(ctx, sel) {
			if err == nil {
				err = v.of.fail("select " + sel.Metric)
			}
			if err != nil {
				yield(store.Series{}, err)
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

func (v *nthView) Read(ctx context.Context, s store.Series, o store.ReadOptions) store.Cursor {
	return &nthCursor{v.View.Read(ctx, s, o), v.of, s.Metric}
}

type nthCursor struct {
	store.Cursor
	of     *nth
	metric string
}

func (c *nthCursor) Next() (*store.Block, error) {
	if err := c.of.fail("read " + c.metric); err != nil {
		return nil, err
	}
	return c.Cursor.Next()
}

// Whichever call of the store fails while downsampled results are recomputed: the
// client gets an error, and the results are there, or a note says that they have to be
// recomputed.
func TestDownsampledResultsWhateverFails(t *testing.T) {
	h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
	f := &nth{breakable: b}
	h.front = f
	h.restart(nil)
	h.scheduler.Load(t.Context())
	const fill = "/api/v1/rollups/backfill/t?startTime=2000-01-01-01-10-00-000&endTime=2000-01-01-01-20-00-000"
	failed := map[string]bool{}
	for n := 1; ; n++ {
		f.left, f.failed = n, ""
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, httptest.NewRequest("POST", fill, nil))
		f.left = 0
		if f.failed == "" {
			break
		}
		failed[f.failed] = true
		if w.Code != 500 || !strings.Contains(w.Body.String(), "the disk is gone") {
			t.Errorf("call %d failed, %s: the answer is %d %s, want 500 and the reason", n, f.failed, w.Code, w.Body)
		}
		got := b.hours(t)
		if got != "60/60 60/60 60/60" && h.scheduler.late.Count("", "") == 0 {
			t.Errorf("call %d failed, %s: the hours have %s, and no note says so", n, f.failed, got)
		}
		if err := h.scheduler.run(t.Context(), h.scheduler.mu.jobs["t"].task, func() bool { return true }, func(bool) time.Time { return time.Now() }); err != nil {
			t.Fatal(err)
		}
		wantHours(t, b, fmt.Sprintf("run after call %d failed, %s", n, f.failed), "60/60 60/60 60/60")
		if got := h.scheduler.late.Count("", ""); got != 0 {
			t.Fatalf("call %d failed, %s: %d spans still wait after the run", n, f.failed, got)
		}
		b.fold(t)
	}
	for _, what := range []string{"view", "select dst", "select src", "read dst", "read src", "set Late", "unset Late", "delete", "append", "hold"} {
		if !failed[what] {
			t.Errorf("%s never failed: the test does not reach it", what)
		}
	}
}
