package local

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/timeline"
)

// noise returns data of 200 bytes that does not shrink much.
func noise(random *rand.Rand) []byte {
	data := make([]byte, 200)
	for i := range data {
		data[i] = "0123456789abcdef"[random.IntN(16)]
	}
	return data
}

func benchEngine(b testing.TB, o Options) (*Shelf, *timeline.Engine) {
	s, err := Open(vfs.Default, b.TempDir(), o)
	if err != nil {
		b.Fatal(err)
	}
	e, err := timeline.Open(s, timeline.Options{Upkeep: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		e.Close()
		s.Close()
	})
	return s, e
}

// BenchmarkAppend appends events of 200 bytes through the engine, each request durable when
// it is answered.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct {
		batch, writers int
		ids            bool
	}{{1, 128, false}, {1000, 1, false}, {1000, 8, false}, {1000, 8, true}} {
		b.Run(fmt.Sprintf("batch=%d/writers=%d/ids=%v", c.batch, c.writers, c.ids), func(b *testing.B) {
			s, e := benchEngine(b, Options{})
			benchAppend(b, e, c.batch, c.writers, c.ids)
			b.ReportMetric(write(s.db.Metrics()), "written/put")
		})
	}
}

func write(m *pebble.Metrics) float64 {
	total := m.Total()
	return total.WriteAmp()
}

func benchAppend(b *testing.B, e *timeline.Engine, batch, writers int, ids bool) {
	data := noise(rand.New(rand.NewPCG(1, 2)))
	var count atomic.Int64
	b.SetParallelism(max(1, writers/2))
	b.SetBytes(int64(200 * batch))
	start := time.Now()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		events := make([]timeline.Addressed, batch)
		for p.Next() {
			for i := range events {
				n := count.Add(1)
				events[i] = timeline.Addressed{Event: timeline.Event{Time: start.UnixMicro() + n, Data: data}, Timelines: []string{"t"}}
				if ids {
					events[i].ID = fmt.Sprintf("%016d", n)
				}
			}
			if r, err := e.Append(b.Context(), events); err != nil || r.Accepted != batch {
				b.Errorf("%+v, %v", r.Rejected[:min(1, len(r.Rejected))], err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}

var large = flag.Int("events", 100_000, "size of the timeline of TestGrowth; 100000000 needs 30 GB of disk")

// TestGrowth: neither appending nor reading the newest page becomes slower as a timeline
// grows. It prints a table; the bounds are wide, since the machine may be busy.
func TestGrowth(t *testing.T) {
	s, e := benchEngine(t, Options{})
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Now().Add(-24 * time.Hour).UnixMicro()
	steps := 5
	var pages []time.Duration
	for step := range steps {
		n := *large / steps
		from := time.Now()
		for done := 0; done < n; {
			events := make([]timeline.Addressed, min(2000, n-done))
			for i := range events {
				at := begin + int64(step*n+done+i)*86_400_000_000/int64(*large)
				events[i] = timeline.Addressed{Event: timeline.Event{Time: at, Data: noise(random)}, Timelines: []string{"t"}}
			}
			if r, err := e.Append(t.Context(), events); err != nil || r.Accepted != len(events) {
				t.Fatal(r.Rejected, err)
			}
			done += len(events)
		}
		rate := float64(n) / time.Since(from).Seconds()
		var all []time.Duration
		for range 200 {
			from := time.Now()
			p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{"t"}})
			if all = append(all, time.Since(from)); err != nil || len(p.Events) != 100 {
				t.Fatal(len(p.Events), err)
			}
		}
		slices.Sort(all)
		pages = append(pages, all[100])
		t.Logf("%9d events: %7.0f events/s, newest page of 100 p50 %v p99 %v, written %.1f times", (step+1)*n, rate, all[100], all[198], write(s.db.Metrics()))
	}
	if last, first := pages[steps-1], pages[0]; last > 20*first && last > 20*time.Millisecond {
		t.Errorf("the newest page took %v at first and %v at last", first, last)
	}
}
