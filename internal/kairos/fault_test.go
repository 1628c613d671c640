package kairos

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"varve/internal/httpapi"
	"varve/internal/store"
)

// A failure of the server, unlike a fault in a request, is logged too.
func TestReasonsAreLogged(t *testing.T) {
	var log bytes.Buffer
	a := New(nil, idleEngine(), DefaultConfig(), "", nil)
	a.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := httptest.NewRequest("GET", "/api/v1/metricnames", nil)
	for _, err := range []error{&store.UnavailableError{Reason: "the disk is full"}, badRequest("not worth a line")} {
		a.serve(func(http.ResponseWriter, *http.Request) error { return err })(httptest.NewRecorder(), r)
	}
	if !strings.Contains(log.String(), "the disk is full") || strings.Contains(log.String(), "not worth") {
		t.Error(log.String())
	}
}

// A fault of a query names its member: in a header if the text is KairosDB's own, else
// in the text too. A misspelt name gets a suggestion.
func TestFaultsSayWhere(t *testing.T) {
	s := startServer(t)
	aggregator := func(a string) string {
		return `{"start_absolute":1,"metrics":[{"name":"n"},{"name":"m","aggregators":[{"name":"sum"},` + a + `]}]}`
	}
	groupBy := func(g string) string { return `{"start_absolute":1,"metrics":[{"name":"m","group_by":[` + g + `]}]}` }
	const number = `java.lang.NumberFormatException: For input string: "x"`
	for _, tc := range []struct{ query, path, text string }{
		{`{"start_absolute":"x","metrics":[{"name":"m"}]}`, "start_absolute", number},
		{`{"start_absolute":1,"end_absolute":"x","metrics":[{"name":"m"}]}`, "end_absolute", number},
		{`{"start_relative":{"value":"x","unit":"days"},"metrics":[{"name":"m"}]}`, "start_relative.value", number},
		{`{"start_absolute":1,"cache_time":"x","metrics":[{"name":"m"}]}`, "cache_time", number},
		{aggregator(`{"name":"avg","sampling":{"value":"x","unit":"days"}}`), "metrics[1].aggregators[1].sampling.value", number},
		{aggregator(`{"name":"avg","sampling":5}`), "metrics[1].aggregators[1].sampling", "java.lang.IllegalStateException: Expected BEGIN_OBJECT but was NUMBER"},
		{groupBy(`{"name":"value","range_size":"x"}`), "metrics[0].group_by[0].range_size", number},
		{groupBy(`{"name":"tag","tags":["a",{}]}`), "metrics[0].group_by[0].tags[1]", "JsonObject: metrics[0].group_by[0].tags[1] must be a text, not an object"},
		{groupBy(`{}`), "metrics[0].group_by[0]", "query.metric[0].group_by[0] must have a name"},
		{`{"start_absolute":1,"metrics":[{"name":"m","tags":{"a\u0001\u00e9":["x",{}]}}]}`, `metrics[0].tags["a\x01\u00e9"][1]`, "JsonObject: "},
		{`{"start_absolute":1,"metrics":[{"name":"m","aggregators":5}]}`, "metrics[0].aggregators", "This is not a JSON Array. metrics[0].aggregators must be an array"},
		{aggregator(`{"name":"filter","filter_op":"like"}`), "metrics[1].aggregators[1]", "query.metric[1].aggregators[1].like is not a valid trim type, must be 'lte', 'lt', 'gte', 'gt', 'equal' or 'ne'. This is filter_op of filter."},
		{aggregator(`{"name":"summ"}`), "metrics[1].aggregators[1]", "query.metric[1].aggregators[1].summ invalid aggregators name; did you mean sum?"},
		{aggregator(`{"name":"nope"}`), "metrics[1].aggregators[1]", "query.metric[1].aggregators[1].nope invalid aggregators name\""},
		{aggregator(`{"name":"avg","smapling":{}}`), "metrics[1].aggregators[1].smapling", "'class org.kairosdb.core.aggregator.AvgAggregator'; did you mean sampling?"},
		{groupBy(`{"name":"tags"}`), "metrics[0].group_by[0]", "query.metric[0].group_by[0].tags invalid group_by name; did you mean tag?"},
	} {
		resp, body := s.do(t, "POST", queryPath, tc.query)
		if got := resp.Header.Get(httpapi.ErrorPath); resp.StatusCode != 400 || got != tc.path {
			t.Errorf("%s: %d, path %q, want %q", tc.query, resp.StatusCode, got, tc.path)
		}
		text := strings.ReplaceAll(body, `\"`, `"`)
		if !strings.Contains(text, tc.text) {
			t.Errorf("%s: %s, want %s", tc.query, body, tc.text)
		}
	}
	resp, body := s.do(t, "POST", "/api/v1/datapoints/delete", `{"start_absolute":1,"metrics":[{"name":"m","tgas":{"a":"b"}}]}`)
	if got := resp.Header.Get(httpapi.ErrorPath); got != "metrics[0].tgas" || !strings.Contains(body, "did you mean tags?") {
		t.Errorf("delete: path %q, %s", got, body)
	}
}

// An error repeats a bounded part of the request.
func TestFaultsAreShort(t *testing.T) {
	s := startServer(t)
	long := strings.Repeat("x", 100_000)
	for _, query := range []string{
		`{"start_absolute":"` + long + `","metrics":[{"name":"m"}]}`,
		`{"start_absolute":1,"metrics":["` + long + `"]}`,
		`{"start_relative":{"value":1,"unit":"` + long + `"},"metrics":[{"name":"m"}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","tags":{"` + long + `":{}}}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"` + long + `"}]}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"sum","` + long + `":1}]}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"filter","filter_op":"` + long + `"}]}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"trim","trim":"` + long + `"}]}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","group_by":[{"name":"bin","bins":["` + long + `"]}]}]}`,
		`{"start_absolute":1,"metrics":[{"name":"m","plugins":[{"name":"` + long + `"}]}]}`,
	} {
		resp, body := s.do(t, "POST", queryPath, query)
		if resp.StatusCode != 400 || len(body) > 1024 || len(resp.Header.Get(httpapi.ErrorPath)) > 256 {
			t.Errorf("%.80s: %d, %d bytes, path of %d", query, resp.StatusCode, len(body), len(resp.Header.Get(httpapi.ErrorPath)))
		}
	}
}
