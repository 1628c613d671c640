package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// For KairosDB's Java client, which leaks the connection of an error with a body, the API's 404 and
// 405 are KairosDB's: empty, without the type of Go's own. Others are told, also on paths that this
// client does not use.
func TestUnknownPathsOfTheAPI(t *testing.T) {
	rt := newTestRouter(prometheus.NewRegistry())
	for _, request := range [][2]string{{"GET", "/api/v1/nothing"}, {"PUT", "/api/v1/metricnames"}} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(request[0], request[1], nil)
		r.Header.Set("User-Agent", "Apache-HttpClient/4.5.13 (Java/17.0.9)")
		rt.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Type"); got != "" {
			t.Errorf("%v: Content-Type: %s", request, got)
		}
		if w.Code < 400 || w.Body.Len() > 0 || w.Header().Get("Content-Length") != "0" {
			t.Errorf("%v: %d %q %v", request, w.Code, w.Body, w.Header())
		}
	}
	for agent, path := range map[string]string{"curl/7.88.1": "/api/v1/nothing", "Apache-HttpClient/5.3": "/api/v1/timelines/a/b/events"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("User-Agent", agent)
		rt.ServeHTTP(w, r)
		if want := `{"errors":["there is no ` + path + `; GET / says what there is"]}`; w.Code != http.StatusNotFound || w.Body.String() != want {
			t.Errorf("%s, %s: %d %q, want %s", agent, path, w.Code, w.Body, want)
		}
	}
	w := httptest.NewRecorder()
	rt.ServeHTTP(w, httptest.NewRequest("GET", "/nothing", nil))
	if w.Code != http.StatusNotFound || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("beside the API: %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	rt.mount(route("GET", "/good", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`"<script>"`))
	}))
	rt.ServeHTTP(w, httptest.NewRequest("GET", "/good", nil))
	if w.Code != http.StatusOK || w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a good answer: %d %v", w.Code, w.Header())
	}
}
