package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// lastJSON is a task that keeps the last value of src of each hour in dst. by is its
// group-by tag, empty for none.
func lastJSON(id, by string) string {
	task := strings.Replace(taskJSON(id, hour, hour, ""), `"sum"`, `"last"`, 1)
	const groupBy = `"group_by":[{"name":"tag","tags":["host"]}],`
	if by == "" {
		return strings.Replace(task, groupBy, "", 1)
	}
	return strings.Replace(task, `["host"]`, `["`+by+`"]`, 1)
}

// fill recomputes the first hours of the bubble's first day.
func (h *harness) fill(id, until string) {
	h.Helper()
	h.do(204, "POST", "/api/v1/rollups/backfill/"+id+"?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-"+until+"-00-00-000", "")
}

// When results change from longs to doubles, results whose points are gone stay, since
// nothing could compute them again.
func TestResultsWithoutPointsStay(t *testing.T) {
	h := newHarness(t)
	h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
	for i := range 6 {
		h.put("src", "a", i, at(i, 0, 0))
	}
	h.fill("t", "06")
	if err := h.store.Delete(t.Context(), store.Deletion{Metric: "src", Range: model.TimeRange{StartMS: at(1, 0, 0), EndMS: at(3, 0, 0)}}); err != nil {
		t.Fatal(err)
	}
	h.put("src", "a", 0.5, at(5, 1, 0))
	h.fill("t", "06")
	h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 0
{host=a,saved_from=src} 2000-01-01T04:00 4
{host=a,saved_from=src} 2000-01-01T05:00 0.5
{host=a,saved_from=src} 2000-01-01T01:00 1
{host=a,saved_from=src} 2000-01-01T02:00 2
{host=a,saved_from=src} 2000-01-01T03:00 3`)
}

// A roll-up deletes no results of another one that stores more tags.
func TestResultsWithMoreTagsStay(t *testing.T) {
	h := newHarness(t)
	h.do(200, "POST", "/api/v1/rollups", lastJSON("byhost", "host"))
	h.do(200, "POST", "/api/v1/rollups", lastJSON("all", ""))
	h.put("src", "a", 1, at(0, 1, 0))
	h.put("src", "b", 2, at(0, 2, 0))
	h.fill("byhost", "01")
	h.fill("all", "01")
	h.put("src", "c", 0.5, at(0, 3, 0))
	h.fill("all", "01")
	h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 1
{host=b,saved_from=src} 2000-01-01T00:00 2
{saved_from=src} 2000-01-01T00:00 0.5`)
}

// A bucket has one result, whatever type it had before, and whether or not the series
// have the group-by tag. Another process may have stored the earlier result.
func TestResultOfOtherTypeIsReplaced(t *testing.T) {
	for _, others := range []bool{false, true} {
		for _, tc := range []struct {
			by            string
			before, after any
			want          string
		}{
			{"host", 5, 0.5, "{host=a,saved_from=src} 2000-01-01T00:00 0.5"},
			{"host", 0.5, 5, "{host=a,saved_from=src} 2000-01-01T00:00 5"},
			{"host", 0.5, 1 << 53, "{host=a,saved_from=src} 2000-01-01T00:00 9.007199254740992e+15"},
			{"host", 0.5, -1 << 53, "{host=a,saved_from=src} 2000-01-01T00:00 -9.007199254740992e+15"},
			{"host", 0.5, -1<<53 - 1, "{host=a,saved_from=src} 2000-01-01T00:00 -9007199254740993"},
			{"host", 0.5, 1<<53 + 1, "{host=a,saved_from=src} 2000-01-01T00:00 9007199254740993"},
			{"host", 1<<53 + 1, 0.5, "{host=a,saved_from=src} 2000-01-01T00:00 0.5"},
			{"rack", 5, 0.5, "{saved_from=src} 2000-01-01T00:00 0.5"},
			{"rack", 0.5, 1<<53 + 1, "{saved_from=src} 2000-01-01T00:00 9007199254740993"},
		} {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				restart := func() {
					if others {
						h.front, h.node = &forgetful{h.store, map[string]bool{}}, "n"
					}
					h.restart(nil)
					h.scheduler.Load(t.Context())
				}
				restart()
				h.do(200, "POST", "/api/v1/rollups", lastJSON("t", tc.by))
				h.put("src", "a", tc.before, at(0, 1, 0))
				h.fill("t", "01")
				restart()
				h.put("src", "a", tc.after, at(0, 2, 0))
				h.fill("t", "01")
				want := tc.want
				if others { // the time of the last point: KairosDB may run the task too
					want = strings.Replace(want, "00:00", "00:02", 1)
				}
				h.wantPoints("dst", want)
			})
		}
	}
}

// A forgetful store knows only the series that it was asked to create: other processes
// have written the rest.
type forgetful struct {
	*reference.Store
	created map[string]bool // keys
}

func (f *forgetful) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	f.created[string(s.AppendKey(nil))] = true
	return f.Store.Create(ctx, s)
}

func (f *forgetful) Lookup(key []byte) (store.Ref, bool) {
	if !f.created[string(key)] {
		return 0, false
	}
	return f.Store.Lookup(key)
}

// Groups that differ in more than tags are stored under one name, where the later one
// wins. None of them deletes remaining results of the others.
func TestGroupsUnderOneName(t *testing.T) {
	for _, large := range []bool{false, true} {
		h := newHarness(t)
		o := &output{scheduler: h.scheduler, writer: h.pipeline.NewWriter(h.scheduler.protocol, "", 0), metric: "dst", source: "src"}
		double := agg.Point{TimeMS: at(0, 0, 0), Kind: model.Double, Bits: math.Float64bits(0.5)}
		long := agg.Point{TimeMS: at(0, 0, 0), Kind: model.Long, Bits: 7}
		if large {
			long.Bits = 1<<53 + 1
		}
		for _, tc := range []struct {
			points []agg.Point
			want   string
		}{
			{[]agg.Point{double, long}, fmt.Sprintf("{saved_from=src} 2000-01-01T00:00 %d", long.Bits)},
			{[]agg.Point{long, double}, "{saved_from=src} 2000-01-01T00:00 0.5"},
		} {
			o.begin(model.AllTime)
			for _, p := range tc.points {
				g := o.newGroup(&agg.Group{})
				g.points = []agg.Point{p}
				o.hold(g)
				o.held++
			}
			if err := o.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			h.wantPoints("dst", tc.want)
		}
	}
}

// Results that have already expired are not stored, and replace nothing.
func TestExpiredResultsReplaceNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.ingest = func(c *ingest.Config) { c.TTLFrom = ingest.FromTimestamp }
		h.restart(nil)
		h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
		h.put("src", "a", 1, at(0, 1, 0), at(3, 1, 0))
		time.Sleep(4 * time.Hour)
		h.fill("t", "04")
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(lastJSON("t", "host"), `"save_as"`, `"ttl":7200,"save_as"`, 1))
		h.put("src", "a", 0.5, at(0, 2, 0), at(3, 2, 0))
		h.fill("t", "04")
		h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T03:00 0.5\n{host=a,saved_from=src} 2000-01-01T00:00 1")
	})
}

// Consecutive replaced results are removed by one deletion.
func TestDeletesInStretches(t *testing.T) {
	h := newHarness(t)
	d := &deleter{Store: h.store}
	h.scheduler.store = d
	h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
	for i := range 20 {
		h.put("src", "a", i, at(i, 0, 0))
	}
	h.fill("t", "20")
	if err := h.store.Delete(t.Context(), store.Deletion{Metric: "src", Range: model.TimeRange{StartMS: at(10, 0, 0), EndMS: at(10, 0, 0)}}); err != nil {
		t.Fatal(err)
	}
	h.put("src", "a", 0.5, at(19, 1, 0))
	h.fill("t", "20")
	if d.deletes != 2 {
		t.Errorf("%d deletes of two stretches", d.deletes)
	}
	if got := strings.Count(h.points("dst"), "\n"); got != 20 || !strings.Contains(h.points("dst"), "10:00 10") {
		t.Errorf("%d results of 20 hours:\n%s", got, h.points("dst"))
	}
}

// TestDeletionsEndAtValidResults: a result that stays ends a stretch of replaced ones, here a long
// that no double represents, between longs that become doubles.
func TestDeletionsEndAtValidResults(t *testing.T) {
	h := newHarness(t)
	h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
	for i, v := range []int{1, exactLong + 1, 2} {
		h.put("src", "a", v, at(i, 0, 0))
	}
	h.fill("t", "03")
	h.put("src", "a", 0.5, at(0, 1, 0), at(2, 1, 0))
	h.fill("t", "03")
	h.wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:00 0.5
{host=a,saved_from=src} 2000-01-01T02:00 0.5
{host=a,saved_from=src} 2000-01-01T01:00 9007199254740993`)
}

// A task that reads the results of another one never counts a result twice: while an earlier
// result is being replaced, the run that the new result has caused waits.
func TestReadersWaitForReplacedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		run := func(id string) error {
			return h.scheduler.run(t.Context(), h.scheduler.known(id), func() bool { return true }, func(bool) time.Time { return time.Now() })
		}
		h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
		h.do(200, "POST", "/api/v1/rollups", strings.NewReplacer(`"src"`, `"dst"`, `"dst"`, `"dst2"`).Replace(taskJSON("reader", hour, hour, "")))
		both := func() {
			t.Helper()
			if err := errors.Join(run("t"), run("reader")); err != nil {
				t.Fatal(err)
			}
		}
		both()
		h.send("src", "a", 1, at(-48, 0, 0))
		both()
		h.wantPoints("dst2", "{host=a,saved_from=dst} 1999-12-30T00:00 1")

		ended := make(chan error, 1)
		h.scheduler.store = &deleting{Store: h.store, before: func() {
			go func() { ended <- run("reader") }()
			synctest.Wait()
		}}
		h.put("src", "a", 0.5, at(-48, 0, 1))
		h.send("src", "a", 1, at(-48, 0, 0))
		if err := errors.Join(run("t"), <-ended); err != nil {
			t.Fatal(err)
		}
		h.wantPoints("dst", "{host=a,saved_from=src} 1999-12-30T00:00 0.5")
		h.wantPoints("dst2", "{host=a,saved_from=dst} 1999-12-30T00:00 0.5")
	})
}

// A deleting store calls before in each delete, before samples are deleted.
type deleting struct {
	Store
	before func()
}

func (d *deleting) Delete(ctx context.Context, deletions ...store.Deletion) error {
	d.before()
	return d.Store.Delete(ctx, deletions...)
}
