package clients

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"varve/e2e/process"
)

// total aggregates a metric's points over all time into one.
func total(t *testing.T, s *process.Server, aggregator, metric string) string {
	t.Helper()
	results, err := s.Query(t.Context(), fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q,"aggregators":[{"name":%q,"sampling":{"value":100,"unit":"years"}}]}]}`, metric, aggregator))
	if err != nil || len(results) != 1 || len(results[0].Values) != 1 {
		t.Fatalf("%s of %s: %v, %v", aggregator, metric, results, err)
	}
	return string(results[0].Values[0][1])
}

// wantNames compares all metric names of the server.
func wantNames(t *testing.T, s *process.Server, want ...string) {
	t.Helper()
	got, err := s.MetricNames(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("metric names are %q, want %q", got, want)
	}
}

// tagsOf returns the tags of all series of a metric.
func tagsOf(t *testing.T, s *process.Server, metric string) string {
	t.Helper()
	results, err := s.Query(t.Context(), fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q}]}`, metric))
	if err != nil || len(results) != 1 {
		t.Fatalf("%s: %d results, %v", metric, len(results), err)
	}
	return fmt.Sprint(results[0].Tags)
}

// rejected returns the number of inputs that were refused for a reason.
func rejected(t *testing.T, s *process.Server) map[string]float64 {
	t.Helper()
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for labelled, v := range m {
		if name, labels, _ := strings.Cut(labelled, "{"); name == "varve_ingest_rejected_total" && v > 0 {
			counts[labels[:len(labels)-1]] = v
		}
	}
	return counts
}

// TestMicrometer publishes two steps, and the rest at its end. All measurements
// arrive, except the metric with an empty tag value, which is refused; the
// other metrics of the same requests are stored.
func TestMicrometer(t *testing.T) {
	process.SkipShort(t)
	for _, c := range []struct {
		mode, path, protocol string
		counting             string // what makes a whole of the points of a counter
		requests, latencies  string
		uri                  string // what a tag becomes
		others               []string
	}{
		{"micrometer-kairos", "/api/v1/datapoints", "kairosdb_json", "sum", "http_requests", "lat_count", "/a b?x_1",
			[]string{"queue_size", "payload_count", "payload_sum", "payload_avg", "payload_max", "lat_sum", "lat_avg", "lat_max"}},
		{"micrometer-opentsdb", "/api/put", "opentsdb_json", "max", "http_requests_total", "lat_duration_seconds_count", "/a b?x=1",
			[]string{"queue_size", "payload_count", "payload_sum", "payload_max", "lat_duration_seconds_sum", "lat_duration_seconds_max"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			args := javaArgs(t)
			s := process.Start(t, t.TempDir())
			run(t, nil, "java", append(args, c.mode, "http://"+s.HTTP+c.path)...)
			wantNames(t, s, append(c.others, c.requests, c.latencies)...)
			got := fmt.Sprintf("%s requests, %s latency, size %s", total(t, s, c.counting, c.requests), total(t, s, c.counting, c.latencies), total(t, s, "max", "queue_size"))
			if want := "6 requests, 1 latency, size 1.5"; got != want {
				t.Errorf("there are %s, want %s", got, want)
			}
			if got, want := tagsOf(t, s, c.requests), "map[dc:[a] host:[h 1] status:[200] uri:["+c.uri+"]]"; got != want {
				t.Errorf("tags of %s are %s, want %s", c.requests, got, want)
			}
			steps := countPoints(t, s, c.requests)
			want := fmt.Sprintf(`map[protocol=%q,reason="bad_tag":%d]`, c.protocol, steps)
			if got := fmt.Sprint(rejected(t, s)); got != want || steps < 2 {
				t.Errorf("in %d steps there were refused %s, want %s", steps, got, want)
			}
			s.Stop(t)
		})
	}
}

// TestMetrics4j reports counters by the telnet sink.
func TestMetrics4j(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	s := process.Start(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "metrics4j.conf")
	if err := os.WriteFile(config, []byte(s.Documented(t, root, "hocon-metrics4j")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, "java", append(javaArgs(t, "-DMETRICS4J_CONFIG="+config), "metrics4j")...)
	// The blank in a tag makes its line in each report invalid, and no other
	// line.
	err := process.Until(t.Context(), "points of metrics4j", func() (bool, error) {
		refused := rejected(t, s)[`protocol="telnet",reason="bad_tag"`]
		return refused > 0 && countPoints(t, s, "app.served.count") == 2*int(refused), nil
	})
	if err != nil {
		t.Error(err, rejected(t, s))
	}
	wantNames(t, s, "app.served.count")
	if got, want := total(t, s, "max", "app.served.count")+" "+tagsOf(t, s, "app.served.count"), "15 map[host:[h1 h2] path:[/a]]"; got != want {
		t.Errorf("the largest count and the tags are %s, want %s", got, want)
	}
	s.Stop(t)
}

// TestKairosJavaTelnet tests the Java client's telnet side. Text that it does
// not quote makes a line invalid, but does not cost the connection.
func TestKairosJavaTelnet(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	s := process.Start(t, t.TempDir())
	host, port := process.HostPort(t, s.Telnet)
	run(t, nil, "java", append(javaArgs(t), "telnet", host, port)...)
	err := process.Until(t.Context(), "points of the telnet client", func() (bool, error) {
		return countPoints(t, s, "telnet.last") == 1, nil
	})
	if err != nil {
		t.Error(err)
	}
	wantNames(t, s, "telnet.putm", "telnet.put", "telnet.last")
	answer, err := s.Want(t.Context(), http.StatusOK, "POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"telnet.putm"},{"name":"telnet.put"}]}`)
	want := `{"queries":[{"sample_size":3,"results":[{"name":"telnet.putm","group_by":[{"name":"type","type":"number"}],"tags":{"city":["Zürich"],"host":["a"]},"values":[[1700000000000,10],[1700000000001,1.5],[1700000000002,-3]]}]},
		{"sample_size":1,"results":[{"name":"telnet.put","group_by":[{"name":"type","type":"number"}],"tags":{"host":["a"]},"values":[[1700000000003,7]]}]}]}`
	if err != nil || !sameJSON(t, string(answer), want) {
		t.Errorf("there is %s, want %s (%v)", answer, want, err)
	}
	want = `map[protocol="telnet",reason="bad_tag":1 protocol="telnet",reason="bad_value":1]`
	err = process.Until(t.Context(), "refused points of the telnet client", func() (bool, error) { // counted after the points are there
		return fmt.Sprint(rejected(t, s)) == want, nil
	})
	if err != nil {
		t.Errorf("%v: refused were %v, want %s", err, rejected(t, s), want)
	}
	s.Stop(t)
}
