package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"varve/e2e/process"
)

// panelPoints are the points that panels show: cpu of two hosts in two places,
// every 20 minutes of an hour.
const panelPoints = `[
	{"name":"cpu","tags":{"host":"a","dc":"x"},"datapoints":[[1700000000000,1],[1700001200000,2],[1700002400000,6],[1700003600000,7]]},
	{"name":"cpu","tags":{"host":"b","dc":"y"},"datapoints":[[1700000000000,10],[1700001200000,20]]},
	{"name":"mem.used","tags":{"host":"a"},"datapoints":[[1700000000000,0.5]]}]`

// grafanaVariables are the requests of the editor and of template variables.
var grafanaVariables = []struct{ what, method, path, body, want string }{
	{"names of metrics", "GET", "/api/v1/metricnames", "", `{"results":["cpu","mem.used"]}`},
	{"tag_names(cpu)", "POST", ask + "/tags", `{"cache_time":0,"metrics":[{"name":"cpu","tags":{}}],"start_absolute":0}`,
		`{"queries":[{"results":[{"name":"cpu","tags":{"dc":["x","y"],"host":["a","b"]},"values":[]}]}]}`},
	{"tag_values(cpu, host, dc=$x)", "POST", ask + "/tags", `{"cache_time":0,"metrics":[{"name":"cpu","tags":{"dc":["y","z"]}}],"start_absolute":0}`,
		`{"queries":[{"results":[{"name":"cpu","tags":{"dc":["y"],"host":["b"]},"values":[]}]}]}`},
	{"tag_names of no metric", "POST", ask + "/tags", `{"cache_time":0,"metrics":[{"name":"none","tags":{}}],"start_absolute":0}`,
		`{"queries":[{"results":[{"name":"none","tags":{},"values":[]}]}]}`},
}

// grafanaPanels are targets of panels: "tags" to "group_by" of a metric, and
// the groups and values of its results. A bucket has the time of its first
// point, with align_start_time that of its start.
var grafanaPanels = []struct{ target, want string }{
	{`"tags":{},"aggregators":[],"group_by":[]`,
		`type: [1700000000000,1],[1700000000000,10],[1700001200000,2],[1700001200000,20],[1700002400000,6],[1700003600000,7]`},
	{`"tags":{"host":["a","c"]},"aggregators":[],"group_by":[]`,
		`type: [1700000000000,1],[1700001200000,2],[1700002400000,6],[1700003600000,7]`},
	{hosts("a", `{"name":"avg","sampling":{"value":"1","unit":"HOURS"}}`), `type: [1700000000000,3],[1700003600000,7]`},
	{hosts("a", `{"name":"sum","align_sampling":true,"sampling":{"value":"1","unit":"HOURS"}}`), `type: [1700000000000,9],[1700003600000,7]`},
	{hosts("a", `{"name":"sum","align_start_time":true,"sampling":{"value":"1","unit":"HOURS"}}`), `type: [1699999200000,9],[1700002800000,7]`},
	{hosts("a", `{"name":"max","sampling":{"value":"5400000","unit":"MILLISECONDS"}}`), `type: [1700000000000,7]`},
	{hosts("a", `{"name":"count","sampling":{"value":"30","unit":"SECONDS"}}`), `type: [1700000000000,1],[1700001200000,1],[1700002400000,1],[1700003600000,1]`},
	{hosts("a", `{"name":"dev","sampling":{"value":"1","unit":"DAYS"}}`), `type: [1700000000000,2.943920288775949]`},
	{hosts("a", `{"name":"first","sampling":{"value":"1","unit":"WEEKS"}}`), `type: [1700000000000,1]`},
	{hosts("a", `{"name":"last","sampling":{"value":"1","unit":"WEEKS"}}`), `type: [1700003600000,7]`},
	{hosts("a", `{"name":"min","sampling":{"value":"1","unit":"MONTHS"}}`), `type: [1700000000000,1]`},
	{hosts("a", `{"name":"gaps","sampling":{"value":"10","unit":"MINUTES"}}`),
		`type: [1700000000000,1],[1700000400000,null],[1700001200000,2],[1700001600000,null],[1700002400000,6],[1700002800000,null],[1700003600000,7]`},
	{hosts("a", `{"name":"least_squares","sampling":{"value":"1","unit":"DAYS"}}`), `type: [1700000000000,0.7000000000000002],[1700003600000,7.3]`},
	{hosts("a", `{"name":"percentile","sampling":{"value":"1","unit":"DAYS"},"percentile":"0.5"}`), `type: [1700000000000,4]`},
	{hosts("a", `{"name":"sma","size":"10"}`), `type: `},
	{hosts("a", `{"name":"sma","size":"2"}`), `type: [1700001200000,1.5],[1700002400000,4],[1700003600000,6.5]`},
	{hosts("a", `{"name":"diff"}`), `type: [1700001200000,1],[1700002400000,4],[1700003600000,1]`},
	{hosts("a", `{"name":"div","divisor":"2"}`), `type: [1700000000000,0.5],[1700001200000,1],[1700002400000,3],[1700003600000,3.5]`},
	{hosts("a", `{"name":"scale","factor":"1.5"}`), `type: [1700000000000,1.5],[1700001200000,3],[1700002400000,9],[1700003600000,10.5]`},
	{hosts("a", `{"name":"rate","unit":"HOURS"}`), `type: [1700001200000,3],[1700002400000,12],[1700003600000,3]`},
	{hosts("a", `{"name":"sampler","unit":"HOURS"}`), `type: [1700001200000,6],[1700002400000,18],[1700003600000,21]`},
	{hosts("a", `{"name":"trim","trim":"both"}`), `type: [1700001200000,2],[1700002400000,6]`},
	{`"tags":{},"aggregators":[{"name":"sum","sampling":{"value":"1","unit":"YEARS"}}],"group_by":[{"name":"tag","tags":["host","dc"]}]`,
		`tag {"host":"a","dc":"x"}, type: [1700000000000,16]
tag {"host":"b","dc":"y"}, type: [1700000000000,30]`},
	{`"tags":{"host":["a"]},"aggregators":[],"group_by":[{"group_count":3,"name":"time","range_size":{"unit":"MINUTES","value":20}}]`,
		`time {"group_number":0}, type: [1700000000000,1],[1700003600000,7]
time {"group_number":1}, type: [1700001200000,2]
time {"group_number":2}, type: [1700002400000,6]`},
	{`"tags":{},"aggregators":[],"group_by":[{"name":"value","range_size":"10"}]`,
		`value {"group_number":0}, type: [1700000000000,1],[1700001200000,2],[1700002400000,6],[1700003600000,7]
value {"group_number":1}, type: [1700000000000,10]
value {"group_number":2}, type: [1700001200000,20]`},
}

func hosts(host, aggregator string) string {
	return fmt.Sprintf(`"tags":{"host":[%q]},"aggregators":[%s],"group_by":[]`, host, aggregator)
}

// grafanaNulls are aggregators with a field that a user left empty, and the
// field that the answer has to name.
var grafanaNulls = []struct{ aggregator, field string }{
	{`{"name":"avg","sampling":{"value":null,"unit":"HOURS"}}`, "sampling.value"},
	{`{"name":"avg","sampling":{"value":"1","unit":null}}`, "aggregators[0].sampling.unit"},
	{`{"name":"percentile","sampling":{"value":"1","unit":"HOURS"},"percentile":null}`, "aggregators[0].percentile"},
	{`{"name":"sma","size":null}`, "aggregators[0].size"},
	{`{"name":"div","divisor":null}`, "aggregators[0].divisor"},
	{`{"name":"scale","factor":null}`, "aggregators[0].factor"},
	{`{"name":"rate","unit":null}`, "aggregators[0].unit"},
	{`{"name":"sampler","unit":null}`, "aggregators[0].unit"},
	{`{"name":"trim","trim":null}`, "aggregators[0].trim"},
}

// TestGrafana sends the requests of Grafana's KairosDB plug-in in its own form:
// one for each panel, with numbers as texts.
func TestGrafana(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", push, panelPoints)
	headers := []string{"Accept: application/json, text/plain, */*", "Content-Type: application/json;charset=UTF-8", "X-Grafana-Org-Id: 1"}
	for _, v := range grafanaVariables {
		if r := w.want(http.StatusOK, v.method, v.path, v.body, headers...); !sameJSON(t, r.body, v.want) {
			t.Errorf("%s: the answer is %s, want %s", v.what, r.body, v.want)
		}
	}

	// All targets are in one panel, too: answers are found by position.
	const frame = `{"cache_time":0,"start_absolute":1700000000000,"end_absolute":1700003600000,"metrics":[%s]}`
	var metrics []string
	for _, p := range grafanaPanels {
		metric := `{"limit":0,"name":"cpu",` + p.target + `}`
		metrics = append(metrics, metric, strings.Replace(metric, "cpu", "none", 1))
		r := w.want(http.StatusOK, "POST", ask, fmt.Sprintf(frame, metric), headers...)
		if got := panelResults(t, r.body); len(got) != 1 || got[0] != p.want {
			t.Errorf("%s: the panel shows\n%s\nwant\n%s", p.target, got, p.want)
		}
	}
	got := panelResults(t, w.want(http.StatusOK, "POST", ask, fmt.Sprintf(frame, strings.Join(metrics, ",")), headers...).body)
	if len(got) != len(metrics) {
		t.Fatalf("%d answers to %d targets", len(got), len(metrics))
	}
	for i, p := range grafanaPanels {
		if got[2*i] != p.want {
			t.Errorf("target %d of all, %s, shows\n%s\nwant\n%s", i, p.target, got[2*i], p.want)
		}
	}
	for _, n := range grafanaNulls {
		r := w.want(http.StatusBadRequest, "POST", ask, fmt.Sprintf(frame, `{"limit":0,"name":"cpu",`+hosts("a", n.aggregator)+`}`), headers...)
		if !strings.Contains(r.body, n.field) || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: the answer %s does not name %s", n.aggregator, r.body, n.field)
		}
	}
}

// panelResults formats each query of an answer as the plug-in reads it: the
// groups of each result, for the legend, and its points.
func panelResults(t *testing.T, body string) (queries []string) {
	t.Helper()
	var a struct {
		Queries []struct {
			Results []struct {
				GroupBy []struct {
					Name  string
					Group json.RawMessage
				} `json:"group_by"`
				Values []json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatal(err)
	}
	for _, q := range a.Queries {
		var lines []string
		for _, r := range q.Results {
			var groups, values []string
			for _, g := range r.GroupBy {
				groups = append(groups, strings.TrimSpace(g.Name+" "+string(g.Group)))
			}
			for _, v := range r.Values {
				values = append(values, string(v))
			}
			lines = append(lines, strings.Join(groups, ", ")+": "+strings.Join(values, ","))
		}
		queries = append(queries, strings.Join(lines, "\n"))
	}
	return queries
}
