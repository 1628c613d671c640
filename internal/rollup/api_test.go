package rollup

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/httpapi"
)

// TestAccessOfRoutes: a page of another origin may only read, and a route that
// starts something is none that reads, whatever its method.
func TestAccessOfRoutes(t *testing.T) {
	for _, r := range new(Scheduler).Routes() {
		want := httpapi.Changes
		switch {
		case r.Method == http.MethodOptions, r.Method == http.MethodGet && r.Path != "/api/v1/rollups/backfill/{id}":
			want = httpapi.Reads
		}
		if got := r.Access.Of(r.Method); got != want {
			t.Errorf("%s %s has access %d, want %d", r.Method, r.Path, got, want)
		}
	}
}

func TestIntervalBounds(t *testing.T) {
	for value, want := range map[string]bool{"-1": false, "0": false, "1": true, "2147483647": true, "2147483648": false} {
		_, err := readInterval(json.RawMessage(`{"value":` + value + `,"unit":"hours"}`))
		if (err == nil) != want {
			t.Errorf("an interval of %s hours: %v", value, err)
		}
	}
}

// A fault in the query of a task says where in the task it is.
func TestFaultsOfTasksSayWhere(t *testing.T) {
	h := newHarness(t)
	good := `{"save_as":"a","query":{"start_relative":{"value":1,"unit":"hours"},"metrics":[{"name":"m","aggregators":[{"name":"sum","sampling":{"value":1,"unit":"hours"}}]}]}}`
	for old, path := range map[string]string{
		`"name":"sum"`:                 "rollups[1].query.metrics[0].aggregators[0]",
		`"value":1,"unit":"hours"}}]}`: "rollups[1].query.metrics[0].aggregators[0].sampling.value",
	} {
		bad := strings.Replace(good, old, strings.NewReplacer("sum", "summ", ":1,", `:"x",`).Replace(old), 1)
		w := httptest.NewRecorder()
		h.mux.ServeHTTP(w, httptest.NewRequest("POST", "/api/v1/rollups", strings.NewReader(
			`{"name":"t","execution_interval":{"value":1,"unit":"hours"},"rollups":[`+good+","+bad+`]}`)))
		if got := w.Header().Get(httpapi.ErrorPath); w.Code != 400 || got != path {
			t.Errorf("%s: %d %s, path %q, want %q", old, w.Code, w.Body, got, path)
		}
	}
}
