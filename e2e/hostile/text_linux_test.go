package hostile

import (
	"context"
	"net/http"
	"testing"
)

// Texts that are not UTF-8 are the client's fault wherever they come, also where the store takes
// no such text.
func TestTextsThatAreNotUTF8(t *testing.T) {
	w := guard(t)
	w.under(100*mib, func(ctx context.Context) {
		for _, r := range []struct{ method, path, body string }{
			{"GET", "/api/v1/tagvalues?metric=%FF", ""}, {"GET", "/api/v1/tagnames?metric=%FF", ""}, {"GET", "/api/v1/metricnames?prefix=%FF", ""}, {"GET", "/api/v1/metricnames?after=%FF", ""},
			{"GET", "/api/v1/metadata/%FF", ""}, {"GET", "/api/v1/metadata/a/%FF", ""}, {"GET", "/api/v1/metadata/a/b/%FF", ""}, {"GET", "/api/v1/metadata/a/b?startsWith=%FF", ""},
			{"POST", "/api/v1/metadata/%FF/b/c", "x"}, {"POST", "/api/v1/metadata/a/%FF/c", "x"}, {"POST", "/api/v1/metadata/a/b/%FF", "x"}, {"POST", "/api/v1/metadata/a/b/c", "\xff"},
			{"DELETE", "/api/v1/metadata/a/b/%FF", ""}, {"DELETE", "/api/v1/metric/%FF", ""}, {"GET", "/api/v1/export?metric=%FF", ""},
			{"POST", "/api/v1/datapoints/query", "{\"start_absolute\":0,\"metrics\":[{\"name\":\"bystander\",\"tags\":{\"host\":\"\xff\"}}]}"},
			{"POST", "/api/v1/datapoints/delete", "{\"start_absolute\":0,\"metrics\":[{\"name\":\"\xff\"}]}"},
			{"POST", "/api/v1/datapoints", "[{\"name\":\"\xff\",\"timestamp\":1,\"value\":1,\"tags\":{\"a\":\"b\"}}]"},
			{"POST", "/api/v1/rollups", "{\"name\":\"\xff\",\"execution_interval\":{\"value\":1,\"unit\":\"hours\"},\"rollups\":[]}"},
			{"GET", "/api/v1/rollups/%FF", ""}, {"GET", "/api/v1/rollups/status/%FF", ""}, {"DELETE", "/api/v1/rollups/%FF", ""},
			{"GET", "/render?target=%FF&format=json", ""}, {"GET", "/metrics/find?query=%FF", ""}, {"GET", "/tags/%FF", ""}, {"GET", "/tags/findSeries?expr=name%3D%FF", ""},
			{"GET", "/tags/findSeries?expr=name%3Dbystander&expr=host%3D%FF", ""}, {"GET", "/tags/autoComplete/values?tag=%FF", ""}, {"POST", "/tags/delSeries?path=%FF%3Ba%3Db", ""},
			{"GET", "/events/get_data?tags=%FF", ""}, {"POST", "/events", "{\"what\":\"\xff\"}"}, {"GET", "/api/v1/timelines?prefix=%FF", ""}, {"GET", "/api/v1/timelines/a/events?type=%FF", ""},
		} {
			status, answer, err := w.Do(ctx, r.method, r.path, r.body)
			if err != nil || status >= http.StatusInternalServerError {
				t.Errorf("%s %s %q: %d %.200s, %v", r.method, r.path, r.body, status, answer, err)
			}
		}
	})
}
