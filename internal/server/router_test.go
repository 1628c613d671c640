package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"varve/internal/httpapi"
)

// echoRoutes answer with what the mux made of the path.
var echoRoutes = []httpapi.Route{
	route("GET", "/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "root") }),
	route("GET", "/api/v1/metricnames", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "names") }),
	route("POST", "/api/v1/metricnames", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "posted") }),
	route("GET", "/api/v1/rollups/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "rollups") }),
	route("DELETE", "/api/v1/metric/{name}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "name="+r.PathValue("name"))
	}),
	route("GET", "/api/v1/metadata/{service}/{key}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.PathValue("service")+"+"+r.PathValue("key"))
	}),
	route("GET", "/empty", func(http.ResponseWriter, *http.Request) {}),
	route("GET", "/panic", func(http.ResponseWriter, *http.Request) { panic("oh") }),
	route("GET", "/panic-late", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		w.(http.Flusher).Flush()
		panic("oh")
	}),
}

func newTestRouter(registry *prometheus.Registry) *router {
	var nobody atomic.Pointer[origins]
	none, err := newOrigins(nil)
	if err != nil {
		panic(err)
	}
	nobody.Store(none)
	rt := &router{
		guard:    guard{origins: &nobody},
		log:      slog.New(slog.DiscardHandler),
		metrics:  newMetrics(registry, 1),
		stall:    time.Minute,
		draining: func() bool { return false },
	}
	rt.mount(echoRoutes...)
	return rt
}

func TestRouting(t *testing.T) {
	for _, tc := range []struct {
		request string
		status  int
		body    string
		allow   string
	}{
		{"GET /", 200, "root", ""},
		{"GET //", 200, "root", ""},
		{"HEAD /", 200, "", ""},
		{"GET /api/v1/metricnames", 200, "names", ""},
		{"GET /api/v1/metricnames/", 200, "names", ""},
		{"GET /api/v1/metricnames/?prefix=a//b/", 200, "names", ""},
		{"GET //api///v1/metricnames//", 200, "names", ""},
		{"POST //api/v1/metricnames/", 200, "posted", ""},
		{"HEAD /api/v1/metricnames", 200, "", ""},
		{"PUT /api/v1/metricnames", 405, "", "GET, HEAD, POST"},
		{"GET /api/v1/rollups", 200, "rollups", ""},
		{"GET /api/v1/rollups/", 200, "rollups", ""},
		{"DELETE /api/v1/metric/cpu", 200, "name=cpu", ""},
		{"DELETE /api/v1/metric/a%2Fb", 200, "name=a/b", ""},
		{"DELETE /api/v1/metric/a%2fb/", 200, "name=a/b", ""},
		{"DELETE /api/v1/metric/a%2F", 200, "name=a/", ""},
		{"DELETE /api/v1/metric/%2F%2F", 200, "name=//", ""},
		{"DELETE //api/v1/metric/a%2F%2Fb", 200, "name=a//b", ""},
		{"DELETE /api/v1/metric/a%20b%25c", 200, "name=a b%c", ""},
		{"DELETE /api/v1/metric/%2E%2E", 200, "name=..", ""},
		{"DELETE /api/v1/metric/..a", 200, "name=..a", ""},
		{"DELETE /api/v1/metric/na%C3%AFve", 200, "name=naïve", ""},
		{"DELETE /api/v1/metric/a/../cpu", 404, "", ""},
		{"DELETE /api/v1/metric/./cpu", 404, "", ""},
		{"DELETE /api/v1/metric/a/b", 404, "", ""},
		{"DELETE /api/v1/metric", 404, "", ""},
		{"GET /api/v1/metadata/s%2Ft/k", 200, "s/t+k", ""},
		{"GET /api/v1/nothing", 404, "", ""},
		{"GET /nothing", 404, `{"errors":["there is no /nothing; GET / says what there is"]}`, ""},
		{"PUT /empty", 405, `{"errors":["PUT is not a method of /empty; these are: GET, HEAD"]}`, "GET, HEAD"},
		{"get /empty", 405, `{"errors":["get is not a method of /empty; these are: GET, HEAD"]}`, "GET, HEAD"},
		{"GET /empty", 200, "", ""},
		{"GET /panic", 500, "", ""},
	} {
		t.Run(tc.request, func(t *testing.T) {
			server := httptest.NewServer(newTestRouter(prometheus.NewRegistry()))
			defer server.Close()
			method, target, _ := strings.Cut(tc.request, " ")
			request, err := http.NewRequest(method, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			path, query, _ := strings.Cut(target, "?")
			request.URL.Opaque, request.URL.RawQuery = path, query // sent as it is
			if strings.HasPrefix(path, "//") {
				request.URL.Opaque = "//" + request.URL.Host + path // else taken for a host
			}
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != tc.status || string(body) != tc.body || response.Header.Get("Allow") != tc.allow {
				t.Errorf("got  %d %q Allow %q\nwant %d %q Allow %q", response.StatusCode, body, response.Header.Get("Allow"), tc.status, tc.body, tc.allow)
			}
			if tc.status >= 400 && tc.body == "" && response.ContentLength > 0 {
				t.Errorf("Content-Length %d", response.ContentLength)
			}
		})
	}
}

func TestPanicAfterTheHeaderCutsTheConnection(t *testing.T) {
	registry := prometheus.NewRegistry()
	rt := newTestRouter(registry)
	server := httptest.NewServer(rt)
	defer server.Close()
	response, err := http.Get(server.URL + "/panic-late")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the answer looks whole: %q", body)
	}
	if got := figures(registry, "varve_server_panics_total"); got != "varve_server_panics_total 1\n" {
		t.Error(got)
	}
}

func TestRequestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	rt := newTestRouter(registry)
	for _, request := range []string{
		"GET /api/v1/metricnames", "GET /api/v1/metricnames/", "HEAD /api/v1/metricnames",
		"DELETE /api/v1/metric/a", "DELETE /api/v1/metric/b", "BREW /pot", "PUT /api/v1/metricnames",
	} {
		method, path, _ := strings.Cut(request, " ")
		rt.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
	}
	const want = `varve_server_http_requests_total{code="200",method="DELETE",route="/api/v1/metric/{name}"} 2
varve_server_http_requests_total{code="200",method="GET",route="/api/v1/metricnames"} 2
varve_server_http_requests_total{code="200",method="HEAD",route="/api/v1/metricnames"} 1
varve_server_http_requests_total{code="404",method="any",route="none"} 1
varve_server_http_requests_total{code="405",method="any",route="none"} 1
`
	if got := figures(registry, "varve_server_http_requests_total"); got != want {
		t.Error(got)
	}
}

// figures returns the lines of a metric as they are scraped.
func figures(registry *prometheus.Registry, name string) string {
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/", nil))
	var b strings.Builder
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, name) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// FuzzCleanPath: a cleaned path is clean, and only slashes were taken away.
func FuzzCleanPath(f *testing.F) {
	for _, path := range []string{"/", "//", "/a//b/", "/a/./b", "/..", "/a%2F/", "", "/...", "a"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		clean, ok := cleanPath(path)
		if !ok {
			return
		}
		if again, ok := cleanPath(clean); again != clean || !ok {
			if clean != "/" {
				t.Errorf("%q -> %q -> %q", path, clean, again)
			}
		}
		if strings.ReplaceAll(clean, "/", "") != strings.ReplaceAll(path, "/", "") {
			t.Errorf("%q -> %q lost more than slashes", path, clean)
		}
	})
}

// BenchmarkRouter is what the router adds to each request: matching, counting,
// the wrapped answer. path=cleaned has a slash at the end.
func BenchmarkRouter(b *testing.B) {
	for name, path := range map[string]string{"plain": "/api/v1/metricnames", "cleaned": "/api/v1/metricnames/"} {
		b.Run("path="+name, func(b *testing.B) {
			rt := newTestRouter(prometheus.NewRegistry())
			request := httptest.NewRequest("GET", path, nil)
			b.ReportAllocs()
			for b.Loop() {
				rt.ServeHTTP(httptest.NewRecorder(), request)
			}
		})
	}
}

// A route that does not state which access it needs is a fault of the code.
func TestRouteWithoutAccess(t *testing.T) {
	defer func() {
		if fault := fmt.Sprint(recover()); !strings.Contains(fault, "GET /open does not state which access it needs") {
			t.Error(fault)
		}
	}()
	newTestRouter(prometheus.NewRegistry()).mount(httpapi.Route{Method: "GET", Path: "/open", Handler: http.NotFoundHandler()})
}
