package local

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/timeline"
)

func BenchmarkPut(b *testing.B) {
	for _, c := range []struct{ batch, writers int }{{1, 64}, {1000, 1}, {1000, 4}} {
		b.Run(fmt.Sprintf("batch=%d/writers=%d", c.batch, c.writers), func(b *testing.B) {
			s, err := Open(vfs.Default, b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.SetHistory(b.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
				b.Fatal(err)
			}
			var at atomic.Int64
			data := make([]byte, 200)
			for i := range data {
				data[i] = byte(i * 31)
			}
			b.SetParallelism((c.writers + 1) / 2)
			start := time.Now()
			b.RunParallel(func(p *testing.PB) {
				batch := make([]timeline.Placed, c.batch)
				for p.Next() {
					for i := range batch {
						n := at.Add(1)
						batch[i] = timeline.Placed{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: timeline.Event{Time: n, ID: fmt.Sprintf("%020d", n), Data: data}}, Fresh: true}
					}
					if err := s.Put(b.Context(), batch); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.N*c.batch)/time.Since(start).Seconds(), "events/s")
		})
	}
}
