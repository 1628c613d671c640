package rollup

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// kairosStatus is the status that KairosDB stores for a task that it last ran at ms.
func kairosStatus(ms int64) string {
	return fmt.Sprintf(`{"statuses":[{"metricName":"src","lastExecuted":"x","dataPointCount":1,"executionLength":1,"lastExecutionTime":%d}],"executingHost":"old","nextScheduled":"Never"}`, ms)
}

// result stores a result as KairosDB does.
func (h *harness) result(v int64, ms int64) {
	h.Helper()
	ref, err := h.store.Create(h.Context(), model.Series{Metric: "dst", Tags: model.MustTags("host", "a", savedFrom, "src"), Type: model.TypeLong})
	if err != nil {
		h.Fatal(err)
	}
	b := store.Batch{Epoch: h.store.Epoch()}
	b.AddLong(ref, ms, v, 0)
	if err := h.store.Append(h.Context(), &b); err != nil {
		h.Fatal(err)
	}
}

// A task that KairosDB ran is taken over: KairosDB stamps a result with the time of the
// bucket's first point. Each bucket keeps one result, which KairosDB overwrites when
// the task goes back to it.
func TestTakeOverLeavesOneResult(t *testing.T) {
	for _, node := range []string{"", "n"} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			h.node = node
			h.restart(nil)
			h.put("src", "a", 10, at(-3, 7, 0), at(-3, 9, 0), at(-2, 7, 0), at(-2, 9, 0), at(-1, 7, 0), at(-1, 9, 0))
			h.result(20, at(-3, 7, 0))
			h.result(20, at(-2, 7, 0))
			h.result(10, at(-1, 7, 0)) // as far as the bucket went
			for key, text := range map[string]string{statusKey: kairosStatus(at(-1, 8, 0)), configKey: taskJSON("t", minute, hour, "")} {
				if err := h.store.Set(t.Context(), service, key, "t", text); err != nil {
					t.Fatal(err)
				}
			}
			h.start()
			time.Sleep(10 * time.Minute)
			h.do(204, "POST", "/api/v1/rollups/backfill/t?startTime=1999-12-31-21-00-00-000&endTime=1999-12-31-22-00-00-000", "")
			h.stop()
			first := ":00"
			if node != "" {
				first = ":07"
			}
			h.wantPoints("dst", strings.ReplaceAll(`
{host=a,saved_from=src} 1999-12-31T21:07 20
{host=a,saved_from=src} 1999-12-31T22:07 20
{host=a,saved_from=src} 1999-12-31T23:07 20`, ":07", first))
		})
	}
}

// If KairosDB may run a task too, results have its times. A point before the first one
// moves the result, even if a double takes the place of a long.
func TestFirstPointMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.node = "n"
		h.restart(nil)
		h.start()
		defer h.stop()
		time.Sleep(time.Minute)
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, ""))
		h.put("src", "a", 1, at(0, 7, 0), at(1, 7, 0))
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:07 1")
		h.put("src", "a", 1, at(0, 5, 0))
		time.Sleep(2 * time.Minute)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:05 2")
		h.put("src", "a", 0.5, at(0, 3, 0))
		time.Sleep(2 * time.Hour)
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:03 2.5\n{host=a,saved_from=src} 2000-01-01T01:07 1")
	})
}

// The task chooses the time of a result, as in KairosDB.
func TestTimeOfResult(t *testing.T) {
	for _, tc := range []struct{ node, aggregator, want string }{
		{"", `"name":"sum"`, "00:00 3"},
		{"", `"name":"sum","align_end_time":true`, "01:00 3"},
		{"n", `"name":"sum"`, "00:07 3"},
		{"n", `"name":"sum","align_start_time":true`, "00:00 3"},
		{"n", `"name":"sum","align_end_time":true`, "01:00 3"},
		{"n", `"name":"last"`, "00:09 2"},
	} {
		h := newHarness(t)
		h.node = tc.node
		h.restart(nil)
		h.scheduler.Load(t.Context())
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, hour, ""), `"name":"sum"`, tc.aggregator, 1))
		h.put("src", "a", 1, at(0, 7, 0))
		h.fill("t", "01")
		h.put("src", "a", 2, at(0, 9, 0)) // last moves
		h.fill("t", "01")
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T"+tc.want)
	}
}

// If a bucket may have several results, they stay: two ends of a line, and results of
// two roll-ups under one name.
func TestSeveralResultsOfABucketStay(t *testing.T) {
	h := newHarness(t)
	h.node = "n"
	h.restart(nil)
	h.scheduler.Load(t.Context())
	h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, hour, ""), `"sum"`, `"least_squares"`, 1))
	h.put("src", "a", 1, at(0, 7, 0), at(0, 8, 0), at(0, 9, 0))
	h.fill("t", "01")
	h.fill("t", "01")
	const line = "{host=a,saved_from=src} 2000-01-01T00:07 1\n{host=a,saved_from=src} 2000-01-01T00:09 1"
	h.wantPoints("dst", line)

	h = newHarness(t)
	h.node = "n"
	h.restart(nil)
	h.scheduler.Load(t.Context())
	h.do(200, "POST", "/api/v1/rollups", taskJSON("minutes", hour, minute, ""))
	h.do(200, "POST", "/api/v1/rollups", taskJSON("hours", hour, hour, ""))
	h.put("src", "a", 1, at(0, 7, 0), at(0, 9, 0))
	h.fill("minutes", "01")
	h.fill("hours", "01")
	h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:07 2\n{host=a,saved_from=src} 2000-01-01T00:09 1")
}

// Results that are texts move like others, and replace no numbers.
func TestTextResultsMove(t *testing.T) {
	h := newHarness(t)
	h.node = "n"
	h.restart(nil)
	h.scheduler.Load(t.Context())
	h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
	h.put("src", "a", 1, at(0, 7, 0))
	h.putText("src", "a", "x", at(0, 8, 0))
	h.fill("t", "01")
	h.putText("src", "a", "y", at(0, 9, 0))
	h.fill("t", "01")
	if got := h.points("dst"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "00:07 1\n") || !strings.Contains(got, "00:09") {
		t.Errorf("dst holds\n%s", got)
	}
}

// putText stores a text of {host=host}.
func (h *harness) putText(metric, host, text string, ms int64) {
	h.Helper()
	ref, err := h.store.Create(h.Context(), model.Series{Metric: metric, Tags: model.MustTags("host", host), Type: model.TypeString})
	if err != nil {
		h.Fatal(err)
	}
	b := store.Batch{Epoch: h.store.Epoch()}
	b.AddBytes(ref, ms, []byte(text), 0)
	if err := h.store.Append(h.Context(), &b); err != nil {
		h.Fatal(err)
	}
}
