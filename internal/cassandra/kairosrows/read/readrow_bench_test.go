package read

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/keyspacetest"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
	"varve/internal/work"
)

// fillRow writes n doubles, one a second, into a finished row of s.
func (b *readBench) fillRow(s model.Series, row Row, n int) {
	b.T.Helper()
	key, err := rowKeyBytes(s, row)
	if err != nil {
		b.T.Fatal(err)
	}
	insert := &cql.Statement{Name: "test", Text: "INSERT INTO data_points (key, column1, value) VALUES (?, ?, ?)"}
	const batch = 500
	err = work.Parallel(b.T.Context(), 8, (n+batch-1)/batch, "fill a row", func(ctx context.Context, i int) error {
		var entries []cql.Entry
		for at := i * batch; at < min(n, (i+1)*batch); at++ {
			column := rowtime.ColumnBytes(b.KS.Spec.Column(row.TimeMS, row.TimeMS+int64(at)*1000))
			value := binary.BigEndian.AppendUint64(nil, 0x4050000000000000+uint64(at%97)<<40)
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{key, column, value}})
		}
		return b.KS.Session.Batch(ctx, b.Stamp, entries)
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// BenchmarkReadRow reads one row, from Cassandra, from packed chunks, and as
// statistics. It needs a node, as the tests do.
func BenchmarkReadRow(bench *testing.B) {
	b := newReadBench(bench, readConfig(), nil)
	row := Row{TimeMS: keyspacetest.CityTime(0)}
	for _, cells := range []int{360, 60_000} {
		s := model.Series{Metric: b.Name("m"), Type: model.TypeDouble, Tags: model.MustTags("cells", fmt.Sprint(cells))}
		b.fillRow(s, row, cells)
		for _, from := range []string{"cassandra", "chunks", "statistics"} {
			bench.Run(fmt.Sprintf("cells=%d/from=%s", cells, from), func(bench *testing.B) {
				o := store.ReadOptions{Range: model.AllTime}
				size := int64(0)
				switch from {
				case "chunks":
					size = 1 << 20
				case "statistics":
					size = 1 << 20
					o.Summarize = &store.Summary{Final: func(int64) int64 { return math.MaxInt64 }, Needs: model.AllStats}
				}
				b.reader.chunks = newChunkCache(size, time.Hour, time.Now, collectors.Named(""))
				read := func() int {
					l := b.reader.Look()
					c := l.ReadRow(bench.Context(), s, row, o)
					defer c.Close()
					n := 0
					for {
						block, err := c.Next()
						if err != nil {
							bench.Fatal(err)
						}
						if block == nil {
							return n
						}
						n += block.Len()
						for _, s := range block.Stats {
							n += s.Count
						}
					}
				}
				read()
				read() // and keeps it
				bench.ReportAllocs()
				for bench.Loop() {
					if n := read(); n != cells {
						bench.Fatalf("%d samples", n)
					}
				}
				bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N*cells), "ns/sample")
				bench.ReportMetric(float64(b.reader.chunks.size()), "cache-bytes")
			})
		}
	}
}
