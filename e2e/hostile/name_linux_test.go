package hostile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// longNames returns series whose names never repeat, with values of 4 KiB: megabytes of
// names from kilobytes of gzip.
func longNames(from, series, tags int) []byte {
	fill := strings.Repeat("v", 4000)
	var b bytes.Buffer
	for i := range series {
		fmt.Fprintf(&b, `,{"name":"long","timestamp":1700000000000,"value":%d,"tags":{"t":"%d"`, i, i)
		for k := range tags {
			fmt.Fprintf(&b, `,"t%d":"%d %d%s"`, k, from+i, k, fill)
		}
		b.WriteString("}}")
	}
	b.WriteString("]")
	b.Bytes()[0] = '['
	return packed(b.Bytes())
}

// New series with long names take the memory that they may, and no more after the
// next start. What is valid beside them is stored.
func TestLongNames(t *testing.T) {
	const most = 16 * mib
	flag := fmt.Sprint("--ingest-max-series-memory=", most)
	w := guard(t, flag)
	bodies := [][]byte{longNames(0, 100, 15), longNames(100, 50, 60), longNames(200, 100, 15), longNames(300, 10, 60)}
	w.under(bombMemory, func(ctx context.Context) {
		crowd(2, func(i int) {
			for k := i; k < len(bodies); k += 2 {
				status, answer, err := w.post(ctx, "/api/v1/datapoints", bodies[k], true, time.Minute)
				w.blames(status, answer, err)
			}
		})
	})
	status, answer, err := w.post(t.Context(), "/api/v1/datapoints", longNames(10_000, 10, 15), true, time.Minute)
	if err != nil || status != http.StatusBadRequest || !strings.Contains(string(answer), fmt.Sprintf("limit ingest.max_series_memory of %d reached", most)) {
		t.Errorf("new series: %d %.300s, %v", status, answer, err)
	}
	w.Kill()
	w.again()
	if took := w.memory("VmHWM") - w.base; took > 4*most {
		t.Errorf("after a kill and a start the process takes %d MiB", took/mib)
	}
	w.round(t.Context())
	w.judge(4 * most)
}

// Series with tags that nobody has sent before take hundreds of times the memory of a point in the index, and far longer than a
// point. Senders of very many of them at once, in small packed bodies, keep nobody waiting, and do not exceed
// ingest.max_series_memory by much.
func TestNewTags(t *testing.T) {
	w := guard(t, "--ingest-max-series-memory=64MiB")
	const series, tags = 1500, 60
	body := func(i int) []byte {
		var b bytes.Buffer
		for n := range series {
			fmt.Fprintf(&b, `,{"name":"m","timestamp":1,"value":1,"tags":{"host":"b"`)
			for k := range tags {
				fmt.Fprintf(&b, `,"%x":"%x"`, (i*series+n)*tags+k, n)
			}
			b.WriteString("}}")
		}
		b.WriteByte(']')
		text := b.Bytes()
		text[0] = '['
		return packed(text)
	}
	bodies := make([][]byte, 40)
	for i := range bodies {
		bodies[i] = body(i)
	}
	w.under(256*mib, func(ctx context.Context) {
		crowd(len(bodies), func(i int) {
			status, answer, err := w.post(ctx, "/api/v1/datapoints", bodies[i], true, 10*(*attackFor))
			w.blames(status, answer, err)
		})
	})
}
