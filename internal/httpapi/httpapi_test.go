package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

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
