package cassandra

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
	"varve/internal/units"
)

var wide = flag.Int("cassandra.wide", 10_000, "series of the metric in TestWideSelect")

// TestWideSelect: of each series of a wide metric a view holds little beside the row keys
// that are in the cache anyway.
func TestWideSelect(t *testing.T) {
	const rows = 2
	c := clustersConfig(t)
	b := keyspacetest.New(t, schema.DefaultConfig(), c.Keyspace)
	for row := range rows {
		b.FillKeys("wide", keyspacetest.CityTime(row), keyspacetest.CityKeys(0, *wide))
	}
	for _, state := range []string{"cold", "cached"} {
		c.Read.PostingsCacheBytes = 0
		if state == "cached" {
			c.Read.PostingsCacheBytes = 1 * units.GiB
			c.Read.Settle = 0 // what was written a moment ago is kept
		}
		s := openStore(t, c, Options{})
		if err := s.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= rows; n++ {
			for _, any := range []bool{true, false} {
				sel := store.Selection{Metric: "wide", AnyOrder: any, Range: model.TimeRange{StartMS: keyspacetest.CityTime(0), EndMS: keyspacetest.CityTime(n) - 1}}
				if state == "cached" {
					selectWide(t, s, sel)
				}
				peak, held := selectWide(t, s, sel)
				t.Logf("%s, %d row times, any order %v: bytes of a series: at most %d, until the view is closed %d", state, n, any, peak, held)
				if state == "cached" && held > 64 {
					t.Errorf("a view of %d row times holds %d bytes of each series beside the cache", n, held)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// selectWide goes through a selection, and returns how many bytes of heap it takes for
// each series: at most, and at its end.
func selectWide(t *testing.T, s *Store, sel store.Selection) (peak, held int) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // what is garbage does not count for long
	before := heapInUse()
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	most, stop := watchHeap()
	n := 0
	for _, err := range v.Select(t.Context(), sel) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	stop()
	after := heapInUse()
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if n != *wide {
		t.Fatalf("%d series", n)
	}
	return (*most - before) / n, (after - before) / n
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// watchHeap looks at the heap often until stop is called; most is valid then.
func watchHeap() (most *int, stop func()) {
	most = new(int)
	done := make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*most = max(*most, int(m.HeapAlloc))
			select {
			case <-tick.C:
			case <-done:
				tick.Stop()
				return
			}
		}
	})
	return most, func() {
		close(done)
		tasks.Wait()
	}
}

// TestLimitOfWideSpool: of more series in the spool than a selection may have, few more than
// that are looked at.
func TestLimitOfWideSpool(t *testing.T) {
	const n, limit = 5000, 10
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	var b store.Batch
	b.Reset(s.Epoch())
	for i := range n {
		ref, err := s.Create(t.Context(), keyspacetest.LongSeries("wide", "host", fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		b.AddLong(ref, keyspacetest.CityTime(0), 1, 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, any := range []bool{true, false} {
		sel := store.Selection{Metric: "wide", AnyOrder: any, Range: model.AllTime, Limit: limit, LimitKey: "test.max"}
		allocs := testing.AllocsPerRun(1, func() {
			_, err = storetest.Select(t.Context(), v, sel)
		})
		var over *store.LimitError
		if !errors.As(err, &over) || over.Limit != "test.max" || over.Need <= limit || allocs > n/2 {
			t.Errorf("any order %v: %v, %g allocations", any, err, allocs)
		}
	}
}
