package graphite

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/query"
)

// form sends parameters as a graphite-web with REMOTE_STORE_USE_POST does.
func (s *site) form(path string, parameters url.Values) *httptest.ResponseRecorder {
	s.Helper()
	var body bytes.Buffer
	parts := multipart.NewWriter(&body)
	for name, values := range parameters {
		for _, v := range values {
			if err := parts.WriteField(name, v); err != nil {
				s.Fatal(err)
			}
		}
	}
	parts.Close()
	r := httptest.NewRequest(http.MethodPost, strings.TrimSuffix(path, "/"), &body)
	r.Header.Set("Content-Type", parts.FormDataContentType())
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w
}

// TestClusterServer: a graphite-web with this server in CLUSTER_SERVERS can read its answers, by
// GET and by POST.
func TestClusterServer(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	s.send("a.b 1 1710071400\na.b.c 2 1710071400\na.d 3 1710071400\nm;x=1 4 1710071400\nm;x=2 5 1710071400\n")
	times := "&from=1710071340&until=1710071460&now=1710072000"
	series := func(name, expression string, v float64) string {
		return fmt.Sprintf(`{"consolidationFunc":"average","end":1710071520,"name":%q,"pathExpression":%q,"start":1710071400,"step":60,"values":[%v,null],"valuesPerPoint":1,"xFilesFactor":0}`, name, expression, v)
	}
	found := `[{"is_leaf":false,"path":"a.b"},{"intervals":[[0,1710072000]],"is_leaf":true,"path":"a.b"},{"intervals":[[0,1710072000]],"is_leaf":true,"path":"a.d"}]`
	for _, c := range []struct{ path, parameters, want string }{
		{"/metrics/find/", "local=1&format=pickle&query=a.*", found},
		{"/metrics/find/", "local=0&format=msgpack&query=a.*&from=1710071340&until=1710071460", found},
		{"/metrics/find/", "local=1&format=pickle&query=nosuch.*", `[]`},
		{"/metrics/find/", "local=1&format=msgpack&query=nosuch.*", `[]`},
		{"/metrics/index.json", "local=1", `["a.b","a.b.c","a.d"]`},
		{"/render/", "format=pickle&local=1&noCache=1&target=a.{b,d}&target=a.b.c" + times,
			"[" + series("a.b", "a.{b,d}", 1) + "," + series("a.d", "a.{b,d}", 3) + "," + series("a.b.c", "a.b.c", 2) + "]"},
		{"/render/", "format=msgpack&local=1&noCache=1&target=seriesByTag('name=m', 'x=~.')" + times,
			"[" + series("m;x=1", "seriesByTag('name=m', 'x=~.')", 4) + "," + series("m;x=2", "seriesByTag('name=m', 'x=~.')", 5) + "]"},
		{"/render/", "format=pickle&local=1&noCache=1&target=nosuch" + times, `[]`},
		{"/tags/autoComplete/tags", "tagPrefix=&limit=7&local=1&expr=name=m", `["x"]`},
		{"/tags/autoComplete/values", "tag=x&valuePrefix=&limit=7&local=1&expr=name=m", `["1","2"]`},
		{"/tags/findSeries", "expr=name=m&expr=x=2", `["m;x=2"]`},
	} {
		parameters, err := url.ParseQuery(c.parameters)
		if err != nil {
			t.Fatal(err)
		}
		how, contentType := "json", "application/json"
		if format := parameters.Get("format"); format != "" {
			how, contentType = format, map[string]string{"pickle": "application/pickle", "msgpack": "application/x-msgpack"}[format]
		}
		for method, w := range map[string]*httptest.ResponseRecorder{"GET": s.ask("GET", c.path, parameters), "POST": s.form(c.path, parameters)} {
			answer, err := graphitetest.Decode(how, w.Body.Bytes())
			if err != nil || w.Code != 200 || w.Header().Get("Content-Type") != contentType {
				t.Errorf("%s %s?%s: %d %s, %v: %.300q", method, c.path, c.parameters, w.Code, w.Header().Get("Content-Type"), err, w.Body)
				continue
			}
			if got, _ := json.Marshal(answer); string(got) != c.want {
				t.Errorf("%s %s?%s:\n got %s\nwant %s", method, c.path, c.parameters, got, c.want)
			}
		}
	}
}

// TestTagErrors: a graphite-web that uses this server as its tag database shows its users the
// error in an answer 400.
func TestTagErrors(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	for _, c := range []struct{ path, parameters, want string }{
		{"/tags/findSeries", "expr=nonsense", `{"error":"Invalid tagspec nonsense"}`},
		{"/tags/findSeries", "", `{"error":"no tag expressions specified"}`},
		{"/tags", "filter=(", `{"error":"the filter is not a regular expression: `},
		{"/tags/autoComplete/values", "tag=x&expr=y=~(", `{"error":"Invalid tagspec y=~(`},
		{"/tags/autoComplete/values", "tag=x!", `{"error":"Invalid tagspec x!!="}`},
		{"/tags/autoComplete/values", "tag=x%3By&valuePrefix=z", `{"error":"Invalid tagspec x;y!="}`},
		{"/tags/autoComplete/values", "tag=x!&expr=name%3Dm", `{"error":"Invalid tagspec x!!="}`},
		{"/tags", "limit=x", `{"error":"the limit is not a whole number: \"x\""}`},
		{"/tags/x", "limit=1.5", `{"error":"the limit is not a whole number: \"1.5\""}`},
		{"/tags/autoComplete/tags", "limit=x", `{"error":"the limit is not a whole number: \"x\""}`},
		{"/tags/autoComplete/values", "tag=x&limit=x", `{"error":"the limit is not a whole number: \"x\""}`},
	} {
		parameters, err := url.ParseQuery(c.parameters)
		if err != nil {
			t.Fatal(err)
		}
		w := s.form(c.path, parameters)
		if c.path == "/tags" || c.path == "/tags/x" {
			w = s.ask("GET", c.path, parameters)
		}
		if w.Code != 400 || w.Header().Get("Content-Type") != "application/json" || !strings.HasPrefix(w.Body.String(), c.want) || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %s", c.path, c.parameters, w.Code, w.Body)
		}
	}
}

// TestTagLimits: lists have at most as many entries as the limit, which may be 0.
func TestTagLimits(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	s.send("m;x=1;y=2 1 1710071400\nm;x=2;y=2 1 1710071400\n")
	for _, c := range []struct{ path, limit, want string }{
		{"/tags", "", `[{"tag":"name"},{"tag":"x"},{"tag":"y"}]`},
		{"/tags", "2", `[{"tag":"name"},{"tag":"x"}]`},
		{"/tags", "0", `[]`},
		{"/tags", "-1", `[{"tag":"name"},{"tag":"x"},{"tag":"y"}]`},
		{"/tags/x", " 1", `{"tag":"x","values":[{"value":"1","count":1}]}`},
		{"/tags/x", "0", `{"tag":"x","values":[]}`},
		{"/tags/autoComplete/tags", "0", `[]`},
		{"/tags/autoComplete/tags", "9", `["name","x","y"]`},
		{"/tags/autoComplete/values", "0", `[]`},
		{"/tags/autoComplete/values", "1", `["1"]`},
	} {
		w := s.ask("GET", c.path, url.Values{"limit": {c.limit}, "tag": {"x"}})
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != c.want {
			t.Errorf("%s limit=%s: %d %s; want %s", c.path, c.limit, w.Code, got, c.want)
		}
	}
}

// TestFaultsAreInput: a client's mistake is not counted as a failed query.
func TestFaultsAreInput(t *testing.T) {
	s := open(t, DefaultConfig(), query.DefaultConfig())
	for path, form := range map[string]url.Values{
		"/render":          {"target": {"nosuch(a)"}, "format": {"json"}},
		"/tags/findSeries": {"expr": {"nonsense"}},
	} {
		if w := s.ask(http.MethodGet, path, form); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if got := ingesttest.Counters(t, s.registry, "varve_query_queries_total"); got["input"] != 2 || got["failed"] != 0 {
		t.Errorf("counted %v", got)
	}
}

// TestManyTags: a list of tags has all pages, counts as memory, and a filter makes it smaller.
func TestManyTags(t *testing.T) {
	const tags = 2*tagPage + 1
	limits := query.DefaultConfig()
	limits.MaxMemory = 256 << 10
	s := open(t, DefaultConfig(), limits)
	var lines strings.Builder
	want := `[{"tag":"name"}`
	for i := range tags {
		fmt.Fprintf(&lines, "m;t%04d=1 1 1710071400\n", i)
		if i%100 == 7 {
			want += fmt.Sprintf(`,{"tag":"t%04d"}`, i)
		}
	}
	s.send(lines.String())
	if w := s.ask("GET", "/tags", url.Values{}); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "query.max_memory") {
		t.Errorf("all tags: %d %.200s", w.Code, w.Body)
	}
	if w := s.ask("GET", "/tags", url.Values{"filter": {"name|t..07"}}); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != want+"]" {
		t.Errorf("some tags: %d %.200s, want %.200s", w.Code, w.Body, want)
	}
	if w := s.ask("GET", "/tags", url.Values{"filter": {"t"}, "limit": {"3"}}); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != `[{"tag":"t0000"},{"tag":"t0001"},{"tag":"t0002"}]` {
		t.Errorf("three tags: %d %.200s", w.Code, w.Body)
	}
}
