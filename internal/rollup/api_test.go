package rollup

import (
	"encoding/json"
	"net/http"
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
