package rollup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A coarse store stores the samples of a metric with the times that a keyspace of seconds gives them.
type coarse struct {
	*reference.Store
	spec   rowtime.Spec
	metric string

	mu   sync.Mutex
	cuts map[store.Ref]bool
}

func newCoarse(s *reference.Store, metric string) *coarse {
	return &coarse{Store: s, spec: rowtime.Spec{Width: 1_814_400, Unit: rowtime.Seconds}, metric: metric, cuts: map[store.Ref]bool{}}
}

func (c *coarse) StoredTime(metric string, ms int64) int64 {
	if metric != c.metric {
		return ms
	}
	row := c.spec.RowTime(ms)
	return c.spec.Time(row, c.spec.Column(row, ms))
}

func (c *coarse) Lookup(key []byte) (store.Ref, bool) {
	ref, ok := c.Store.Lookup(key)
	if ok {
		c.note(ref, model.TrustKey(string(key)).Metric)
	}
	return ref, ok
}

func (c *coarse) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	ref, err := c.Store.Create(ctx, s)
	if err == nil {
		c.note(ref, s.Metric)
	}
	return ref, err
}

func (c *coarse) note(ref store.Ref, metric string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[ref] = c.cuts[ref] || metric == c.metric
}

func (c *coarse) Append(ctx context.Context, b *store.Batch) error {
	c.mu.Lock()
	for i := range b.Samples {
		if c.cuts[b.Samples[i].Ref] {
			b.Samples[i].TimeMS = c.StoredTime(c.metric, b.Samples[i].TimeMS)
		}
	}
	c.mu.Unlock()
	return c.Store.Append(ctx, b)
}

// times returns the times and values of dst, with seconds.
func (c *coarse) times(t *testing.T) string {
	t.Helper()
	v, err := c.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var b strings.Builder
	for s, err := range v.Select(t.Context(), store.Selection{Metric: "dst", Range: model.AllTime}) {
		if err != nil {
			t.Fatal(err)
		}
		cursor := v.Read(t.Context(), s, store.ReadOptions{Range: model.AllTime})
		for {
			block, err := cursor.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				break
			}
			for i, ms := range block.Times {
				fmt.Fprintln(&b, time.UnixMilli(ms).UTC().Format("15:04:05.000"), int64(block.Values[i]))
			}
		}
		cursor.Close()
	}
	return b.String()
}

// TestResultsInAKeyspaceOfSeconds: the store gives results earlier times than they were stored with, and most
// of them then lie in the previous bucket. A run that recomputes all buckets or one bucket deletes neither its
// own results nor those of the next bucket.
func TestResultsInAKeyspaceOfSeconds(t *testing.T) {
	h := newHarness(t)
	c := newCoarse(h.store, "dst")
	h.front = c
	h.restart(nil)
	h.do(200, "POST", "/api/v1/rollups", lastJSON("t", "host"))
	for i := range 6 {
		h.put("src", "a", i, at(i, 1, 0))
	}
	h.fill("t", "06")
	want, cut := "", 0
	for i := range 6 {
		ms := c.StoredTime("dst", at(i, 0, 0))
		if ms != at(i, 0, 0) {
			cut++
		}
		want += fmt.Sprintln(time.UnixMilli(ms).UTC().Format("15:04:05.000"), i)
	}
	if cut < 3 {
		t.Fatalf("only %d results are cut", cut)
	}
	check := func(what string) {
		t.Helper()
		if got := c.times(t); got != want {
			t.Errorf("%s:\n%swant\n%s", what, got, want)
		}
	}
	check("the first run")
	h.fill("t", "06")
	check("all again")
	for i := range 6 {
		h.do(204, "POST", fmt.Sprintf("/api/v1/rollups/backfill/t?startTime=2000-01-01-%02d-00-00-000&endTime=2000-01-01-%02d-59-00-000", i, i), "")
		check(fmt.Sprintf("hour %d again", i))
	}
	for i := range 6 {
		h.put("src", "a", 0.5, at(i, 2, 0))
	}
	h.fill("t", "06")
	// The earlier result of the first bucket stays: it may be one of the bucket before, which was not computed.
	if got := strings.Count(c.times(t), "\n"); got != 7 {
		t.Errorf("after a change of the type: %d results:\n%s", got, c.times(t))
	}
}

// TestLatePointsInAKeyspaceOfSeconds: a store may give a late point an earlier time, in the bucket
// before that of its own time. That bucket is recomputed, even if the run has just computed the
// other one.
func TestLatePointsInAKeyspaceOfSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		c := newCoarse(h.store, "src")
		h.front = c
		h.restart(nil)
		h.start()
		defer func() { h.stop() }()
		h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(3*time.Hour + 30*time.Second)
		want, cut := "", 0
		for _, ms := range []int64{at(0, 10, 0), at(0, 20, 0), at(0, 50, 0), at(1, 30, 0), at(2, 1, 0), at(2, 2, 0)} {
			h.send("src", "a", 5, ms)
			stored := c.StoredTime("src", ms)
			if stored != ms {
				cut++
			}
			want += "{host=a,saved_from=src} " + time.UnixMilli(stored).UTC().Format("2006-01-02T15:04") + " 5\n"
		}
		if cut < 4 {
			t.Fatalf("only %d points are cut", cut)
		}
		time.Sleep(time.Minute)
		h.wantPoints("dst", want)
		if n := h.status("t").Statuses[0].Late; n != 0 {
			t.Errorf("%d stretches of time still wait", n)
		}
		if _, err := h.store.Get(context.Background(), service, lateKey, "t"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("still noted: %v", err)
		}
	})
}

// TestLatePointAfterOthersExpiredInSeconds: the bucket before that of a late point is not recomputed if
// some of its points have expired: the result would lose them.
func TestLatePointAfterOthersExpiredInSeconds(t *testing.T) {
	for _, standard := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			h.front = newCoarse(h.store, "src")
			const life = 4 * time.Hour
			own := life
			if standard {
				own, h.ingest = 0, func(c *ingest.Config) { c.DefaultTTL = life }
			}
			h.restart(nil)
			h.start()
			defer func() { h.stop() }()
			h.do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, hour, ""))
			time.Sleep(30 * time.Second) // in the middle of a minute, points stay in their hours
			for range 180 {
				h.sendFor(own, time.Now().UnixMilli())
				time.Sleep(time.Minute)
			}
			time.Sleep(90 * time.Minute) // of the first hour half is left
			h.sendFor(own, at(1, 59, 45))
			time.Sleep(2 * time.Minute)
			h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 60\n{host=a,saved_from=src} 2000-01-01T01:00 61\n{host=a,saved_from=src} 2000-01-01T02:00 60")
		})
	}
}
