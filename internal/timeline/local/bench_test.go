package local

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
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

var large = flag.Int("events", 100_000, "size of the timeline of TestGrowth; 100000000 needs 40 GB of disk and -timeout 3h")

// TestGrowth: neither appending nor reading a page at either end becomes slower as a timeline
// grows, nor does memory grow with it. It prints a table; the bounds are wide, since the
// machine may be busy.
func TestGrowth(t *testing.T) {
	s, e := benchEngine(t, Options{})
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Now().Add(-24 * time.Hour).UnixMicro()
	steps := 5
	var newest, oldest []time.Duration
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
		n50, n99 := pageTimes(t, e, timeline.Descending)
		o50, o99 := pageTimes(t, e, timeline.Ascending)
		newest, oldest = append(newest, n50), append(oldest, o50)
		m := s.db.Metrics()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		t.Logf("%9d events: %7.0f events/s, pages of 100: newest p50 %v p99 %v, oldest p50 %v p99 %v; %.0f bytes an event on disk, written %.1f times; heap %d MiB, process %s, load %s",
			(step+1)*n, rate, n50, n99, o50, o99, float64(m.DiskSpaceUsage())/float64((step+1)*n), write(m), memory.HeapAlloc>>20, residentText(), loadText())
	}
	for what, pages := range map[string][]time.Duration{"newest": newest, "oldest": oldest} {
		if last, first := pages[steps-1], pages[0]; last > 20*first && last > 200*time.Millisecond {
			t.Errorf("the %s page took %v at first and %v at last", what, first, last)
		}
	}
}

// pageTimes reads a page at one end again and again.
func pageTimes(t *testing.T, e *timeline.Engine, d timeline.Direction) (p50, p99 time.Duration) {
	t.Helper()
	var all []time.Duration
	for range 200 {
		from := time.Now()
		p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{"t"}, Order: d})
		if all = append(all, time.Since(from)); err != nil || len(p.Events) != 100 {
			t.Fatal(len(p.Events), err)
		}
	}
	slices.Sort(all)
	return all[100], all[198]
}

// residentText is the memory of this process, where /proc tells it.
func residentText() string {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

// loadText is the load of the machine in the last minute, where /proc tells it.
func loadText() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
