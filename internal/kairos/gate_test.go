package kairos

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/httpapi"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// Excluded classes answer 403, the others as usual; a query with save_as writes,
// whatever its path.
func TestServerType(t *testing.T) {
	st := reference.New(nil)
	defer st.Close()
	for serverType, open := range map[string]string{
		"ALL": "QUERY DELETE INGEST", "QUERY": "QUERY", "DELETE , QUERY": "QUERY DELETE", "INGEST": "INGEST", "QUERY,INGEST": "QUERY INGEST",
	} {
		c := DefaultConfig()
		c.ServerType = serverType
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		saves := saverFunc(0)
		engine := agg.New(query.New(st, query.DefaultConfig(), prometheus.NewRegistry(), time.Now), &saves)
		mux := http.NewServeMux()
		for _, r := range c.Gate(New(st, engine, c, "", time.Now).Routes()) {
			mux.Handle(r.Method+" "+r.Path, r.Handler)
		}
		const save = `{"start_absolute":0,"metrics":[{"name":"m","aggregators":[{"name":"save_as","metric_name":"x"}]}]}`
		for _, tc := range []struct{ method, path, body, classes string }{
			{"GET", "/api/v1/metricnames", "", "QUERY"},
			{"OPTIONS", "/api/v1/metricnames", "", "QUERY"},
			{"POST", "/api/v1/datapoints/query", `{"metrics":[]}`, "QUERY"},
			{"POST", "/api/v1/datapoints/query", save, "QUERY INGEST"},
			{"POST", "/api/v1/datapoints/query/tags", `{"metrics":[]}`, "QUERY"},
			{"POST", "/api/v1/datapoints/delete", `{"start_absolute":1,"metrics":[{"name":"none"}]}`, "DELETE"},
			{"DELETE", "/api/v1/metric/none", "", "DELETE"},
			{"GET", "/api/v1/datapoints/index", "", "INGEST"},
			{"GET", "/api/v1/version", "", ""},
			{"GET", "/api/v1/admin/runningqueries", "", ""},
		} {
			refused := ""
			for class := range strings.FieldsSeq(tc.classes) {
				if refused == "" && !strings.Contains(open, class) {
					refused = class
				}
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body)))
			want := `{"errors":["Forbidden: ` + refused + ` API methods are disabled on this KairosDB instance."]}`
			switch {
			case refused == "" && w.Code >= 400:
				t.Errorf("%s: %s %s: %d %s", serverType, tc.method, tc.path, w.Code, w.Body)
			case refused != "" && (w.Code != 403 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json"):
				t.Errorf("%s: %s %s: %d %s, want %s", serverType, tc.method, tc.path, w.Code, w.Body, want)
			}
		}
	}
	for _, bad := range []string{"", "query", "ALL,", "ALL;QUERY"} {
		c := DefaultConfig()
		c.ServerType = bad
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "kairos.server_type") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A query that writes is refused by GET and HEAD, and from a page that may only read.
func TestSaveAsNeedsAPost(t *testing.T) {
	s := startServer(t)
	const text = `{"start_absolute":0,"metrics":[{"name":"m","aggregators":[{"name":"save_as","metric_name":"copy"}]}]}`
	for _, method := range []string{"GET", "HEAD"} {
		resp, body := s.do(t, method, queryPath+"?query="+url.QueryEscape(text), "")
		if resp.StatusCode != 400 || method == "GET" && !strings.Contains(body, "by POST") {
			t.Errorf("%s: %d %s", method, resp.StatusCode, body)
		}
	}
	if resp, body := s.do(t, "POST", queryPath, text); resp.StatusCode != 200 {
		t.Errorf("POST: %d %s", resp.StatusCode, body)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", queryPath, strings.NewReader(text))
	s.api.serve(s.api.postQuery)(w, r.WithContext(httpapi.WithReadOnly(r.Context())))
	if w.Code != 403 {
		t.Errorf("a page that may only read: %d %s", w.Code, w.Body)
	}
}
