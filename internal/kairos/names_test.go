package kairos

import (
	"net/url"
	"strings"
	"testing"

	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/store/reference"
)

// Each parameter of the names endpoints, over each store.
func TestNamesParameters(t *testing.T) {
	for _, open := range []opener{openReference, openEmbedded} {
		s := startServerWith(t, open(t), query.DefaultConfig(), DefaultConfig())
		resp, body := s.do(t, "POST", "/api/v1/datapoints", `[`+
			`{"name":"cpu.idle","tags":{"host":"a","dc":"x"},"datapoints":[[1000,1]]},`+
			`{"name":"cpu.user","tags":{"host":"b","dc":"x"},"datapoints":[[1000,1]]},`+
			`{"name":"cpu.user","tags":{"host":"c","dc":"y","os":"bsd"},"datapoints":[[5000000000000,1]]},`+
			`{"name":"mem","tags":{"host":"a"},"datapoints":[[5000000000000,1]]}]`)
		if resp.StatusCode != 204 {
			t.Fatal(body)
		}
		for _, tc := range []struct{ path, want string }{
			{"metricnames", `{"results":["cpu.idle","cpu.user","mem"]}`},
			{"metricnames?prefix=cpu.&limit=1", `{"results":["cpu.idle"],"next":"cpu.idle"}`},
			{"metricnames?prefix=cpu.&limit=1&after=cpu.idle", `{"results":["cpu.user"]}`},
			{"metricnames?limit=3", `{"results":["cpu.idle","cpu.user","mem"]}`},
			{"metricnames?limit=0", `{"results":["cpu.idle","cpu.user","mem"]}`},
			{"metricnames?pattern=.*u.*r", `{"results":["cpu.user"]}`},
			{"metricnames?filter=host=a", `{"results":["cpu.idle","mem"]}`},
			{"metricnames?filter=host=a&limit=1", `{"results":["cpu.idle"],"next":"cpu.idle"}`},
			{"metricnames?filter=host=a&limit=1&after=cpu.idle", `{"results":["mem"]}`},
			{"metricnames?filter=host=a&filter=host=regex:[bc]&filter=dc=x", `{"results":["cpu.idle","cpu.user"]}`},
			{"metricnames?start=4000000000000", `{"results":["cpu.user","mem"]}`},
			{"metricnames?end=4000000000000", `{"results":["cpu.idle","cpu.user"]}`},
			{"tagnames", `{"results":["dc","host","os"]}`},
			{"tagnames?metric=mem", `{"results":["host"]}`},
			{"tagnames?metric=cpu.user&filter=host=b", `{"results":["dc","host"]}`},
			{"tagnames?metric=cpu.user&start=0&limit=2&after=dc", `{"results":["host","os"]}`},
			{"tagvalues?tag=host", `{"results":["a","b","c"]}`},
			{"tagvalues?metric=cpu.user&tag=host", `{"results":["b","c"]}`},
			{"tagvalues?metric=cpu.user&tag=host&filter=dc=y", `{"results":["c"]}`},
			{"tagvalues?metric=cpu.user&filter=dc=regex:.&limit=2", `{"results":["b","bsd"],"next":"bsd"}`},
			{"tagvalues?metric=cpu.user&filter=dc=regex:.&prefix=b&pattern=.{3}", `{"results":["bsd"]}`},
			{"tagvalues?metric=none&filter=dc=y", `{"results":[]}`},
		} {
			path, params, _ := strings.Cut(tc.path, "?")
			values, err := url.ParseQuery(params)
			if err != nil {
				t.Fatal(err)
			}
			resp, body := s.do(t, "GET", "/api/v1/"+path+"?"+values.Encode(), "")
			if resp.StatusCode != 200 || body != tc.want {
				t.Errorf("%s: %d %s, want %s", tc.path, resp.StatusCode, body, tc.want)
			}
		}
		for path, want := range map[string]string{
			"metricnames?limit=x":                  "limit must be a whole number",
			"metricnames?limit=-1":                 "limit must be a whole number",
			"metricnames?pattern=[":                "pattern: ",
			"metricnames?filter=a":                 "filter must be tag=value",
			"metricnames?filter=a%3Dregex:[":       "filter ",
			"metricnames?start=1d":                 "start must be a time in milliseconds",
			"metricnames?start=2&end=1":            "end must not be before start",
			"tagvalues?filter=a%3Db":               "metric is needed",
			"metricnames?filter=a%3Db&filter=c%3D": "filter must be tag=value",
		} {
			if resp, body := s.do(t, "GET", "/api/v1/"+path, ""); resp.StatusCode != 400 || !strings.Contains(body, want) {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			}
		}
	}
}

// Requests for names are queries, including unfiltered lists, which may be long: they
// wait for a slot, and a kill or the timeout ends them.
func TestNamesTakeAPlace(t *testing.T) {
	qc := query.DefaultConfig()
	qc.MaxConcurrent, qc.MaxQueued = 1, 0
	s := startServerWith(t, reference.New(nil), qc, DefaultConfig())
	run, err := s.engine.Start(t.Context(), agg.Query{})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close(nil)
	for _, params := range []string{"", "?prefix=a&limit=1", "?pattern=", "?pattern=.*a", "?start=1&metric=m", "?filter=a%3Db&metric=m"} {
		for _, list := range []string{"metricnames", "tagnames", "tagvalues"} {
			path := "/api/v1/" + list + params
			if list == "metricnames" {
				path = strings.TrimSuffix(path, "&metric=m")
			}
			if resp, body := s.do(t, "GET", path, ""); resp.StatusCode != 503 || !strings.Contains(body, "waiting queries") {
				t.Errorf("%s: %d %s", path, resp.StatusCode, body)
			}
		}
	}
}
