package kairos

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
	"varve/internal/units"
)

// A cacheFixture is an API with its own clock, queried without a network.
type cacheFixture struct {
	*API
	testing.TB
	store *reference.Store
	now   time.Time
}

func newCacheFixture(t testing.TB, c Config) *cacheFixture {
	f := &cacheFixture{TB: t, store: reference.New(nil), now: time.UnixMilli(1_700_000_000_000)}
	t.Cleanup(func() { f.store.Close() })
	clock := func() time.Time { return f.now }
	f.API = New(f.store, agg.New(query.New(f.store, query.DefaultConfig(), prometheus.NewRegistry(), clock), nil), c, "", clock)
	return f
}

func (f *cacheFixture) put(ms int64, v float64) {
	f.Helper()
	ref, err := f.store.Create(context.Background(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: model.TypeDouble})
	if err != nil {
		f.Fatal(err)
	}
	var b store.Batch
	b.Reset(f.store.Epoch())
	b.AddDouble(ref, ms, v, 0)
	if err := f.store.Append(context.Background(), &b); err != nil {
		f.Fatal(err)
	}
}

func (f *cacheFixture) ask(body string) string {
	f.Helper()
	w := httptest.NewRecorder()
	f.serve(f.postQuery)(w, httptest.NewRequest(http.MethodPost, queryPath, strings.NewReader(body)))
	if w.Code != http.StatusOK {
		f.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	_, values, _ := strings.Cut(w.Body.String(), `"values":`)
	return values
}

func TestQueryCache(t *testing.T) {
	config := DefaultConfig()
	config.QueryCache = units.MiB
	f := newCacheFixture(t, config)
	request := func(cacheTime int, more string) string {
		return fmt.Sprintf(`{"start_absolute":0,"cache_time":%d,"metrics":[{"name":"m"%s}]}`, cacheTime, more)
	}
	f.put(1, 1)
	const one, two = `[[1,1]]}]}]}`, `[[1,1],[2,2]]}]}]}`
	for i, step := range []struct {
		after time.Duration
		do    func() string
		want  string
	}{
		{0, func() string { return f.ask(request(10, "")) }, one},
		{0, func() string { f.put(2, 2); return f.ask(request(10, "")) }, one},                    // as it was
		{0, func() string { return f.ask(request(0, "")) }, two},                                  // asked to be fresh
		{0, func() string { return f.ask(request(10, `,"order":"asc"`)) }, two},                   // another request
		{0, func() string { return f.ask(request(10, `,"order":"desc"`)) }, `[[2,2],[1,1]]}]}]}`}, // KairosDB would take the one before
		{0, func() string { return f.ask(request(10, `,"limit":1`)) }, one},
		{0, func() string { return f.ask(`{"metrics":[{"name":"m"}],"cache_time":"10",start_absolute:0} `) }, one}, // however written
		{9 * time.Second, func() string { return f.ask(request(5, "")) }, two},                                     // too old for this one
		{4 * time.Second, func() string { f.put(1, 5); return f.ask(request(10, "")) }, two},                       // what the last one left is 4 s old
		{7 * time.Second, func() string { return f.ask(request(10, "")) }, `[[1,5],[2,2]]}]}]}`},
	} {
		f.now = f.now.Add(step.after)
		if got := step.do(); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	var m dto.Metric
	if err := f.cache.hits.Write(&m); err != nil || m.Counter.GetValue() != 3 {
		t.Errorf("%v hits, %v", m.Counter.GetValue(), err)
	}
}

// The cache is bounded and keeps the most recently used answers.
func TestQueryCacheIsBounded(t *testing.T) {
	c := newAnswerCache(10 * (entryBytes + 100))
	at := time.UnixMilli(0)
	id := func(i int) identity { return identity{byte(i)} }
	for i := range 20 {
		c.put(id(i), at, [][]byte{make([]byte, 60), make([]byte, 40)})
		c.get(id(0), at, time.Second)
		if c.used > c.max || len(c.entries) != c.recent.Len() {
			t.Fatalf("%d bytes of %d in %d entries", c.used, c.max, len(c.entries))
		}
	}
	for i := range 20 {
		if kept := c.get(id(i), at, 0) != nil; kept != (i == 0 || i > 10) {
			t.Errorf("%d kept: %v", i, kept)
		}
	}
	c.put(id(30), at, [][]byte{make([]byte, c.max/maxCacheShare)})
	if c.get(id(30), at, 0) != nil {
		t.Error("an answer too large was kept")
	}
	c.put(id(0), at.Add(-1), [][]byte{[]byte("older")})
	if len(c.get(id(0), at, time.Second)) != 100 {
		t.Error("an older answer took the place of a younger one")
	}
	if c.get(id(0), at.Add(-time.Second), time.Second) != nil {
		t.Error("an answer from the future was used")
	}
}

// A cache of size 0 keeps nothing, and a query that writes always runs.
func TestQueryCacheOff(t *testing.T) {
	config := DefaultConfig()
	f := newCacheFixture(t, config)
	f.put(1, 1)
	const q = `{"start_absolute":0,"cache_time":10,"metrics":[{"name":"m"}]}`
	f.ask(q)
	f.put(1, 2)
	if got := f.ask(q); got != `[[1,2]]}]}]}` {
		t.Error(got)
	}
	saves := saverFunc(0)
	config.QueryCache = units.MiB
	f = newCacheFixture(t, config)
	f.engine = agg.New(f.engine.Engine, &saves)
	f.put(1, 1)
	for range 2 {
		f.ask(`{"start_absolute":0,"cache_time":10,"metrics":[{"name":"m","aggregators":[{"name":"save_as","metric_name":"x"}]}]}`)
	}
	if saves != 2 {
		t.Errorf("%d writes", saves)
	}
}

// A saverFunc counts the points that are saved.
type saverFunc int

func (n *saverFunc) Save(_ context.Context, _ agg.Target, points []agg.Point) error {
	*n += saverFunc(len(points))
	return nil
}
