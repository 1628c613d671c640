package httpapi

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAnswers(t *testing.T) {
	ask := httptest.NewRequest("OPTIONS", "/", nil)
	ask.Header.Set("Access-Control-Request-Headers", "x-a, x-b")
	ask.Header.Set("Access-Control-Request-Method", "PUT")
	for _, tc := range []struct {
		name   string
		write  func(http.ResponseWriter)
		status int
		header http.Header
		body   string
	}{
		{"errors", func(w http.ResponseWriter) { WriteErrors(w, 400, `a "b"`, "c") }, 400, http.Header{
			"Access-Control-Allow-Origin": {"*"},
			"Content-Type":                {"application/json"},
		}, `{"errors":["a \"b\"","c"]}`},
		{"busy", WriteBusy, 503, http.Header{
			"Access-Control-Allow-Origin": {"*"},
			"Retry-After":                 {"1"},
			"Content-Length":              {"0"},
		}, ""},
		{"fault", func(w http.ResponseWriter) { SetHeaders(w.Header()); WriteEmpty(w, 500) }, 500, http.Header{
			"Access-Control-Allow-Origin": {"*"},
			"Pragma":                      {"no-cache"},
			"Cache-Control":               {"no-cache"},
			"Expires":                     {"0"},
			"Content-Type":                {"application/json;charset=utf-8"},
			"Content-Length":              {"0"},
		}, ""},
		{"no content", func(w http.ResponseWriter) { WriteEmpty(w, 204) }, 204, http.Header{}, ""},
		{"preflight", func(w http.ResponseWriter) { Preflight(w, ask) }, 200, http.Header{
			"Access-Control-Allow-Origin":  {"*"},
			"Access-Control-Allow-Headers": {"x-a, x-b"},
			"Access-Control-Allow_Method":  {"PUT"},
			"Access-Control-Max-Age":       {"86400"},
			"Content-Length":               {"0"},
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			tc.write(w)
			if d := cmp.Diff(tc.header, w.Header()); w.Code != tc.status || w.Body.String() != tc.body || d != "" {
				t.Errorf("%d %q\n%s", w.Code, w.Body, d)
			}
		})
	}
}

// TestAskLater: a client is asked to wait for a second at least and a minute at most, and
// what was asked of it before stays.
func TestAskLater(t *testing.T) {
	r := httptest.NewRequest("GET", "/api/v1/metricnames", nil)
	for wait, want := range map[time.Duration]string{
		-time.Hour: "1", 0: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2", 59_001 * time.Millisecond: "60", time.Hour: "60", math.MaxInt64: "60",
	} {
		for name, write := range map[string]func(http.ResponseWriter){
			"busy": WriteBusy, "unavailable": func(w http.ResponseWriter) { WriteUnavailable(w, r, "why") },
		} {
			w := httptest.NewRecorder()
			if got := AskLater(w.Header(), wait); got != want {
				t.Errorf("%v: %s seconds, want %s", wait, got, want)
			}
			if write(w); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != want {
				t.Errorf("%v, %s: %d, Retry-After %q, want %s", wait, name, w.Code, w.Header().Get("Retry-After"), want)
			}
		}
	}
}

// A route that lists its parameters refuses others. It ignores parameters that
// begin with _ and, with IgnoresOthers, those that are no misspelling.
func TestParameters(t *testing.T) {
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	names := []string{"prefix", "limit"}
	for _, tc := range []struct {
		route Route
		query string
		want  string // the error, "" for none
	}{
		{Route{Parameters: names}, "", ""},
		{Route{Parameters: names}, "prefix=a&limit=1&prefix=b", ""},
		{Route{Parameters: names}, "prefx=a", `unknown parameter "prefx"; did you mean prefix?`},
		{Route{Parameters: names}, "prefix=a&host=b", `unknown parameter "host"; /p takes prefix, limit`},
		{Route{Parameters: names}, "Prefix", `unknown parameter "Prefix"; did you mean prefix?`},
		{Route{Parameters: names}, "_=123&_dc=456", ""},
		{Route{}.Taking(), "x", `unknown parameter "x"; /p takes none`},
		{Route{}.Taking(), "_=1", ""},
		{Route{Parameters: names, IgnoresOthers: true}, "host=b", ""},
		{Route{Parameters: names, IgnoresOthers: true}, "limits=1", `unknown parameter "limits"; did you mean limit?`},
		{Route{}, "prefx=a", ""},
	} {
		tc.route.Path, tc.route.Handler = "/p", done
		w := httptest.NewRecorder()
		tc.route.Checked().ServeHTTP(w, httptest.NewRequest("GET", "/p?"+tc.query, nil))
		var got struct{ Errors []string }
		if tc.want == "" {
			if w.Code != 204 {
				t.Errorf("%q: %d %s", tc.query, w.Code, w.Body)
			}
		} else if json.Unmarshal(w.Body.Bytes(), &got) != nil || w.Code != 400 || len(got.Errors) != 1 || got.Errors[0] != tc.want {
			t.Errorf("%q: %d %s", tc.query, w.Code, w.Body)
		}
	}
}
