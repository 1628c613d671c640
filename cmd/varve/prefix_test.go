package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/internal/auth"
	"varve/internal/config"
	"varve/internal/principal"
)

// TestPrefixHolds asks as a sender that is limited to some metrics, over every front end.
// It finds, lists, writes and deletes its metrics, and no trace of others.
func TestPrefixHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	tokens := map[string]string{}
	for name, prefix := range map[string]string{"all": "", "limited": "own.x"} {
		_, shown, err := auth.Create(path, auth.Grant{Name: name, Rights: principal.Read | principal.Write | principal.Delete, Prefix: prefix}, time.Time{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = shown
	}
	c := config.Default()
	c.Auth.Enabled, c.Auth.TokenFile = true, path
	c.Auth.Rules = []string{"address=127.0.0.1 stream=carbon role=write"}
	c.Server.HTTPAddr, c.Server.TelnetAddr, c.Server.CarbonAddr, c.Server.PickleAddr = "127.0.0.1:0", "", "127.0.0.1:0", ""
	srv := mountedServer(t, c)
	defer runServer(t, srv)()
	defer http.DefaultClient.CloseIdleConnections()
	ask := func(who, method, path, body string) (int, string) {
		r, err := http.NewRequest(method, "http://"+srv.Addr("http")+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth(who, tokens[who])
		if strings.Contains(body, "=") && !strings.Contains(body, "{") {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	ms := time.Now().Add(-time.Minute).UnixMilli()
	point := func(metric, tag string) string {
		return fmt.Sprintf(`{"name":%q,"tags":{%q:"v-%s"},"datapoints":[[%d,1]]}`, metric, tag, tag, ms)
	}
	const query = `{"start_relative":{"value":1,"unit":"hours"},"cache_time":3600,"metrics":[{"name":%q%s}]}`
	// The others' metrics come first, and are asked for once, so that caches know them.
	if status, text := ask("all", "POST", "/api/v1/datapoints", "["+point("own.x.a", "t1")+","+point("own.xy", "t2")+","+point("own.secret", "t3")+","+point("other.secret", "t4")+"]"); status != 204 {
		t.Fatal(status, text)
	}
	for _, metric := range []string{"own.x.a", "own.secret"} {
		if status, text := ask("all", "POST", "/api/v1/datapoints/query", fmt.Sprintf(query, metric, "")); status != 200 || !strings.Contains(text, "v-") {
			t.Fatal(status, text)
		}
	}
	lines, err := net.Dial("tcp", srv.Addr("carbon"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"own.x.path", "own.secret.path", "other.secret.path"} {
		fmt.Fprintf(lines, "%s 1 %d\n", path, ms/1000)
	}
	lines.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, text := ask("all", "GET", "/api/v1/metricnames", ""); strings.Count(text, ".path") == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("carbon's lines are not there")
		}
	}
	if status, text := ask("all", "POST", "/events", `{"what":"secret","tags":"a"}`); status >= 300 {
		t.Fatal(status, text)
	}
	foreign := func(format string, args ...any) string {
		return fmt.Sprintf(format, slices.Concat([]any{"own.secret"}, args)...)
	}
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/api/v1/datapoints/query", fmt.Sprintf(query, "own.x.a", ""), 200, "v-t1"},
		{"POST", "/api/v1/datapoints/query", foreign(query, ""), 403, `limited may only use metrics that begin with \"own.x\"`},
		{"POST", "/api/v1/datapoints/query", fmt.Sprintf(query, "own.x.a", `,"aggregators":[{"name":"save_as","metric_name":"own.saved"}]`), 0, "may only write"},
		// Nothing is sent or saved of a request of which a part is forbidden.
		{"POST", "/api/v1/datapoints/query", foreign(`{"start_absolute":0,"metrics":[{"name":"own.x.a","aggregators":[{"name":"save_as","metric_name":"own.x.kept"}]},{"name":%q}]}`), 403, "only"},
		{"POST", "/api/v1/datapoints/query/tags", fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q}]}`, "own.xy"), 200, "v-t2"},
		{"POST", "/api/v1/datapoints/query/tags", foreign(`{"start_absolute":0,"metrics":[{"name":%q}]}`), 403, "only"},
		{"GET", "/api/v1/metricnames", "", 200, `{"results":["own.x.a","own.x.path","own.xy"]}`},
		{"GET", "/api/v1/metricnames?prefix=own.", "", 200, `{"results":["own.x.a","own.x.path","own.xy"]}`},
		{"GET", "/api/v1/metricnames?prefix=own.x.", "", 200, `{"results":["own.x.a","own.x.path"]}`},
		{"GET", "/api/v1/metricnames?prefix=other", "", 200, `{"results":[]}`},
		{"GET", "/api/v1/tagnames", "", 200, `{"results":["t1","t2"]}`},
		{"GET", "/api/v1/tagvalues", "", 200, `{"results":["v-t1","v-t2"]}`},
		{"GET", "/api/v1/tagvalues?metric=own.secret", "", 200, `{"results":[]}`},
		{"GET", "/api/v1/export?metric=own.x.a", "", 200, "v-t1"},
		{"GET", "/api/v1/export?metric=own.secret", "", 403, "only"},
		{"GET", "/api/v1/export?metric=own.x.a&metric=own.secret", "", 403, "only"},
		{"HEAD", "/api/v1/export?metric=own.x.a&metric=own.secret", "", 403, ""},
		{"GET", "/api/v1/export", "", 200, "own.xy"},
		{"GET", "/api/v1/metadata/a", "", 403, "this needs rights for all metrics; "},
		{"GET", "/api/v1/rollups", "", 403, "this needs rights for all metrics; "},
		{"GET", "/events", "", 403, "this needs rights for all metrics; "},
		{"GET", "/metrics/find?query=*", "", 200, `"own"`},
		{"GET", "/metrics/find?query=own.*", "", 200, `"own.x"`},
		{"GET", "/metrics/find?query=own.secret", "", 200, "[]"},
		{"GET", "/metrics/expand?query=*.*", "", 200, "own.x"},
		{"GET", "/metrics/index.json", "", 200, "own.x.path"},
		{"GET", "/render?target=own.*.*&target=other.*.*&format=json", "", 200, "own.x.path"},
		{"GET", "/render?target=own.secret&format=json", "", 200, "[]"},
		{"GET", "/render?target=events('a')&format=json", "", 403, "only"},
		{"GET", "/render?target=seriesByTag('name=own.xy')&format=json", "", 200, "own.xy"},
		{"GET", "/render?target=seriesByTag('t3=v-t3')&format=json", "", 200, "[]"},
		{"GET", "/tags", "", 200, "t2"},
		{"GET", "/tags/t3", "", 200, "null"},
		{"GET", "/tags/name", "", 200, "own.xy"},
		{"GET", "/tags/findSeries?expr=name=~o", "", 200, "own.xy"},
		{"GET", "/tags/findSeries?expr=name=own.secret", "", 0, ""},
		{"GET", "/tags/autoComplete/tags", "", 200, "t1"},
		{"GET", "/tags/autoComplete/values?tag=name", "", 200, "own.xy"},
		{"POST", "/api/v1/datapoints", "[" + point("own.x.new", "t1") + "]", 204, ""},
		{"POST", "/api/v1/datapoints", "[" + point("own.secret", "t3") + "]", 400, "limited may only write metrics"},
		{"POST", "/api/put?details", `{"metric":"other.secret","timestamp":1,"value":1,"tags":{"t4":"v-t4"}}`, 400, "may only write metrics"},
		{"POST", "/api/v1/import", point("own.secret", "t3"), 400, "may only write metrics"},
		{"POST", "/api/v1/datapoints/delete", foreign(`{"start_absolute":0,"metrics":[{"name":%q}]}`), 403, "only"},
		{"DELETE", "/api/v1/metric/own.secret", "", 403, "only"},
		{"POST", "/tags/delSeries", "path=own.secret%3Bt3%3Dv-t3", 403, "only"},
		{"DELETE", "/api/v1/metric/own.xy", "", 204, ""},
		{"GET", "/api/v1/metricnames", "", 200, `{"results":["own.x.a","own.x.new","own.x.path"]}`},
	} {
		status, text := ask("limited", test.method, test.path, test.body)
		if test.status != 0 && status != test.status || !strings.Contains(text, test.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", test.method, test.path, test.body, status, text, test.status, test.want)
		}
		if status == 200 {
			for _, leak := range []string{"secret", "t3", "t4", "saved"} {
				if strings.Contains(text, leak) && !strings.Contains(test.path, leak) && !strings.Contains(test.body, leak) {
					t.Errorf("%s %s shows %s: %s", test.method, test.path, leak, text)
				}
			}
		}
	}
	if status, text := ask("all", "GET", "/api/v1/metricnames", ""); status != 200 || text != `{"results":["other.secret","other.secret.path","own.secret","own.secret.path","own.x.a","own.x.new","own.x.path"]}` {
		t.Errorf("afterwards: %d %s", status, text)
	}
}
