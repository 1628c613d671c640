package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/admin"
)

// Each limit is met over HTTP: the request that goes beyond it is refused with a
// text that names the limit, and the one within it is answered.
func TestLimits(t *testing.T) {
	p := start(t, t.TempDir(),
		"--query-max-series=50", "--query-max-samples=900", "--query-max-memory=40KiB", "--tune=kairos.max_query_size=2KiB",
		"--tune=kairos.max_value_size=1KiB", "--ingest-max-series=120", "--ingest-max-tags=3", "--tune=ingest.max_metric_bytes=20",
		"--tune=ingest.max_tag_name_bytes=10", "--ingest-max-tag-value-bytes=15", "--tune=ingest.max_string_bytes=30",
		"--tune=ingest.max_body_bytes=64KiB", "--tune=transfer.max_line=2KiB", "--tune=rollups.max_tasks=1", "--tune=rollups.max_task_size=1KiB")
	const points, query = "/api/v1/datapoints", "/api/v1/datapoints/query"
	var many, more []string
	for i := range 60 {
		many = append(many, fmt.Sprintf(`{"name":"many","tags":{"id":"%d"},"datapoints":[[1,1]]}`, i))
	}
	for i := range 100 {
		more = append(more, fmt.Sprintf(`{"name":"culprit","tags":{"id":"%d"},"datapoints":[[1,1]]}`, i))
	}
	values := make([]string, 1000)
	for i := range values {
		values[i] = fmt.Sprintf("[%d,%d.5]", i, i)
	}
	dense := `{"name":"dense","tags":{"a":"b"},"datapoints":[` + strings.Join(values, ",") + `]}`
	ask := func(metric, more string) string {
		return `{"start_absolute":0,"metrics":[{"name":"` + metric + `"` + more + `}]}`
	}
	const task = `{"id":"%s","name":"n","execution_interval":{"value":1,"unit":"hours"},"rollups":[{"save_as":"s","query":{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"sum"}]}]}}]}`
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", points, "[" + strings.Join(many, ",") + "]", 204, ""},
		{"POST", points, "[" + dense + "]", 204, ""},
		{"POST", query, ask("many", ""), 400, "limit query.max_series of 50 reached, at least 60 needed"},
		{"POST", query, ask("many", `,"tags":{"id":["1","2"]}`), 200, ""},
		{"POST", query, ask("dense", ""), 400, "limit query.max_samples of 900 reached, at least"},
		{"POST", query, ask("dense", `,"limit":800`), 200, ""},
		{"POST", query, ask("dense", `,"limit":850,"aggregators":[{"name":"sma","size":800}]`), 200, ""},
		{"POST", query, ask("dense", `,"limit":850,"order":"desc","aggregators":[{"name":"percentile","percentile":0.5,"sampling":{"value":1,"unit":"days"}}]`), 400, "limit query.max_memory of 40960 reached"},
		{"POST", query, ask("m", `,"x":"`+strings.Repeat("x", 2048)+`"`), 400, "limit bytes of a query of 2048 reached, at least"},
		{"POST", "/api/v1/datapoints/delete", ask("m", `,"x":"`+strings.Repeat("x", 2048)+`"`), 400, "limit bytes of a query of 2048"},
		{"POST", "/api/v1/metadata/a/b/c", strings.Repeat("x", 1025), 400, "limit bytes of a metadata value of 1024 reached"},
		{"POST", points, "[" + strings.Join(more, ",") + "]", 400, "limit ingest.max_series of 120 reached, at least 121 needed: new series culprit; most series: "},
		{"POST", points, strings.Replace(many[0], "1,1", "2,2", 1), 204, ""}, // known series go on
		{"POST", points, `{"name":"m","tags":{"a":"1","b":"1","c":"1","d":"1"},"timestamp":1,"value":1}`, 400, "limit ingest.max_tags of 3 reached, at least 4 needed"},
		{"POST", points, `{"name":"` + strings.Repeat("m", 21) + `","tags":{"a":"1"},"timestamp":1,"value":1}`, 400, "limit bytes of a metric name of 20 reached, at least 21"},
		{"POST", points, `{"name":"m","tags":{"` + strings.Repeat("a", 11) + `":"1"},"timestamp":1,"value":1}`, 400, "limit bytes of a tag name of 10"},
		{"POST", points, `{"name":"m","tags":{"a":"` + strings.Repeat("1", 16) + `"},"timestamp":1,"value":1}`, 400, "limit ingest.max_tag_value_bytes of 15"},
		{"POST", points, `{"name":"dense","tags":{"a":"b"},"timestamp":1,"value":"` + strings.Repeat("v", 31) + `"}`, 400, "limit bytes of a string value of 30"},
		{"POST", points, "[" + strings.Repeat(" ", 64<<10) + "]", 400, "limit bytes of a body of 65536"},
		{"POST", "/api/v1/import", strings.Repeat("x", 3000) + "\n" + dense[:strings.Index(dense, "]")] + "]]}\n", 400, "line 1: limit bytes of a line of an import of 2048"},
		{"POST", "/api/v1/rollups", strings.Replace(fmt.Sprintf(task, "a"), "sum", strings.Repeat("s", 1024), 1), 400, "limit bytes of a roll-up task of 1024"},
		{"POST", "/api/v1/rollups", fmt.Sprintf(task, "a"), 200, ""},
		{"POST", "/api/v1/rollups", fmt.Sprintf(task, "b"), 400, "limit roll-up tasks of 1 reached, at least 2"},
		{"GET", "/api/v1/metricnames?filter=id=1", "", 200, "many"},
		{"GET", "/api/v1/tagvalues?metric=many&tag=id&start=0", "", 400, "limit query.max_series of 50"},
	} {
		status, body := p.do(tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %.60s: %d %.300s\nwant %d %s", tc.method, tc.path, tc.body, status, body, tc.status, tc.want)
		}
	}

	// Who makes the series is told.
	_, body := p.do("GET", "/admin/cardinality?limit=2", "")
	var c admin.CardinalityAnswer
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	if c.Totals.Series < 110 || c.TopMetrics[0].Metric != "many" || c.TopTags[0].Tag != "id" || c.TopTagValues[0].Tag == "" ||
		c.Growth.Recent < 110 || len(c.TopMetrics) != 2 || c.Growth.TopRecent[0].Metric != "many" {
		t.Errorf("%s", body)
	}
	p.stop(os.Interrupt)
}

// TestCulpritOverCassandra: over Cassandra, too, the error of a limit of series and
// /admin/cardinality name the metric that makes them.
func TestCulpritOverCassandra(t *testing.T) {
	p := start(t, t.TempDir(), "--store=cassandra", "--cassandra-hosts=127.0.0.1:1", "--ingest-max-series=3")
	var batch []string
	for i := range 5 {
		batch = append(batch, fmt.Sprintf(`{"name":"storm","tags":{"id":"%d"},"datapoints":[[1,1]]}`, i))
	}
	status, body := p.do("POST", "/api/v1/datapoints", "["+strings.Join(batch, ",")+"]")
	if want := "at least 4 needed: new series storm; most series: storm (3); see /admin/cardinality"; status != 400 || !strings.Contains(body, want) {
		t.Errorf("a new series too many: %d %s, want %s", status, body, want)
	}
	status, body = p.do("GET", "/admin/cardinality", "")
	for _, want := range []string{`"totals":{"series":3,`, `"top_metrics":[{"metric":"storm","series":3}]`, `"top_tags":[{"tag":"id","values":3}]`, `"recent":3,"top_recent":[{"metric":"storm","series":3}]`} {
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("GET /admin/cardinality: %d %s, want %s", status, body, want)
		}
	}
	p.stop(os.Interrupt)
}

// New series beyond the rate are refused with 503, and the sender can send again.
// Queries beyond the places wait and are refused with 503.
func TestRates(t *testing.T) {
	p := start(t, t.TempDir(), "--ingest-new-series-per-second=20", "--tune=ingest.new_series_burst=10",
		"--query-max-concurrent=1", "--tune=query.max_queued=1", "--query-max-wait=100ms", "--query-timeout=300ms")
	var batch []string
	for i := range 30 {
		batch = append(batch, fmt.Sprintf(`{"name":"storm","tags":{"id":"%d"},"datapoints":[[1,1]]}`, i))
	}
	body := "[" + strings.Join(batch, ",") + "]"
	status, text := p.do("POST", "/api/v1/datapoints", body)
	if status != 503 {
		t.Errorf("a storm of series: %d %s", status, text)
	}
	for deadline := time.Now().Add(patience); status == 503 && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		status, text = p.do("POST", "/api/v1/datapoints", body)
	}
	if status != 204 {
		t.Fatalf("sent again: %d %s", status, text)
	}
	if _, body := p.do("GET", "/admin/rejected", ""); !strings.Contains(body, "ingest.new_series_per_second") || !strings.Contains(body, "storm") {
		t.Errorf("the culprit is not named: %.500s", body)
	}
	metrics := strings.Repeat(`{"name":"storm"},`, 12_000) + `{"name":"storm"}`
	heavy := `{"start_absolute":0,"metrics":[` + metrics + `]}`
	var wait sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int{}
	// On a busy machine six requests may not meet: more follow until they have.
	for until := time.Now().Add(patience); ; {
		for range 6 {
			wait.Go(func() {
				status, body := p.do("POST", "/api/v1/datapoints/query", heavy)
				mu.Lock()
				defer mu.Unlock()
				seen[status]++
				if status == 400 && !strings.Contains(body, "limit query.timeout of 300 reached") {
					t.Errorf("%.200s", body)
				}
			})
		}
		wait.Wait()
		if seen[503] >= 3 && seen[400]+seen[200] >= 1 || time.Now().After(until) {
			break
		}
	}
	if seen[503] < 3 || seen[400]+seen[200] < 1 || len(seen) > 3 {
		t.Errorf("statuses %v", seen)
	}
	if status, body := p.do("POST", "/api/v1/datapoints/query", `{"start_absolute":0,"metrics":[{"name":"storm"}]}`); status != 200 {
		t.Errorf("afterwards: %d %s", status, body)
	}
	p.stop(os.Interrupt)
}
