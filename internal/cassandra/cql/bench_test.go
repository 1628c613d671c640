package cql_test

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// cpu is the time that this process has computed.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBatch writes samples as KairosDB's tables have them, and reads them
// back; what counts is our own time, the server's is not measured.
func BenchmarkBatch(b *testing.B) {
	s := cqltest.Keyspace(b, cqltest.Config(originals.Cassandra(b)), cql.Options{})
	cqltest.Must(b, s, table)
	for _, size := range []int{10, 60, 300} {
		entries := make([]cql.Entry, size)
		key := make([]byte, 60)
		for i := range entries {
			value := binary.BigEndian.AppendUint64(nil, uint64(i)*0x0123456789abcdef)
			entries[i] = cql.Entry{Statement: insertTTL, Args: []any{key, binary.BigEndian.AppendUint32(nil, uint32(i)*10000), value, make([]byte, 4)}}
		}
		b.Run(fmt.Sprintf("write/rows=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			start := cpu(b)
			for i := range b.N {
				binary.BigEndian.PutUint64(key, uint64(i))
				if err := s.Batch(b.Context(), 1000, entries); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu(b)-start)/float64(b.N*size), "cpu-ns/sample")
		})
	}
	page := &cql.Statement{Name: "read", Text: "SELECT column1, value FROM t WHERE key = ?", PageSize: 5000}
	key := make([]byte, 60)
	binary.BigEndian.PutUint64(key, 1<<60)
	for from := 0; from < 10000; from += 1000 {
		var entries []cql.Entry
		for i := range 1000 {
			entries = append(entries, cql.Entry{Statement: insert, Args: []any{key, binary.BigEndian.AppendUint32(nil, uint32(from+i)), []byte("8 bytes.")}})
		}
		if err := s.Batch(b.Context(), 1000, entries); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("read/rows=10000", func(b *testing.B) {
		b.ReportAllocs()
		start := cpu(b)
		for range b.N {
			rows := s.Query(b.Context(), page, key)
			var column, value cql.Raw
			n := 0
			for rows.Scan(&column, &value) {
				n++
			}
			if err := rows.Close(); err != nil || n != 10000 {
				b.Fatal(n, err)
			}
		}
		b.ReportMetric(float64(cpu(b)-start)/float64(b.N*10000), "cpu-ns/sample")
	})
}
