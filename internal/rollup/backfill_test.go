package rollup

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// An interrupted store calls a function once, before it stores the next batch.
type interrupted struct {
	*reference.Store
	before func()
	each   func() // before each batch; nil: nothing
	view   func() // before each view; nil: nothing
}

func (i *interrupted) View(ctx context.Context) (store.View, error) {
	if i.view != nil {
		i.view()
	}
	return i.Store.View(ctx)
}

func (i *interrupted) Append(ctx context.Context, b *store.Batch) error {
	if before := i.before; before != nil {
		i.before = nil
		before()
	}
	if i.each != nil {
		i.each()
	}
	return i.Store.Append(ctx, b)
}

// interruptedHarness has a task "t" that sums src by minute each hour, and three minutes with
// a point each.
func interruptedHarness(t *testing.T) (*harness, *interrupted) {
	h := newHarness(t)
	i := &interrupted{Store: h.store}
	h.front = i
	h.restart(func(c *Config, _ *query.Config) { c.BatchBuckets = 1 })
	h.put("src", "a", 1, at(-24, 0, 0), at(-24, 1, 0), at(-24, 2, 0))
	h.start()
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	time.Sleep(3 * time.Hour)
	return h, i
}

// fillThree requests a backfill of the three minutes.
func (h *harness) fillThree() *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime=1999-12-31-00-00-00-000&endTime=1999-12-31-00-02-59-999", nil))
	return w
}

// A late point arrives after a backfill has read its bucket and before it stores the result.
// The run that is due then comes after the backfill, and its result stays.
func TestLatePointDuringABackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, i := interruptedHarness(t)
		defer h.stop()
		i.before = func() {
			h.send("src", "a", 5, at(-24, 0, 30))
			_, due := h.scheduled("t")
			time.Sleep(time.Until(due) + time.Minute)
		}
		if w := h.fillThree(); w.Code != 204 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		synctest.Wait()
		h.wantPoints("dst", "{host=a,saved_from=src} 1999-12-31T00:00 6\n{host=a,saved_from=src} 1999-12-31T00:01 1\n{host=a,saved_from=src} 1999-12-31T00:02 1")
	})
}

// When a task is deleted or changed, its backfill ends, and stores nothing once the
// change is answered.
func TestBackfillOfATaskThatIsGone(t *testing.T) {
	changed := strings.Replace(taskJSON("t", hour, minute, ""), `"sum"`, `"max"`, 1)
	for name, tc := range map[string]struct {
		method, body string
		want         int // the answer to the backfill
	}{
		"deleted":          {"DELETE", "", 409},
		"changed":          {"PUT", changed, 409},
		"stored once more": {"PUT", taskJSON("t", hour, minute, ""), 204},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, i := interruptedHarness(t)
				defer h.stop()
				answered := make(chan int)
				i.before = func() {
					go func() {
						w := httptest.NewRecorder()
						h.mux.ServeHTTP(w, httptest.NewRequest(tc.method, "/api/v1/rollups/t", strings.NewReader(tc.body)))
						if w.Code/100 != 2 {
							t.Errorf("the answer is %d %s", w.Code, w.Body)
						}
						answered <- strings.Count(h.points("dst"), "\n")
					}()
					synctest.Wait()
				}
				w := h.fillThree()
				got, stored := <-answered, strings.Count(h.points("dst"), "\n")
				switch {
				case w.Code != tc.want || w.Code == 409 && !strings.Contains(w.Body.String(), errTaskChanged.Error()):
					t.Errorf("the answer to the backfill is %d %s, want %d", w.Code, w.Body, tc.want)
				case w.Code == 409 && (stored > 1 || got != stored):
					t.Errorf("the backfill has stored %d results when its end was answered, then %d; want one at most", got, stored)
				case w.Code == 204 && stored != 3:
					t.Errorf("the backfill has stored %d results, want 3", stored)
				}
			})
		})
	}
}

// A backfill may have begun, but not have read its task, while the task is changed or deleted. It
// must not continue with a text that it may have read too early.
func TestBackfillBeforeItReadsItsTask(t *testing.T) {
	changed := strings.Replace(taskJSON("t", hour, minute, ""), `"sum"`, `"max"`, 1)
	for name, change := range map[string]func(*harness){
		"deleted": func(h *harness) { h.do(204, "DELETE", "/api/v1/rollups/t", "") },
		"changed": func(h *harness) { h.do(200, "PUT", "/api/v1/rollups/t", changed) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := interruptedHarness(t)
				defer h.stop()
				ctx, f, j := h.scheduler.beginFill(t.Context(), "t")
				defer h.scheduler.endFill(f, j)
				change(h)
				if err := h.scheduler.fillFor(ctx, f, j, "t", 0, 1); context.Cause(ctx) != errTaskChanged || err == nil {
					t.Errorf("the backfill ended with %v, because of %v", err, context.Cause(ctx))
				}
			})
		})
	}
}
