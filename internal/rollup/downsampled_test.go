package rollup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/downsample"
	"varve/internal/embedded"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// A breakable is a store whose Append fails for the results of a roll-up.
type breakable struct {
	*embedded.Store
	fails   bool
	failing int // calls until one fails; 0: none does
}

func (b *breakable) Append(ctx context.Context, batch *store.Batch) error {
	if b.failing--; b.failing == 0 || b.fails {
		return errors.New("the disk is gone")
	}
	return b.Store.Append(ctx, batch)
}

// newDownsampled returns a harness over a store that downsamples results of a minute in dst
// to buckets of an hour with count, sum and time. It is a day after the start of the
// bubble.
func newDownsampled(t *testing.T) (*harness, *breakable) {
	return newDownsampledBy(t, "60s:1h,1h:10y", func() time.Time { return time.UnixMilli(at(24, 0, 0)) })
}

func newDownsampledBy(t *testing.T, stages string, now func() time.Time) (*harness, *breakable) {
	return newDownsampledMetric(t, "dst", stages, now)
}

func newDownsampledMetric(t *testing.T, metric, stages string, now func() time.Time) (*harness, *breakable) {
	var p retention.PolicyConfig
	p.SetDefaults()
	p.Name, p.Metric, p.Stages, p.Aggregation = metric, metric, stages, "sum"
	rules, err := retention.Config{Policies: []retention.PolicyConfig{p}}.Rules()
	if err != nil {
		t.Fatal(err)
	}
	c := embedded.DefaultConfig()
	c.LateHold = 0 // folds do not wait after the start
	reg := prometheus.NewRegistry()
	s, err := embedded.Open(vfs.NewMem(), "data", c, embedded.Options{
		Book: retention.NewShelf(&retention.Book{Rules: rules}), Now: now, Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &breakable{Store: s}
	h := &harness{T: t, front: b}
	h.restart(nil)
	t.Cleanup(func() {
		if views := ingesttest.Counters(t, reg, "varve_store_views"); len(views) > 0 {
			t.Errorf("%v views are still open", views)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, b
}

// fold downsamples everything that is old enough.
func (b *breakable) fold(t *testing.T) {
	t.Helper()
	if err := b.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// hours returns the sums and numbers of the results in dst of the first hours.
func (b *breakable) hours(t *testing.T) string {
	t.Helper()
	view, err := b.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	series, err := storetest.Select(t.Context(), view, store.Selection{Metric: "dst", Range: model.AllTime})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for hour := range 3 {
		sum, count := 0.0, 0
		for _, s := range series {
			span := model.TimeRange{StartMS: at(hour, 0, 0), EndMS: at(hour+1, 0, 0) - 1}
			cursor := view.Read(t.Context(), s, store.ReadOptions{Range: span, Summarize: &store.Summary{
				Final: func(int64) int64 { return span.EndMS }, Needs: model.StatSum,
			}})
			for {
				block, err := cursor.Next()
				if err != nil {
					t.Fatal(err)
				}
				if block == nil {
					break
				}
				for _, one := range block.Stats {
					sum, count = sum+one.Sum, count+one.Count
				}
				for _, bits := range block.Values {
					value := float64(int64(bits))
					if s.Type == model.TypeDouble {
						value = math.Float64frombits(bits)
					}
					sum, count = sum+value, count+1
				}
			}
			cursor.Close()
		}
		out = append(out, fmt.Sprintf("%v/%d", sum, count))
	}
	return strings.Join(out, " ")
}

func (h *harness) fillMinutes(hour, from, until int) {
	h.Helper()
	h.do(204, "POST", fmt.Sprintf("/api/v1/rollups/backfill/t?startTime=2000-01-01-%02d-%02d-00-000&endTime=2000-01-01-%02d-%02d-00-000", hour, from, hour, until), "")
}

func (h *harness) minutes(hours int) {
	var times []int64
	for m := range hours * 60 {
		times = append(times, at(0, m, 0))
	}
	h.send("src", "a", 1, times...)
}

// downsampledHours returns a harness in which the results of a task for three hours, one a
// minute, are downsampled.
func downsampledHours(t *testing.T, task string) (*harness, *breakable) {
	t.Helper()
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", task)
	h.minutes(3)
	h.fill("t", "03")
	b.fold(t)
	return h, b
}

func wantHours(t *testing.T, b *breakable, what, want string) {
	t.Helper()
	if got := b.hours(t); got != want {
		t.Errorf("%s: the hours have %s, want %s", what, got, want)
	}
}

// Downsampled results count once, however often and in whatever parts they are
// recomputed.
func TestDownsampledResultsCountOnce(t *testing.T) {
	for _, end := range []string{"", `,"align_end_time":true`} {
		h, b := newDownsampled(t)
		h.minutes(3) // before the task exists: these points are not late
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, minute, ""), `"sum"`, `"sum"`+end, 1))
		h.fill("t", "03")
		b.fold(t)
		want := "60/60 60/60 60/60"
		if end != "" {
			want = "59/59 60/60 60/60" // the last result is that of 03:00
		}
		wantHours(t, b, "downsampled", want)
		h.fillMinutes(1, 10, 40)
		wantHours(t, b, "half an hour", want)
		b.fold(t)
		h.fillMinutes(1, 50, 55)
		h.fillMinutes(0, 10, 10)
		b.fold(t)
		wantHours(t, b, "parts", want)
		if got := h.scheduler.late.Count("", ""); got != 0 {
			t.Errorf("%d spans wait to be computed again", got)
		}
		h.send("src", "a", 7, at(1, 5, 10))
		h.fillMinutes(1, 5, 5)
		want = strings.Replace(want, " 60/60 60/60", " 67/60 60/60", 1)
		wantHours(t, b, "late", want)
		b.fold(t)
		wantHours(t, b, "late and downsampled", want)
		h.fill("t", "03")
		b.fold(t)
		wantHours(t, b, "all", want)
	}
}

// A result of a time without one is added to the downsampled ones.
func TestNewResultsBesideDownsampledOnes(t *testing.T) {
	h, b := newDownsampled(t)
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	h.send("src", "a", 1, at(1, 0, 0), at(1, 1, 0))
	h.fill("t", "03")
	b.fold(t)
	wantHours(t, b, "before", "0/0 2/2 0/0")
	h.send("src", "a", 1, at(1, 30, 0))
	h.fillMinutes(1, 30, 30)
	wantHours(t, b, "after", "0/0 3/3 0/0")
	b.fold(t)
	wantHours(t, b, "downsampled", "0/0 3/3 0/0")
}

// Downsampled results stay if some of their points are gone.
func TestDownsampledResultsOutlivePoints(t *testing.T) {
	h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
	if err := b.Delete(t.Context(), store.Deletion{Metric: "src", Range: model.TimeRange{StartMS: at(1, 0, 0), EndMS: at(1, 20, 0)}}); err != nil {
		t.Fatal(err)
	}
	h.fillMinutes(1, 40, 45)
	b.fold(t)
	wantHours(t, b, "after", "60/60 60/60 60/60")
	if got := ingesttest.Counters(t, h.registry, "varve_rollup_results_kept_total")[""]; got == 0 {
		t.Error("results that were not stored are not counted")
	}
}

// Results stay if their points were downsampled into buckets that extend across a bucket boundary
// of a range aggregator. From other buckets they are recomputed.
func TestResultsOutliveDownsampledPoints(t *testing.T) {
	for _, c := range []struct{ what, aggregators, before, after string }{
		{"wider buckets", `{"name":"sum","sampling":` + minute + `}`, "60/60 0/0 0/0", "60/60 0/0 0/0"},
		{"equal buckets", `{"name":"sum","sampling":` + hour + `}`, "60/1 0/0 0/0", "74/1 0/0 0/0"},
		{"buckets across", `{"name":"sum","sampling":` + hour + `,"time_zone":"+05:30"}`, "30/1 0/0 0/0", "30/1 0/0 0/0"},
		{"wider buckets than those of the first aggregator", `{"name":"sum","sampling":` + minute + `},{"name":"max","sampling":` + hour + `}`, "1/1 0/0 0/0", "1/1 0/0 0/0"},
	} {
		h, b := newDownsampledMetric(t, "src", "60s:1h,1h:10y", func() time.Time { return time.UnixMilli(at(24, 0, 0)) })
		run := func() {
			t.Helper()
			if err := h.scheduler.run(t.Context(), h.scheduler.known("t"), func() bool { return true }, func(bool) time.Time { return time.Now() }); err != nil {
				t.Fatal(err)
			}
		}
		h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, minute, ""), `{"name":"sum","sampling":`+minute+`}`, c.aggregators, 1))
		h.minutes(1)
		run()
		wantHours(t, b, c.what, c.before)
		b.fold(t)
		h.send("src", "a", 7, at(0, 0, 10), at(0, 30, 10))
		run()
		wantHours(t, b, c.what+", late points", c.after)
		kept := ingesttest.Counters(t, h.registry, "varve_rollup_results_kept_total")[""]
		if (kept > 0) != (c.before == c.after) || h.scheduler.late.Count("t", firstKey(h, "t")) != 0 {
			t.Errorf("%s: %v results are counted as kept, %d spans wait", c.what, kept, h.scheduler.late.Count("t", firstKey(h, "t")))
		}
	}
}

// Results of complete buckets stay if a policy has removed points at their beginning, or will soon.
func TestResultsOutliveRemovedPoints(t *testing.T) {
	now := at(2, 0, 0)
	h, b := newDownsampledMetric(t, "src", "60s:1425m", func() time.Time { return time.UnixMilli(now) })
	run := func() {
		t.Helper()
		if err := h.scheduler.run(t.Context(), h.scheduler.known("t"), func() bool { return true }, func(bool) time.Time { return time.Now() }); err != nil {
			t.Fatal(err)
		}
	}
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, hour, ""))
	h.minutes(1)
	run()
	wantHours(t, b, "computed", "60/1 0/0 0/0")
	now = at(24, 0, 0) // points are kept from 00:15 on
	h.send("src", "a", 7, at(0, 55, 10), at(1, 5, 0))
	run()
	wantHours(t, b, "late points", "60/1 7/1 0/0")
	now = at(24, 40, 0) // from 00:55 on
	h.send("src", "a", 7, at(1, 55, 10))
	run()
	wantHours(t, b, "points that are removed soon", "60/1 7/1 0/0")
}

// A query with a limit computes each bucket by itself, so no downsampled bucket, which
// contains others too, can be replaced.
func TestDownsampledResultsWithLimit(t *testing.T) {
	h, b := downsampledHours(t, strings.Replace(taskJSON("t", hour, minute, ""), `"name":"src",`, `"name":"src","limit":10,`, 1))
	h.fillMinutes(1, 10, 40)
	b.fold(t)
	wantHours(t, b, "after", "60/60 60/60 60/60")
}

// A failure between the deletion of downsampled results and the new results leaves a
// note, which a restart finds.
func TestDownsampledResultsAfterFailure(t *testing.T) {
	h, b := downsampledHours(t, taskJSON("t", hour, minute, ""))
	b.fails = true
	h.do(500, "POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-01-10-00-000&endTime=2000-01-01-01-20-00-000", "")
	b.fails = false
	wantHours(t, b, "failed", "60/60 0/0 60/60")
	h.restart(nil)
	h.scheduler.Load(t.Context())
	if got := h.scheduler.late.Count("", ""); got == 0 {
		t.Fatal("nothing says that the hour has to be computed again")
	}
	if err := h.scheduler.run(t.Context(), h.scheduler.mu.jobs["t"].task, func() bool { return true }, func(bool) time.Time { return time.Now() }); err != nil {
		t.Fatal(err)
	}
	wantHours(t, b, "computed again", "60/60 60/60 60/60")
}

// Results are stored only while the store is kept from downsampling any result that is
// computed with them: if the held range is too narrow, it is widened first.
func TestHeldRangeCoversTheResults(t *testing.T) {
	h, _ := downsampledHours(t, taskJSON("t", hour, minute, ""))
	task, _ := h.scheduled("t")
	p, err := h.scheduler.newPass(task, &task.rollups[0], &task.rollups[0].sources[0], h.scheduler.names(task))
	if err != nil {
		t.Fatal(err)
	}
	from, until := at(1, 10, 0), at(1, 20, 0)
	covers := func(s downsample.Span) bool { return s.FromMS <= at(1, 0, 0) && s.UntilMS >= at(2, 0, 0) }
	around := downsample.Span{FromMS: from, UntilMS: until}
	stored := 0
	hold := func() (bool, error) {
		return p.holding(t.Context(), &around, from, until, func(_ *renewal, wanted downsample.Span) error {
			if stored++; wanted != around || !covers(wanted) {
				t.Errorf("%v are computed together while %v are held", wanted, around)
			}
			return nil
		})
	}
	if enough, err := hold(); enough || err != nil || stored != 0 || !covers(around) {
		t.Errorf("with a narrow range held: enough %v, %v, stored %d times; then %v is held", enough, err, stored, around)
	}
	if enough, err := hold(); !enough || err != nil || stored != 1 {
		t.Errorf("with the whole bucket held: enough %v, %v, stored %d times", enough, err, stored)
	}
}
