package kairos

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/ingest/kairosjson"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// save_as keeps kinds, lets the later of two points of one time win, and reports
// faults.
func TestSaveAs(t *testing.T) {
	s := startServer(t)
	post := func(path, body string) (int, string) {
		t.Helper()
		resp, got := s.do(t, "POST", path, body)
		return resp.StatusCode, got
	}
	post("/api/v1/datapoints", `[{"name":"m","tags":{"h":"a","dc":"x"},"datapoints":[[1,5],[2,2.5],[3,"text"],[4,7]]},`+
		`{"name":"m","tags":{"h":"b","dc":"x"},"datapoints":[[4,3]]}]`)
	ask := func(save, more string) (int, string) {
		t.Helper()
		return post(queryPath, `{"start_absolute":0,"metrics":[{"name":"m",`+more+`"aggregators":[{"name":"save_as",`+save+`}]}]}`)
	}
	read := func(name string) string {
		t.Helper()
		_, body := post(queryPath, `{"start_absolute":0,"metrics":[{"name":"`+name+`"}]}`)
		_, values, _ := strings.Cut(body, `"results":`)
		return values
	}
	if status, body := ask(`"metric_name":"all"`, ""); status != 200 || !strings.Contains(body, `[[1,5],[2,2.5],[4,3],[4,7]]`) {
		t.Errorf("%d %s", status, body)
	}
	want := `[{"name":"all","group_by":[{"name":"type","type":"number"}],"tags":{"saved_from":["m"]},"values":[[1,5],[2,2.5],[4,7]]},` +
		`{"name":"all","group_by":[{"name":"type","type":"text"}],"tags":{"saved_from":["m"]},"values":[[3,"text"]]}]}]}`
	if got := read("all"); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	// Group-by tags are kept although the answer excludes tags.
	ask(`"metric_name":"by","tags":{"k":1}`, `"exclude_tags":true,"group_by":[{"name":"tag","tags":["dc"]},{"name":"tag","tags":["h"]}],`)
	if got := read("by"); !strings.Contains(got, `"tags":{"dc":["x"],"k":["1"],"saved_from":["m"]}`) {
		t.Error(got)
	}
	// An old point lives as long as its ttl, counted from now.
	ask(`"metric_name":"old","ttl":500`, "")
	if got := read("old"); got != strings.ReplaceAll(want, `"all"`, `"old"`) {
		t.Error(got)
	}
	for save, want := range map[string]struct {
		status int
		text   string
	}{
		``:                                  {400, "metric_name may not be null or empty"},
		`"metric_name":""`:                  {400, "metric_name may not be null or empty"},
		`"metric_name":"x","ttl":-1`:        {400, "query.metric[0].aggregators[0].ttl must be between 0 and"},
		`"metric_name":"x","tags":{"a":""}`: {400, "the value of tag a is empty"},
		`"metric_name":"x","tags":[]`:       {400, "Expected BEGIN_OBJECT but was BEGIN_ARRAY"},
		`"metric_name":"x","tag":{}`:        {400, "no matching setter was found on 'class org.kairosdb.core.aggregator.SaveAsAggregator'"},
		`"metric_name":"` + strings.Repeat("x", 3000) + `"`: {400, "bytes of a metric name"},
		`"metric_name":"x","tags":{"saved_from":"y"}`:       {500, "Multiple entries with same key: saved_from=y and saved_from=m"},
	} {
		if save != "" {
			save = save + `,"add_saved_from":"true"`
		} else {
			save = `"add_saved_from":true`
		}
		if status, body := ask(save, ""); status != want.status || !strings.Contains(strings.ReplaceAll(body, `\u0027`, "'"), want.text) {
			t.Errorf("%.80s: %d %s", save, status, body)
		}
	}
	// Faults occur only if there are points.
	resp, body := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"none","aggregators":[{"name":"save_as"}]}]}`)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestSaveAsOfACustomType: points say of which kind they are, not of which type. Without a type
// nothing of them is stored.
func TestSaveAsOfACustomType(t *testing.T) {
	recorder := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(recorder, nil)
	err := NewSaver(p).Save(t.Context(), agg.Target{Metric: "copy", Tags: []model.Tag{{Name: "h", Value: "a"}}},
		[]agg.Point{{TimeMS: 1, Kind: model.Long, Bits: 5}, {TimeMS: 2, Kind: model.Custom, Data: []byte{1}}})
	if !errors.As(err, new(*store.InputError)) || !strings.Contains(err.Error(), "a type that Varve does not know") {
		t.Errorf("saved with %v", err)
	}
	if samples, _ := recorder.Count(); samples != 0 || ingesttest.Counters(t, reg, "varve_ingest_rejected_total")["save_as,bad_type"] != 2 {
		t.Errorf("%d samples stored, refused %v", samples, ingesttest.Counters(t, reg, "varve_ingest_rejected_total"))
	}
}

// More points than are written at once, over several groups.
func TestSaveAsMany(t *testing.T) {
	s := startServerWith(t, reference.New(nil), query.DefaultConfig(), DefaultConfig())
	s.fill(t, 3, 2500)
	s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":["h"]}],`+
		`"aggregators":[{"name":"scale","factor":2},{"name":"save_as","metric_name":"twice"}]}]}`)
	_, body := s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"twice","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"days"}}]}]}`)
	sum := 3 * 0.5 * 2499 * 2500 / 2
	if want := fmt.Sprintf(`{"queries":[{"sample_size":7500,"results":[{"name":"twice","group_by":[{"name":"type","type":"number"}],`+
		`"tags":{"h":["0","1","2"],"saved_from":["m"]},"values":[[0,%v]]}]}]}`, sum); body != want && !strings.Contains(body, `"values":[[0,4685625]]`) {
		t.Errorf("%s\nwant %s", body, want)
	}
}

// A query that saves its points more than once is bounded by query.max_samples, like
// one that reads them.
func TestSavedPointsAreBounded(t *testing.T) {
	config := query.DefaultConfig()
	config.MaxSamples = 10
	s := startServerWith(t, openEmbedded(t), config, DefaultConfig())
	s.do(t, "POST", "/api/v1/datapoints", `[{"name":"m","tags":{"h":"a"},"datapoints":[[1,5],[2,2.5],[3,1],[4,7]]}]`)
	ask := func(saves int) (*http.Response, string) {
		t.Helper()
		var steps []string
		for i := range saves {
			steps = append(steps, fmt.Sprintf(`{"name":"save_as","metric_name":"copy%d"}`, i))
		}
		return s.do(t, "POST", queryPath, `{"start_absolute":0,"metrics":[{"name":"m","aggregators":[`+strings.Join(steps, ",")+`]}]}`)
	}
	if resp, body := ask(2); resp.StatusCode != 200 {
		t.Errorf("8 points saved: %d %s", resp.StatusCode, body)
	}
	resp, body := ask(3)
	if resp.StatusCode != 400 || !strings.Contains(body, "limit query.max_samples of 10 reached, at least 12 needed: points that save_as stores") {
		t.Errorf("12 points saved: %d %s", resp.StatusCode, body)
	}
}

// The metadata API refuses names that are too long to keep, before it stores
// anything.
func TestMetadataNamesAreBounded(t *testing.T) {
	s := startServer(t)
	fits, long := strings.Repeat("n", maxMetadataName), strings.Repeat("n", maxMetadataName+1)
	if resp, body := s.do(t, "POST", "/api/v1/metadata/"+fits+"/"+fits+"/"+fits, "text"); resp.StatusCode != 204 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for path, what := range map[string]string{
		long + "/a/b": "service nnn", "a/" + long + "/b": "service key nnn", "a/b/" + long: "key nnn",
	} {
		resp, body := s.do(t, "POST", "/api/v1/metadata/"+path, "text")
		if want := "limit bytes of a metadata name of 1024 reached, at least 1025 needed: " + what; resp.StatusCode != 400 || !strings.Contains(body, want) || len(body) > 500 {
			t.Errorf("%.20s: %d %s, want %s", path, resp.StatusCode, body, want)
		}
	}
	if _, body := s.do(t, "GET", "/api/v1/metadata/a", ""); body != `{"results":[]}` {
		t.Error(body)
	}
}

// TestSaveAsWaitsForNewSeries: a query whose save_as makes more new series than may come at once gets
// what a write gets, 503 and when to come back, also where a part of an answer would do. Sent again, it
// continues with those that are stored.
func TestSaveAsWaitsForNewSeries(t *testing.T) {
	clock := time.UnixMilli(1_700_000_000_000)
	now := func() time.Time { return clock }
	st := openEmbedded(t)
	t.Cleanup(func() { st.Close() })
	config := ingest.DefaultConfig()
	config.NewSeriesPerSecond, config.NewSeriesBurst = 1, 8
	p := ingest.New(st, config, ingest.Options{Registerer: prometheus.NewRegistry(), Now: now})
	t.Cleanup(p.Close)
	api := New(st, agg.New(query.New(st, query.DefaultConfig(), prometheus.NewRegistry(), now), NewSaver(p)), DefaultConfig(), "", now)
	mux := http.NewServeMux()
	for _, r := range slices.Concat(api.Routes(), kairosjson.New(p, nil).Routes()) {
		mux.Handle(r.Method+" "+r.Path, r.Checked())
	}
	send := func(path, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
		return w
	}
	if w := send("/api/v1/datapoints", `[{"name":"m","timestamp":1,"value":1,"tags":{"h":"a"}},{"name":"m","timestamp":1,"value":2,"tags":{"h":"b"}},`+
		`{"name":"m","timestamp":1,"value":3,"tags":{"h":"c"}},{"name":"m","timestamp":1,"value":4,"tags":{"h":"d"}},{"name":"m","timestamp":1,"value":5,"tags":{"h":"e"}}]`); w.Code != 204 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	const save = `{"start_absolute":0,"end_absolute":10,"metrics":[{"name":"m","group_by":[{"name":"tag","tags":["h"]}],"aggregators":[{"name":"save_as","metric_name":"copy"}]}]}`
	for _, path := range []string{queryPath, queryPath + "?partial=allow"} {
		w := send(path, save)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "save_as copy: limit ingest.new_series_per_second of 1 reached") {
			t.Errorf("%s: %d, Retry-After %q, %s", path, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
	clock = clock.Add(2 * time.Second)
	if w := send(queryPath, save); w.Code != 200 {
		t.Errorf("sent again: %d %s", w.Code, w.Body)
	}
	if w := send(queryPath, `{"start_absolute":0,"end_absolute":10,"metrics":[{"name":"copy"}]}`); !strings.Contains(w.Body.String(), `"sample_size":5`) {
		t.Errorf("stored: %s", w.Body)
	}
}
