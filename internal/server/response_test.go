package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The API's 404 and 405 are KairosDB's: empty, without the type of Go's own.
func TestUnknownPathsOfTheAPI(t *testing.T) {
	rt := newTestRouter(prometheus.NewRegistry())
	for _, request := range [][2]string{{"GET", "/api/v1/nothing"}, {"PUT", "/api/v1/metricnames"}} {
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, httptest.NewRequest(request[0], request[1], nil))
		if got := w.Header().Get("Content-Type"); got != "" {
			t.Errorf("%v: Content-Type: %s", request, got)
		}
		if w.Code < 400 || w.Body.Len() > 0 || w.Header().Get("Content-Length") != "0" {
			t.Errorf("%v: %d %q %v", request, w.Code, w.Body, w.Header())
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
