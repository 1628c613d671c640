package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"varve/internal/principal"
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
		{"preflight of a method", func(w http.ResponseWriter) { PreflightOfMethod(w, ask) }, 200, http.Header{
			"Access-Control-Allow-Origin":  {"*"},
			"Access-Control-Allow-Headers": {"x-a, x-b"},
			"Access-Control-Allow-Methods": {"PUT"},
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
			AskLater(w.Header(), wait)
			if write(w); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != want {
				t.Errorf("%v, %s: %d, Retry-After %q, want %s", wait, name, w.Code, w.Header().Get("Retry-After"), want)
			}
		}
	}
}

// A route that lists its parameters refuses others. It ignores parameters that
// begin with _ and, with IgnoresOthers, those that are no misspelling.
func TestParameters(t *testing.T) {
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
		served := false
		tc.route.Path, tc.route.Handler = "/p", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served = true
			w.WriteHeader(204)
		})
		w := httptest.NewRecorder()
		tc.route.Checked().ServeHTTP(w, httptest.NewRequest("GET", "/p?"+tc.query, nil))
		var got struct{ Errors []string }
		if served != (tc.want == "") {
			t.Errorf("%q: the handler was called: %t", tc.query, served)
		}
		if tc.want == "" {
			if w.Code != 204 {
				t.Errorf("%q: %d %s", tc.query, w.Code, w.Body)
			}
		} else if json.Unmarshal(w.Body.Bytes(), &got) != nil || w.Code != 400 || len(got.Errors) != 1 || got.Errors[0] != tc.want {
			t.Errorf("%q: %d %s", tc.query, w.Code, w.Body)
		}
	}
}

// The access of a route, and what it says of itself, decide whether it changes something, whether the
// audit log records it, and whether HEAD reaches its handler.
func TestRoutes(t *testing.T) {
	for _, tc := range []struct {
		route            Route
		changes, audited bool
	}{
		{On("GET", "/", Public, nil), false, false},
		{On("GET", "/", Read, nil), false, false},
		{On("POST", "/", Read, nil), false, false},
		{On("GET", "/", Metrics, nil), false, false},
		{On("GET", "/", Read, nil).ByGet(), true, false},
		{On("GET", "/", Metrics, nil).ByGet(), true, false},
		{On("POST", "/", Write, nil), true, false},
		{On("POST", "/", Write, nil).OnRecord(), true, true},
		{On("GET", "/", Read, nil).OnRecord(), false, true},
		{On("DELETE", "/", Delete, nil), true, true},
		{On("GET", "/", Admin, nil), false, false},
		{On("GET", "/", Admin, nil).ByGet(), true, true},
		{On("POST", "/", Admin, nil), true, true},
	} {
		r := tc.route
		if r.Changes() != tc.changes || r.Audited() != tc.audited {
			t.Errorf("%s with access %s, %+v: changes %t, audited %t", r.Method, r.Access, r, r.Changes(), r.Audited())
		}
		r.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
		w := httptest.NewRecorder()
		r.Checked().ServeHTTP(w, httptest.NewRequest("HEAD", "/", nil))
		if refused := r.Method == "GET" && tc.changes; refused != (w.Code == 405) || refused != (w.Header().Get("Allow") == "GET") || !refused && w.Code != 204 {
			t.Errorf("HEAD for %s with access %s, %+v: %d %v", r.Method, r.Access, r, w.Code, w.Header())
		}
	}
	plain := On("GET", "/", Read, nil)
	if !plain.ByMetric().Metrics || !plain.OfServer().Server || plain.Metrics || plain.Server {
		t.Error("ByMetric or OfServer does not mark a route, and only that")
	}
	if r := plain.Ignoring("a"); !r.IgnoresOthers || len(r.Parameters) != 1 {
		t.Errorf("%+v", r)
	}
}

// A request may only read if its sender lacks the right to write, or if it was marked so.
func TestReadOnly(t *testing.T) {
	sender := func(rights principal.Rights) context.Context {
		return principal.With(t.Context(), principal.Principal{Tenant: "a", Rights: rights})
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"a reader":         {sender(principal.Read), true},
		"a writer":         {sender(principal.Read | principal.Write), false},
		"a marked writer":  {WithReadOnly(sender(principal.Read | principal.Write)), true},
		"everyone":         {principal.With(t.Context(), principal.Everyone), false},
		"nobody, marked":   {WithReadOnly(t.Context()), true},
		"without a sender": {t.Context(), false},
	} {
		if got := IsReadOnly(tc.ctx); got != tc.want {
			t.Errorf("%s may only read: %t", name, got)
		}
	}
}

// A trace is asked for by the parameter or the header, with a value that means true.
func TestWantsTrace(t *testing.T) {
	for _, tc := range []struct {
		target, header string
		want           bool
	}{
		{"/", "", false}, {"/?trace=true", "", true}, {"/?trace=1", "", true}, {"/?trace=false", "", false}, {"/?trace=yes", "", false},
		{"/?x=1", "", false}, {"/", "true", true}, {"/", "0", false}, {"/?trace=1", "0", true}, {"/?x=1", "1", true},
	} {
		r := httptest.NewRequest("GET", tc.target, nil)
		if tc.header != "" {
			r.Header.Set(TraceHeader, tc.header)
		}
		if got := WantsTrace(r); got != tc.want {
			t.Errorf("%s with %q: %t", tc.target, tc.header, got)
		}
	}
}

// A text arrives whole, whatever its length.
func TestWriteText(t *testing.T) {
	for _, n := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 100_000} {
		var got strings.Builder
		text := strings.Repeat("0123456789", n/10+1)[:n]
		if err := WriteText(&got, text); err != nil || got.String() != text {
			t.Errorf("%d bytes: %d arrived, %v", n, got.Len(), err)
		}
	}
	gone := errors.New("gone")
	if err := WriteText(failing{gone}, "text"); !errors.Is(err, gone) {
		t.Errorf("the error is %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A reason is left out where clients would leak a connection for it: of 503 on the path of points,
// and for KairosDB's Java library on all paths that KairosDB has.
func TestUnavailable(t *testing.T) {
	const java, other = "Apache-HttpClient/4.5.2 (Java/1.8)", "curl/8.5.0"
	for _, tc := range []struct {
		path, agent string
		body        string
	}{
		{"/api/v1/datapoints", other, ""},
		{"/api/v1/datapoints/", other, ""},
		{"/api/v1/datapoints/query", other, `{"errors":["why"]}`},
		{"/api/v1/datapoints/query", java, ""},
		{"/api/v1/timelines/a/events", java, `{"errors":["why"]}`},
	} {
		r := httptest.NewRequest("POST", tc.path, nil)
		r.Header.Set("User-Agent", tc.agent)
		w := httptest.NewRecorder()
		if WriteUnavailable(w, r, "why"); w.Code != 503 || w.Body.String() != tc.body || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s of %s: %d %s %v", tc.path, tc.agent, w.Code, w.Body, w.Header())
		}
	}
}
