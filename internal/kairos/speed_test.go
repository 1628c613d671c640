package kairos

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// discard is a client that reads nothing.
type discard struct {
	header http.Header
	bytes  int64
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(int)     {}
func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	return len(p), nil
}

// fillHosts stores gauges of two decimals, a sample every stepMS.
func fillHosts(b *testing.B, s *embedded.Store, metric string, hosts, samples int, stepMS int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	var batch store.Batch
	for h := range hosts {
		ref, err := s.Create(context.Background(), model.Series{
			Metric: metric, Type: model.TypeDouble,
			Tags: model.MustTags("host", fmt.Sprintf("host-%03d", h), "dc", fmt.Sprint("dc", h%4), "rack", fmt.Sprint("r", h%20),
				"os", "linux", "env", "prod", "service", fmt.Sprint("web", h%25)),
		})
		if err != nil {
			b.Fatal(err)
		}
		batch.Reset(s.Epoch())
		v := 50.0
		for i := range samples {
			v = math.Round((v+rng.Float64()-0.5)*100) / 100
			batch.AddDouble(ref, 1_700_000_000_000+int64(i)*stepMS, v, 0)
		}
		if err := s.Append(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAnswer is a query from its JSON to the JSON of its answer, without
// the connection.
func BenchmarkAnswer(b *testing.B) {
	s := openEmbedded(b).(*embedded.Store)
	defer s.Close()
	fillHosts(b, s, "many", 200, 2160, 10_000)
	fillHosts(b, s, "long", 1, 172_800, 1_000)
	if err := s.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	api := New(s, agg.New(query.New(s, query.DefaultConfig(), prometheus.NewRegistry(), time.Now), nil), DefaultConfig(), testVersion, time.Now)
	host := `"tags":{"host":["host-037"]}`
	by := func(name string, minutes int) string {
		return fmt.Sprintf(`"aggregators":[{"name":%q,"align_start_time":true,"sampling":{"value":%d,"unit":"minutes"}}]`, name, minutes)
	}
	for _, c := range []struct {
		name   string
		length time.Duration
		metric string
		points int
	}{
		{"raw/points=360", time.Hour, `"name":"many",` + host, 360},
		{"raw/points=2160", 6 * time.Hour, `"name":"many",` + host, 2160},
		{"raw/points=172800", 48 * time.Hour, `"name":"long"`, 172_800},
		{"avg/points=73", 6 * time.Hour, `"name":"many",` + host + `,` + by("avg", 5), 73},
		{"avg/series=200", 6 * time.Hour, `"name":"many","group_by":[{"name":"tag","tags":["host"]}],` + by("avg", 60), 1400},
		{"last/series=200", 5 * time.Minute, `"name":"many","group_by":[{"name":"tag","tags":["host"]}],` + by("last", 5), 200},
		{"max/series=200", time.Hour, `"name":"many",` + by("max", 1), 61},
	} {
		text := fmt.Sprintf(`{"start_absolute":%d,"end_absolute":%d,"metrics":[{%s}]}`,
			1_700_000_000_000, 1_700_000_000_000+c.length.Milliseconds()-1, c.metric)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			out := &discard{header: http.Header{}}
			for b.Loop() {
				r := &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), RemoteAddr: "test"}
				api.serve(api.postQuery)(out, r)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.points), "ns/point")
			b.ReportMetric(float64(out.bytes)/float64(b.N), "answer-B")
		})
	}
}
