package server

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A newcomer who opens the address of the server finds each front end.
func TestWelcomePageNamesFrontEnds(t *testing.T) {
	w := httptest.NewRecorder()
	(&Server{version: "1.2.3"}).welcome(w, httptest.NewRequest("GET", "/", nil))
	page := w.Body.String()
	for _, want := range []string{"Varve 1.2.3,", "/api/v1/metricnames", "/api/put", "/render", "/events", "/api/v1/timelines", "/internal/metrics"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not name %s:\n%s", want, page)
		}
	}
}
