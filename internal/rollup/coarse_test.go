package rollup

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A coarse store stores the samples of dst with the times that a keyspace of seconds gives them.
type coarse struct {
	*reference.Store
	spec rowtime.Spec

	mu  sync.Mutex
	dst map[store.Ref]bool
}

func (c *coarse) StoredTime(_ string, ms int64) int64 {
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
	c.dst[ref] = c.dst[ref] || metric == "dst"
}

func (c *coarse) Append(ctx context.Context, b *store.Batch) error {
	c.mu.Lock()
	for i := range b.Samples {
		if c.dst[b.Samples[i].Ref] {
			b.Samples[i].TimeMS = c.StoredTime("dst", b.Samples[i].TimeMS)
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

// TestResultsInAKeyspaceOfSeconds: a store gives results earlier times than they were stored with, most of them
// in the bucket before. A run that computes buckets again, all or one of them, deletes neither its own results nor those of
// the next bucket.
func TestResultsInAKeyspaceOfSeconds(t *testing.T) {
	h := newHarness(t)
	c := &coarse{Store: h.store, spec: rowtime.Spec{Width: 1_814_400, Unit: rowtime.Seconds}, dst: map[store.Ref]bool{}}
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
