package rollup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A faulty store calls fault before each call that reads, or that stores a text.
type faulty struct {
	*reference.Store
	fault func() error
}

func (f *faulty) Get(ctx context.Context, service, key, name string) (store.Value, error) {
	if err := f.fault(); err != nil {
		return store.Value{}, err
	}
	return f.Store.Get(ctx, service, key, name)
}

func (f *faulty) Set(ctx context.Context, service, key, name, text string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.Store.Set(ctx, service, key, name, text)
}

func (f *faulty) Unset(ctx context.Context, service, key, name string) error {
	if err := f.fault(); err != nil {
		return err
	}
	return f.Store.Unset(ctx, service, key, name)
}

func (f *faulty) Keys(ctx context.Context, service, key, prefix string) iter.Seq2[string, error] {
	if err := f.fault(); err != nil {
		return func(yield func(string, error) bool) { yield("", err) }
	}
	return f.Store.Keys(ctx, service, key, prefix)
}

func (f *faulty) Modified(ctx context.Context, service, key string) (time.Time, error) {
	if err := f.fault(); err != nil {
		return time.Time{}, err
	}
	return f.Store.Modified(ctx, service, key)
}

func (f *faulty) View(ctx context.Context) (store.View, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.Store.View(ctx)
}

// A brittle store fails at one call, of any kind, and passes all other calls on.
type brittle struct {
	faulty
	panics bool // instead of returning an error

	mu    sync.Mutex
	calls int // since arm; the fails-th fails
	fails int // 0: none
}

func newBrittle(to *reference.Store) *brittle {
	b := &brittle{faulty: faulty{Store: to}}
	b.fault = b.call
	return b
}

var errBrittle = errors.New("the store is out of order")

// arm makes the n-th call from now on fail, counted from 1.
func (b *brittle) arm(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls, b.fails = 0, n
}

// disarm lets all calls pass, and reports whether one has failed.
func (b *brittle) disarm() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := b.fails > 0 && b.calls >= b.fails
	b.fails = 0
	return failed
}

func (b *brittle) call() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls++; b.calls != b.fails {
		return nil
	}
	if b.panics {
		panic(errBrittle)
	}
	return errBrittle
}

func (b *brittle) Create(ctx context.Context, s model.Series) (store.Ref, error) {
	if err := b.call(); err != nil {
		return 0, err
	}
	return b.Store.Create(ctx, s)
}

func (b *brittle) Append(ctx context.Context, batch *store.Batch) error {
	if err := b.call(); err != nil {
		return err
	}
	return b.Store.Append(ctx, batch)
}

func (b *brittle) Delete(ctx context.Context, deletions ...store.Deletion) error {
	if err := b.call(); err != nil {
		return err
	}
	return b.Store.Delete(ctx, deletions...)
}

// A logText keeps a log that a test reads while its scheduler runs.
type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logText) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// brittleHarness has a task "t" that sums src by minute, runs each hour, and has run.
// With others, more nodes share the store, and one of them has recorded late points of
// the task.
func brittleHarness(t *testing.T, others bool) (*harness, *brittle, *logText) {
	t.Helper()
	h := newHarness(t)
	b, log := newBrittle(h.store), &logText{}
	h.front, h.log = b, slog.New(slog.NewTextHandler(log, nil))
	if others {
		h.node = "a"
	}
	h.restart(nil)
	h.start()
	time.Sleep(time.Second) // so that this node is in the list of nodes
	h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
	time.Sleep(time.Hour + time.Second)
	h.stop()
	if others {
		h.put("src", "a", 5, at(-30, 0, 0))
		if err := h.store.Set(t.Context(), service, handedKey, "t/"+nodePrefix+"b/1", fmt.Sprintf(`{%q:[[%d,%d]]}`, firstKey(h, "t"), at(-30, 0, 0), at(-30, 1, 0))); err != nil {
			t.Fatal(err)
		}
	}
	return h, b, log
}

// scheduled is a task as the scheduler knows it, and when it is due.
func (h *harness) scheduled(id string) (*task, time.Time) {
	h.scheduler.mu.Lock()
	defer h.scheduler.mu.Unlock()
	j := h.scheduler.mu.jobs[id]
	return j.task, j.due
}

// firstKey is the key of the first metric of a task's first roll-up.
func firstKey(h *harness, id string) string {
	t, _ := h.scheduled(id)
	return t.rollups[0].sources[0].key
}

// TestStoreFailsInARequest: whichever call of the store fails, the client gets an
// error, and the same request succeeds when it is repeated.
func TestStoreFailsInARequest(t *testing.T) {
	for _, request := range []struct{ method, path, body string }{
		{"POST", "", taskJSON("u", hour, minute, "")},
		{"POST", "", taskJSON("t", hour, hour, "")},
		{"PUT", "/t", taskJSON("t", hour, hour, "")},
		{"DELETE", "/t", ""},
		{"GET", "", ""},
		{"GET", "/t", ""},
		{"GET", "/status/t", ""},
		{"POST", "/backfill/t?startTime=2000-01-01-00-00-00-000", ""},
	} {
		for n := 1; ; n++ {
			failed := false
			synctest.Test(t, func(t *testing.T) {
				h, b, _ := brittleHarness(t, true)
				send := func() *httptest.ResponseRecorder {
					w := httptest.NewRecorder()
					h.mux.ServeHTTP(w, httptest.NewRequest(request.method, "/api/v1/rollups"+request.path, strings.NewReader(request.body)))
					return w
				}
				b.arm(n)
				w := send()
				failed = b.disarm()
				if failed != (w.Code == 500) || failed && !strings.Contains(w.Body.String(), errBrittle.Error()) {
					t.Errorf("%s %s: call %d failed: %v, and the answer is %d %s", request.method, request.path, n, failed, w.Code, w.Body)
				}
				if again := send(); failed && again.Code >= 300 && !(request.method == "DELETE" && again.Code == 404) {
					t.Errorf("%s %s: call %d failed, and sent again: %d %s", request.method, request.path, n, again.Code, again.Body)
				}
			})
			if !failed {
				if n == 1 {
					t.Errorf("%s %s asks nothing of the store", request.method, request.path)
				}
				break
			}
		}
	}
}

// TestStoreFailsInARun: whichever call of the store fails or panics, the process
// survives, the log reports it, and the run is soon repeated and misses no point.
func TestStoreFailsInARun(t *testing.T) {
	for _, mode := range []struct{ others, panics bool }{{}, {others: true}, {panics: true}, {true, true}} {
		for n, failed := 1, true; failed; n++ {
			synctest.Test(t, func(t *testing.T) {
				h, b, log := brittleHarness(t, mode.others)
				b.panics = mode.panics
				h.start()
				time.Sleep(time.Minute) // until this node has claimed the task
				want := ""
				if mode.others {
					want = "{host=a,saved_from=src} 1999-12-30T18:00 5\n"
				}
				h.send("src", "a", 1, at(-48, 0, 0), at(0, 50, 0))
				h.send("src", "a", 1, at(1, 50, 0))
				_, due := h.scheduled("t")
				time.Sleep(time.Until(due) - time.Millisecond)
				b.arm(n)
				time.Sleep(time.Second)
				synctest.Wait()
				failed = b.disarm()
				if failed && (!strings.Contains(log.String(), errBrittle.Error()) || mode.panics != strings.Contains(log.String(), "a bug in Varve")) {
					t.Errorf("%+v: call %d failed, and the log has\n%s", mode, n, log)
				}
				if active := valueOf(t, h.scheduler.metrics.active); active != 0 {
					t.Errorf("%+v: call %d failed, and %v runs are active", mode, n, active)
				}
				time.Sleep(2 * DefaultConfig().RetryInterval)
				synctest.Wait()
				h.wantPoints("dst", "{host=a,saved_from=src} 1999-12-30T00:00 1\n"+want+
					"{host=a,saved_from=src} 2000-01-01T00:50 1\n{host=a,saved_from=src} 2000-01-01T01:50 1")
				for _, key := range []string{lateKey, handedKey} {
					for name := range h.store.Keys(t.Context(), service, key, "") {
						t.Errorf("%+v: call %d failed, and %s is left under %s", mode, n, name, key)
					}
				}
				if m := h.status("t").Statuses[0]; m.ErrorMessage != "" || m.Late != 0 || *m.Watermark < at(2, 0, 0) {
					t.Errorf("%+v: call %d failed, and the status is %+v", mode, n, m)
				}
				h.stop()
			})
			if !failed && n < 6 {
				t.Errorf("%+v: a run makes %d calls", mode, n-1)
			}
		}
	}
}

// TestStoreFailsInAFirstRun: the first run of a task, or the first one with another roll-up, is repeated if it fails
// at any call of the store, and misses no point.
func TestStoreFailsInAFirstRun(t *testing.T) {
	for _, added := range []bool{false, true} {
		for n, failed := 1, true; failed; n++ {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t)
				b := newBrittle(h.store)
				h.front, h.log = b, slog.New(slog.DiscardHandler)
				h.restart(nil)
				h.start()
				text, metric := taskJSON("t", hour, minute, ""), "dst"
				h.do(200, "POST", "/api/v1/rollups", text)
				if added {
					time.Sleep(time.Hour + time.Second)
					h.do(200, "PUT", "/api/v1/rollups/t", strings.TrimSuffix(text, "]}")+`,{"save_as":"other","query":{"start_absolute":1,"metrics":[`+
						`{"name":"src","group_by":[{"name":"tag","tags":["host"]}],"aggregators":[{"name":"max","sampling":`+minute+`}]}]}}]}`)
					metric = "other"
				}
				_, due := h.scheduled("t")
				first := due.Add(-time.Hour).UnixMilli()
				h.send("src", "a", 1, first+7000, first+50*60_000)
				time.Sleep(time.Until(due) - time.Millisecond)
				b.arm(n)
				time.Sleep(time.Second)
				synctest.Wait()
				failed = b.disarm()
				time.Sleep(2 * DefaultConfig().RetryInterval)
				synctest.Wait()
				if got := strings.Count(h.points(metric), "host=a"); got != 2 {
					t.Errorf("another roll-up: %v; call %d failed: %v; there are %d results", added, n, failed, got)
				}
				h.stop()
			})
			if !failed && n < 6 {
				t.Errorf("a run makes %d calls", n-1)
			}
		}
	}
}

// TestStoreFailsAmongManyResults: results that exceed one block are stored completely,
// or the backfill fails.
func TestStoreFailsAmongManyResults(t *testing.T) {
	const count = ingest.BlockSamples + 1000
	var times []int64
	for i := range int64(count) {
		times = append(times, at(0, 0, 0)+1000*i)
	}
	for n, failed := 1, true; failed; n++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			b := newBrittle(h.store)
			h.front = b
			h.restart(func(c *Config, _ *query.Config) { c.BatchBuckets = 2 * count })
			h.put("src", "a", 1, times...)
			h.do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, `{"value":1,"unit":"seconds"}`, ""))
			time.Sleep(24 * time.Hour)
			fill := func() (status int, body string) {
				w := httptest.NewRecorder()
				h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-03-00-00-000", nil))
				return w.Code, w.Body.String()
			}
			b.arm(n)
			status, body := fill()
			failed = b.disarm()
			if failed && (status != 500 || !strings.Contains(body, errBrittle.Error())) || !failed && status != 204 {
				t.Errorf("call %d failed: %v, and the answer is %d %s", n, failed, status, body)
			}
			if failed {
				status, body = fill()
			}
			if got := strings.Count(h.points("dst"), "\n"); status != 204 || got != count {
				t.Errorf("call %d failed: %v, and in the end there are %d results, want %d; the answer is %d %s", n, failed, got, count, status, body)
			}
		})
		if !failed && n < 6 {
			t.Errorf("a backfill makes %d calls", n-1)
		}
	}
}

// TestStoreFailsWhileOneResultIsKept: when whole numbers become fractions, a bucket
// ends up with one result, whichever call fails.
func TestStoreFailsWhileOneResultIsKept(t *testing.T) {
	for n, failed := 1, true; failed; n++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t)
			b := newBrittle(h.store)
			h.front = b
			h.restart(nil)
			h.put("src", "a", 2, at(0, 0, 1))
			h.do(200, "POST", "/api/v1/rollups", strings.Replace(taskJSON("t", hour, hour, ""), `"sum"`, `"last"`, 1)) // a long of longs
			time.Sleep(2 * time.Hour)
			const path = "/api/v1/rollups/backfill/t?startTime=2000-01-01-00-00-00-000&endTime=2000-01-01-00-30-00-000"
			h.do(204, "POST", path, "")
			h.put("src", "a", 2.5, at(0, 0, 2))
			w := httptest.NewRecorder()
			b.arm(n)
			h.mux.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
			if failed = b.disarm(); failed != (w.Code == 500) {
				t.Errorf("call %d failed: %v, and the answer is %d %s", n, failed, w.Code, w.Body)
			}
			if h.points("dst") == "" {
				t.Errorf("call %d failed: the old result is gone before the new one is there", n)
			}
			h.do(204, "POST", path, "")
			h.wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:00 2.5")
		})
		if !failed && n < 6 {
			t.Errorf("a backfill makes %d calls", n-1)
		}
	}
}

// TestStoreFailsAtTheStart: whichever call of the store fails or panics while the tasks
// are loaded, the log reports it, and they are soon loaded again.
func TestStoreFailsAtTheStart(t *testing.T) {
	for _, mode := range []struct{ others, panics bool }{{}, {others: true}, {panics: true}} {
		for n, failed := 1, true; failed; n++ {
			synctest.Test(t, func(t *testing.T) {
				h, b, log := brittleHarness(t, mode.others)
				b.panics = mode.panics
				h.restart(nil)
				log.Reset()
				b.arm(n)
				h.scheduler.Load(t.Context())
				failed = b.disarm()
				if told := strings.Count(log.String(), "roll-up tasks cannot be read"); failed != (told == 1) || failed && !strings.Contains(log.String(), errBrittle.Error()) {
					t.Errorf("%+v: call %d failed: %v, and the log has\n%s", mode, n, failed, log)
				}
				h.start()
				defer h.stop()
				time.Sleep(time.Minute)
				h.send("src", "a", 1, at(-48, 0, 0))
				if got := h.scheduler.late.Count("t", firstKey(h, "t")); got != 1 {
					t.Errorf("%+v: call %d failed, and %d stretches are noted", mode, n, got)
				}
			})
			if !failed && n < 5 {
				t.Errorf("%+v: the tasks are read with %d calls", mode, n-1)
			}
		}
	}
}

// TestLateListFails: points are refused if their notes cannot be stored, and accepted
// when they are sent again.
func TestLateListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, b, _ := brittleHarness(t, false)
		late := h.scheduler.late
		s := &store.Batch{Epoch: h.store.Epoch()}
		h.send("src", "a", 1, at(0, 59, 0))
		ref, ok := h.store.Lookup(model.Series{Metric: "src", Tags: model.MustTags("host", "a"), Type: model.TypeLong}.AppendKey(nil))
		if !ok {
			t.Fatal("there is no series")
		}
		s.AddLong(ref, at(-48, 0, 0), 1, 0)
		b.arm(1)
		if done, err := late.Appending(t.Context(), s); !errors.Is(err, errBrittle) || done != nil {
			t.Errorf("a batch whose notes are lost: %v", err)
		}
		b.disarm()
		done, err := late.Appending(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if text, _, err := late.catalogue.get(t.Context(), lateKey, "t"); err != nil || !strings.Contains(text, fmt.Sprint(at(-48, 0, 0))) {
			t.Errorf("noted are %q, %v", text, err)
		}
		if got := late.Take("t", firstKey(h, "t")); len(got) != 1 { // which waits for both batches
			t.Errorf("%v are late", got)
		}
	})
}

// TestStoreFailsInAHandOver: whichever call of the store fails, notes of late points
// stay in the list until another node can find them. Points of other metrics are not
// waited for.
func TestStoreFailsInAHandOver(t *testing.T) {
	for n, failed := 1, true; failed; n++ {
		synctest.Test(t, func(t *testing.T) {
			h, b, _ := brittleHarness(t, true)
			if err := h.store.Unset(t.Context(), service, handedKey, "t/"+nodePrefix+"b/1"); err != nil {
				t.Fatal(err)
			}
			late := h.scheduler.late
			task, _ := h.scheduled("t")
			h.send("src", "a", 1, at(-48, 0, 0))
			h.send("src", "a", 1, at(-24, 0, 0))
			handOver := func() error {
				return late.handOver(t.Context(), task, func(_ context.Context, metrics ...string) error {
					if !slices.Equal(metrics, []string{"src"}) {
						t.Errorf("points of %q are waited for", metrics)
					}
					return b.call()
				})
			}
			b.arm(n)
			err := handOver()
			if failed = b.disarm(); failed != errors.Is(err, errBrittle) {
				t.Errorf("call %d failed: %v, and the error is %v", n, failed, err)
			}
			if err := handOver(); err != nil {
				t.Error(err)
			}
			handed := map[downsample.Span]bool{}
			for name := range h.store.Keys(t.Context(), service, handedKey, "t/") {
				all, err := late.catalogue.late(t.Context(), handedKey, name)
				if err != nil {
					t.Error(err)
				}
				for _, one := range all[firstKey(h, "t")] {
					handed[one] = true
				}
			}
			if want := map[downsample.Span]bool{{FromMS: at(-48, 0, 0), UntilMS: at(-48, 1, 0)}: true, {FromMS: at(-24, 0, 0), UntilMS: at(-24, 1, 0)}: true}; !maps.Equal(handed, want) {
				t.Errorf("call %d failed, and %v are handed over, want %v", n, handed, want)
			}
			for name := range h.store.Keys(t.Context(), service, lateKey, "") {
				t.Errorf("call %d failed, and %s is left under %s", n, name, lateKey)
			}
		})
		if !failed && n < 4 {
			t.Errorf("handing over makes %d calls", n-1)
		}
	}
}

// TestHandingOverIsTriedAgain: if notes of late points could not be handed to another
// node, the next attempt follows soon, not one interval of the task later.
func TestHandingOverIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		all := nodes(t, newRunBook(), s, nil, "a", "b")
		defer stopAll(all)
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		time.Sleep(30 * time.Minute)
		all[1].send("src", "a", 5, at(-48, 0, 1))
		_, due := all[1].scheduled("t")
		time.Sleep(time.Until(due) - time.Second)
		all[1].link.setCut(true)
		time.Sleep(2 * time.Second)
		all[1].link.setCut(false)
		handed := func() (n int) {
			for range s.Keys(t.Context(), service, handedKey, "t/"+nodePrefix+"b") {
				n++
			}
			return n
		}
		if n := handed(); n != 0 {
			t.Fatalf("%d lists were handed over a link that was cut", n)
		}
		time.Sleep(DefaultConfig().RetryInterval)
		if n := handed(); n != 1 {
			t.Errorf("%d lists were handed over", n)
		}
		all[1].scheduler.mu.Lock()
		defer all[1].scheduler.mu.Unlock()
		if n := all[1].scheduler.mu.jobs["t"].unhanded.over(); n != 0 {
			t.Errorf("%d failures still count: the next one would not be logged", n)
		}
	})
}

// TestStoreFailsBesideKairosDB: a node that cannot find out whether a KairosDB node is
// running runs nothing.
func TestStoreFailsBesideKairosDB(t *testing.T) {
	for n, failed := 1, true; failed; n++ {
		synctest.Test(t, func(t *testing.T) {
			b := newBrittle(reference.New(nil))
			a := &assignments{values: b, node: "varve-a", host: "a", now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
			for range 2 {
				if err := a.beat(t.Context(), []string{"t"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(claimPause)
			}
			if own, err := a.confirm(t.Context(), "t"); !own || err != nil {
				t.Fatalf("alone, it runs the task: %v, %v", own, err)
			}
			if err := b.Set(t.Context(), hostsService, activeKey, "5f0c", "kairos-1"); err != nil {
				t.Fatal(err)
			}
			b.arm(n)
			own, err := a.confirm(t.Context(), "t")
			if failed = b.disarm(); failed != (err != nil) || own {
				t.Errorf("call %d failed: %v, and it runs the task: %v, %v", n, failed, own, err)
			}
		})
		if !failed && n < 6 {
			t.Errorf("it asks with %d calls", n-1)
		}
	}
}

// TestStoreFailsToTellTheTasks: an import without a server begins only if it knows
// which points are late for which tasks.
func TestStoreFailsToTellTheTasks(t *testing.T) {
	for n, failed := 1, true; failed; n++ {
		synctest.Test(t, func(t *testing.T) {
			h, b, _ := brittleHarness(t, false)
			pipeline, _ := ingesttest.NewPipeline(h.store, nil)
			b.arm(n)
			err := Watch(t.Context(), b, pipeline, h.scheduler.parser, DefaultConfig())
			if failed = b.disarm(); failed != errors.Is(err, errBrittle) {
				t.Errorf("call %d failed: %v, and the error is %v", n, failed, err)
			}
		})
		if !failed && n < 4 {
			t.Errorf("the tasks are read with %d calls", n-1)
		}
	}
}

// A store that is opened after the start causes no log line. Each part that
// needs the store logs once if it stays unavailable.
func TestStoreThatComesLater(t *testing.T) {
	for away, want := range map[time.Duration]int{5 * time.Second: 0, 35 * time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			log := &logText{}
			h := &harness{T: t, store: reference.New(nil), node: "n", log: slog.New(slog.NewTextHandler(log, nil))}
			h.front = &late{h.store, time.Now().Add(away)}
			h.restart(nil)
			h.start()
			defer h.stop()
			time.Sleep(away + 30*time.Second)
			if got := strings.Count(log.String(), "level=WARN"); got != want {
				t.Errorf("a store that comes after %v: %d warnings, want %d\n%s", away, got, want, log)
			}
		})
	}
}

// A late store has no key-values before a given time.
type late struct {
	*reference.Store
	from time.Time
}

func (l *late) away() error {
	if time.Now().Before(l.from) {
		return &store.UnavailableError{Reason: "the keyspace is not open yet"}
	}
	return nil
}

func (l *late) Modified(ctx context.Context, service, key string) (time.Time, error) {
	if err := l.away(); err != nil {
		return time.Time{}, err
	}
	return l.Store.Modified(ctx, service, key)
}

func (l *late) Set(ctx context.Context, service, key, name, text string) error {
	if err := l.away(); err != nil {
		return err
	}
	return l.Store.Set(ctx, service, key, name, text)
}
