package clients

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// facts are observed behaviours of client programs, each with what it requires
// of a server. Facts without a test concern protocols that Varve does not
// support, or nothing that a server does.
var facts = []struct {
	number int
	what   string
	proof  func(*testing.T)
}{
	{1, "the Java client loses a connection for each error with a body that is no JSON 400", errorsLeaveConnections},
	{2, "it wants a JSON type on each 200, the type in group_by, a version in JSON", answersAreJSON},
	{3, "it ends paths of roll-ups with a slash, and escapes slashes in names", pathsAreTakenAsSent},
	{4, "gzip comes chunked and with a length", bothGzips},
	{5, "a connection that ends without notice loses a push", closesAreAnnounced},
	{6, "Prometheus drops on 429", nil},
	{7, "vmagent drops on 400", nil},
	{8, "Telegraf's OpenTSDB output drops on any 4xx", overloadIs503},
	{9, "opentsdb-py repeats a batch for ever unless details are answered by 200", putDetails},
	{10, "netdata puts empty arrays, no bytes at all, and lines", putsWithoutPoints},
	{11, "statsd puts without tags, and with words in the wrong order", untaggedPuts},
	{12, "nan and inf arrive", notFinite},
	{13, "values of 300 digits, long lines, integers beyond 64 bits", longValues},
	{14, "pickle protocols 0, 1, 2 and 4 are in use", nil},
	{15, "raw UTF-8 is in pickles", nil},
	{16, "lines end with CRLF and have runs of blanks, and blanks in names", blanks},
	{17, "Micrometer sends tags with empty values", emptyTagValues},
	{18, "Grafana sends numbers as texts and reads answers by position", lenientNumbers},
	{19, "Grafana sends align_sampling to rate", alignedRate},
	{20, "python-kairosdb sends bodies with GET and DELETE", bodiesOfGets},
	{21, "npm kairosdb counts characters as bytes", wrongLength},
	{22, "connections come and go with nothing sent", emptyConnections},
	{23, "senders never read, and resets are a normal end", silentTelnet},
	{24, "a reset costs the write in flight", drainedBeforeClose},
	{25, "curl waits for 100 Continue and sends a form's type", expectContinue},
	{26, "Prometheus sends metadata without series", nil},
	{27, "tags come in any order, and with a second equals sign", tagOrder},
	{28, "clients name one metric differently by protocol", nil},
}

// TestFacts proves the facts one by one, over sockets.
func TestFacts(t *testing.T) {
	process.SkipShort(t)
	for i, f := range facts {
		if f.number != i+1 {
			t.Fatalf("fact %d stands at place %d", f.number, i+1)
		}
		if f.proof == nil {
			continue
		}
		t.Run(fmt.Sprintf("%02d %s", f.number, f.what), func(t *testing.T) {
			t.Parallel()
			f.proof(t)
		})
	}
}

// point is a body of one point of a metric, in KairosDB's form.
func point(metric string, value int) string {
	return fmt.Sprintf(`[{"name":%q,"tags":{"h":"a"},"datapoints":[[1700000000000,%d]]}]`, metric, value)
}

// putPoint is the same in OpenTSDB's form.
func putPoint(metric string) string {
	return fmt.Sprintf(`{"metric":%q,"timestamp":1700000000,"value":1,"tags":{"h":"a"}}`, metric)
}

const (
	push   = "/api/v1/datapoints"
	ask    = "/api/v1/datapoints/query"
	gotAll = `{"start_absolute":0,"metrics":[{"name":%q}]}`
)

func errorsLeaveConnections(t *testing.T) {
	s := process.Start(t, t.TempDir(), smallBodies...)
	release := occupy(t, s)
	w := dial(t, s.HTTP)
	for range 4 {
		r := w.want(http.StatusServiceUnavailable, "POST", push, point("m", 1))
		if r.ContentLength != 0 || r.body != "" || r.Close {
			t.Errorf("overload is answered with length %d, body %q, close %v; want an empty body on a connection that stays", r.ContentLength, r.body, r.Close)
		}
	}
	release()
	w.want(http.StatusNoContent, "POST", push, point("m", 1))
	for _, c := range []struct{ method, path, body string }{
		{"POST", push, `[{"name":"","tags":{"h":"a"},"datapoints":[[1,1]]}]`},
		{"POST", push, `nonsense`},
		{"POST", ask, `{"metrics":[{"name":"m"}]}`},
		{"POST", ask, `nonsense`},
		{"POST", ask + "/tags", `{"metrics":[{"name":"m"}]}`},
		{"POST", "/api/v1/datapoints/delete", `{"metrics":[{"name":"m"}]}`},
		{"POST", "/api/v1/rollups/", `{"name":"t"}`},
		{"GET", ask + "?query=x", ""},
	} {
		r := w.want(http.StatusBadRequest, c.method, c.path, c.body)
		if got := r.Header.Get("Content-Type"); got != "application/json" || !strings.HasPrefix(r.body, `{"errors":[`) {
			t.Errorf("%s %s: 400 of type %q: %s", c.method, c.path, got, r.body)
		}
	}
	for _, c := range []struct {
		status       int
		method, path string
	}{
		{http.StatusNotFound, "GET", "/api/v1/nosuch"},
		{http.StatusMethodNotAllowed, "DELETE", push},
	} {
		if r := w.want(c.status, c.method, c.path, ""); r.body != "" || r.ContentLength != 0 {
			t.Errorf("%s %s has a body: %s", c.method, c.path, r.body)
		}
	}
}

func answersAreJSON(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", push, point("m", 1)[:len(point("m", 1))-1]+`,{"name":"s","type":"string","tags":{"h":"a"},"datapoints":[[1700000000000,"x"]]}]`)
	for _, path := range []string{"metricnames", "tagnames", "tagvalues", "version", "health/status", "features", "rollups/"} {
		if got := w.want(http.StatusOK, "GET", "/api/v1/"+path, "").Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
			t.Errorf("%s has the type %q", path, got)
		}
	}
	for metric, kind := range map[string]string{"m": "number", "s": "text"} {
		r := w.want(http.StatusOK, "POST", ask, fmt.Sprintf(gotAll, metric))
		if got := r.Header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
			t.Errorf("a query's answer has the type %q", got)
		}
		if want := `"group_by":[{"name":"type","type":"` + kind + `"}]`; !strings.Contains(r.body, want) {
			t.Errorf("%s is not in %s", want, r.body)
		}
	}
	if body := w.ask("GET", "/api/v1/version", "").body; !regexp.MustCompile(`^\{"version": "KairosDB 1\.3\.[^"]+"\}\s*$`).MatchString(body) {
		t.Errorf("the version is %s", body)
	}
}

func pathsAreTakenAsSent(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	task := `{"name":"t","execution_interval":{"value":1,"unit":"DAYS"},"rollups":[{"save_as":"r","query":{"cache_time":0,"metrics":[{"name":"m","tags":{},"group_by":[],"aggregators":[{"sampling":{"value":1,"unit":"MINUTES"},"name":"max"}],"exclude_tags":false}],"start_relative":{"value":1,"unit":"HOURS"}}}]}`
	for _, path := range []string{"/api/v1/rollups/", "/api/v1/rollups"} {
		w.want(http.StatusOK, "POST", path, task)
		w.want(http.StatusOK, "GET", path, "")
	}
	for _, path := range []string{"/api/v1/metricnames/", "/api/v1/version/", "/api/v1/health/check/"} {
		if r := w.ask("GET", path, ""); r.StatusCode != http.StatusOK && r.StatusCode != http.StatusNoContent {
			t.Errorf("%s: status %d", path, r.StatusCode)
		}
	}
	for _, metric := range []string{"a/b", "a", "b", "c d"} {
		w.want(http.StatusNoContent, "POST", push+"/", point(metric, 1))
	}
	w.want(http.StatusNoContent, "DELETE", "/api/v1/metric/a%2Fb", "")
	w.want(http.StatusNoContent, "DELETE", "/api/v1/metric/c%20d/", "")
	wantNames(t, s, "a", "b")
}

func bothGzips(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	for i, c := range []struct {
		path string
		body func(metric string) string
	}{
		{push, func(m string) string { return point(m, 1) }},
		{"/api/put", putPoint},
	} {
		w.want(http.StatusNoContent, "POST", c.path, gzipped(c.body(fmt.Sprintf("length%d", i))), "Content-Encoding: gzip", "Content-Type: application/json")
		w.send("POST " + c.path + " HTTP/1.1\r\nHost: v\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
		for rest := gzipped(c.body(fmt.Sprintf("chunked%d", i))); rest != ""; {
			n := min(10, len(rest))
			w.send(fmt.Sprintf("%x\r\n%s\r\n", n, rest[:n]))
			rest = rest[n:]
		}
		w.send("0\r\n\r\n")
		if r := w.answer("POST"); r.StatusCode != http.StatusNoContent {
			t.Errorf("chunked gzip to %s: status %d: %s", c.path, r.StatusCode, r.body)
		}
	}
	w.want(http.StatusNoContent, "POST", push, gzipped(point("deprecated", 1)), "Content-Type: application/gzip")
	wantNames(t, s, "length0", "chunked0", "length1", "chunked1", "deprecated")
}

func closesAreAnnounced(t *testing.T) {
	command := exec.CommandContext(t.Context(), process.Binary, "config")
	command.Env = process.Environment()
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ +idle_timeout: (\S+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no idle_timeout in %s", out)
	}
	if idle, err := time.ParseDuration(string(m[1])); err != nil || idle < 120*time.Second {
		t.Errorf("idle connections are closed after %s, KairosDB's clients count on 120s (%v)", m[1], err)
	}
	dir := t.TempDir()
	// The server stops once the connection has ended. Only a slow client makes it wait for the
	// whole grace period.
	s := process.Start(t, dir, "--tune=server.close_grace=20s", "--server-shutdown-timeout=50s")
	w := dial(t, s.HTTP)
	for range 2 { // requests that JDK and libcurl repeat on their own
		w.want(http.StatusNoContent, "POST", push, point("twice", 1))
	}
	if got := countPoints(t, s, "twice"); got != 1 {
		t.Errorf("a repeated push makes %d points, want 1", got)
	}
	s.Client.CloseIdleConnections()
	next := s.Log.Next("stopping: refusing new connections, completing requests in flight")
	stopped := make(chan error, 1)
	go func() {
		_, err := s.Terminate()
		stopped <- err
	}()
	select {
	case <-next:
	case <-time.After(process.AnswerWithin):
		t.Fatal("the server does not say that it stops")
	}
	if r := w.want(http.StatusNoContent, "POST", push, point("late", 1)); !r.Close {
		t.Error("the last answer of a stopping server does not announce the close")
	}
	if !w.closed() {
		t.Error("the connection stays open after its end was announced")
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := countPoints(t, process.Start(t, dir), "late"); got != 1 {
		t.Errorf("%d points of the push that was acknowledged while the server stopped", got)
	}
}

func overloadIs503(t *testing.T) {
	s := process.Start(t, t.TempDir(), smallBodies...)
	release := occupy(t, s)
	w := dial(t, s.HTTP)
	for _, path := range []string{"/api/put", "/api/put?details=true"} {
		if r := w.want(http.StatusServiceUnavailable, "POST", path, putPoint("m")); r.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	release()
	w.want(http.StatusNoContent, "POST", "/api/put", putPoint("m"))

	limited := process.Start(t, t.TempDir(), "--tune=ingest.new_series_burst=1", "--ingest-new-series-per-second=1")
	w = dial(t, limited.HTTP)
	w.want(http.StatusServiceUnavailable, "POST", "/api/put", "["+putPoint("a")+","+putPoint("b")+","+putPoint("c")+"]")
	w.want(http.StatusServiceUnavailable, "POST", push, `[{"name":"d","tags":{"h":"a"},"datapoints":[[1,1]]},{"name":"e","tags":{"h":"a"},"datapoints":[[1,1]]}]`)
}

func putDetails(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	bad := `{"metric":"m","timestamp":1700000000,"value":"x","tags":{"h":"a"}}`
	for _, c := range []struct {
		query, body string
		status      int
		answer      string
	}{
		{"", putPoint("m"), 204, ""},
		{"", "[" + putPoint("m") + "," + putPoint("n") + "]", 204, ""},
		{"?details=true", putPoint("m"), 200, `{"errors":[],"failed":0,"success":1}`},
		{"?details", "[" + putPoint("m") + "," + putPoint("n") + "]", 200, `{"errors":[],"failed":0,"success":2}`},
		{"?summary", putPoint("m"), 200, `{"failed":0,"success":1}`},
		{"?summary=true", "[" + putPoint("m") + "," + bad + "]", 400, `{"failed":1,"success":1}`},
	} {
		if r := w.want(c.status, "POST", "/api/put"+c.query, c.body); c.answer != "" && !sameJSON(t, r.body, c.answer) {
			t.Errorf("/api/put%s %s: answer %s, want %s", c.query, c.body, r.body, c.answer)
		}
	}
}

func putsWithoutPoints(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", "/api/put", "[\n]\n")
	w.want(http.StatusNoContent, "POST", "/api/put", "", "Content-Type: application/graphite", "Content-Length: 0")
	w.want(http.StatusNoContent, "POST", "/api/put", "", "Content-Type: application/json", "Content-Length: 0")
	w.want(http.StatusNoContent, "POST", "/api/put", "nd.cpu;host=h1 1.5000000 1700000000\nnd.plain 2 1700000000\n", "Content-Type: application/graphite")
	w.want(http.StatusNoContent, "POST", "/api/put", "[\n"+putPoint("json")+"\n]\n", "Content-Type: application/json")
	wantNames(t, s, "nd.cpu", "nd.plain", "json")
	if got := tagsOf(t, s, "nd.cpu"); got != "map[host:[h1]]" {
		t.Errorf("tags of a line are %s", got)
	}
}

// byTelnet sends lines, waits until the last of them, a point of the metric
// end, is stored, and checks how many lines were refused for each reason.
func byTelnet(t *testing.T, s *process.Server, lines string, refused map[string]float64) {
	t.Helper()
	w := dial(t, s.Telnet)
	w.send(lines + "put end 1700000000 1 h=a\n")
	if err := process.Until(t.Context(), "end", func() (bool, error) { return countPoints(t, s, "end") == 1, nil }); err != nil {
		t.Fatal(err)
	}
	if !w.silent() {
		t.Error("the server wrote to a client of telnet, or closed the connection")
	}
	want := map[string]float64{}
	for reason, n := range refused {
		want[fmt.Sprintf(`protocol="telnet",reason=%q`, reason)] = n
	}
	if got := rejected(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("refused were %v, want %v", got, want)
	}
}

func untaggedPuts(t *testing.T) {
	s := process.Start(t, t.TempDir())
	byTelnet(t, s, "put statsd.count 1700000000 3 \nput statsd.bare 1700000000 3\nput statsd.x .last_exception 1795294146 1795294147\n", map[string]float64{"bad_time": 1})
	wantNames(t, s, "statsd.count", "statsd.bare", "end")
	for _, metric := range []string{"statsd.count", "statsd.bare"} {
		if got := tagsOf(t, s, metric); got != "map[add:[tag]]" {
			t.Errorf("tags of %s are %s, want KairosDB's add=tag", metric, got)
		}
	}
}

func notFinite(t *testing.T) {
	s := process.Start(t, t.TempDir())
	byTelnet(t, s, "put m 1700000000 inf h=a\nput m 1700000001 -inf h=a\nput m 1700000002 nan h=a\nput m 1700000003 NaN h=a\nput m 1700000004 Infinity h=a\nput m 1700000005 2.5 h=a\n",
		map[string]float64{"not_finite": 5})
	w := dial(t, s.HTTP)
	w.want(http.StatusBadRequest, "POST", "/api/put", `[{"metric":"m","timestamp":1700000008,"value":"Infinity","tags":{"h":"a"}},{"metric":"m","timestamp":1700000009,"value":4,"tags":{"h":"a"}}]`)
	results, err := s.Query(t.Context(), fmt.Sprintf(gotAll, "m"))
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	if got := fmt.Sprintf("%s", results[0].Values); got != "[[1700000005000 2.5] [1700000009000 4]]" {
		t.Errorf("stored were %s", got)
	}
}

func longValues(t *testing.T) {
	s := process.Start(t, t.TempDir())
	long := strings.Repeat("x", 1000)
	byTelnet(t, s, "put m 1700000000 1"+strings.Repeat("0", 300)+" h=a\nput m 1700000001 18446744073709551616 h=a\nput m 1700000002 9223372036854775807 h=a\nput m 1700000003 5 h="+long+" i="+long+"\n", nil)
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", push, `[{"name":"m","tags":{"h":"a"},"datapoints":[[1700000004000,1`+strings.Repeat("0", 300)+`],[1700000005000,18446744073709551616]]}]`)
	body := w.want(http.StatusOK, "POST", ask, fmt.Sprintf(gotAll, "m")).body
	for _, value := range []string{"[1700000000000,1.0E300]", "[1700000001000,1.8446744073709552E19]", "[1700000002000,9223372036854775807]", "[1700000003000,5]", "[1700000004000,1.0E300]", "[1700000005000,1.8446744073709552E19]"} {
		if !strings.Contains(body, value) {
			t.Errorf("%s is not in the answer %s", value, body)
		}
	}
}

func blanks(t *testing.T) {
	s := process.Start(t, t.TempDir())
	byTelnet(t, s, "put load.short 1700000000 2.5 fqdn=h1.example  status=production dc=a\r\nput load.short 1700000001 2.5 fqdn=h1.example  \r\n"+
		"put pfx.c x.count 3 1795294455\nput bad 1700000000 1 path=/a b\n", map[string]float64{"bad_tag": 1, "bad_time": 1})
	wantNames(t, s, "load.short", "end")
	if got, want := tagsOf(t, s, "load.short"), "map[dc:[a] fqdn:[h1.example] status:[production]]"; got != want {
		t.Errorf("tags are %s, want %s", got, want)
	}
	if got := countPoints(t, s, "load.short"); got != 2 {
		t.Errorf("%d points, want 2", got)
	}
}

func emptyTagValues(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	r := w.want(http.StatusBadRequest, "POST", push, `[{"name":"before","datapoints":[[1700000000000,6]],"tags":{"host":"h 1"}},{"name":"http_requests","datapoints":[[1700000000000,6]],"tags":{"host":"h 1","status":""}},{"name":"after","datapoints":[[1700000000000,6]],"tags":{"host":"h 1"}}]`)
	if want := `{"errors":["metric[1](name=http_requests).tag[status].value may not be empty."]}`; r.body != want {
		t.Errorf("the answer is %s, want %s", r.body, want)
	}
	r = w.want(http.StatusBadRequest, "POST", "/api/put?details", `[{"metric":"no","timestamp":1700000000,"value":1,"tags":{"h":""}},`+putPoint("put")+`]`)
	if !strings.Contains(r.body, "tag h is empty") || !strings.Contains(r.body, `"success":1`) {
		t.Errorf("the answer is %s", r.body)
	}
	wantNames(t, s, "before", "after", "put")
}

func lenientNumbers(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", push, point("m", 4))
	r := w.want(http.StatusOK, "POST", ask, `{"cache_time":0,"start_absolute":1700000000000,"end_absolute":1700003600000,"metrics":[{"limit":0,"name":"none","tags":{},"aggregators":[],"group_by":[]},
		{"limit":0,"name":"m","tags":{},"aggregators":[{"name":"avg","sampling":{"value":"1","unit":"HOURS"}},{"name":"div","divisor":"2"}],"group_by":[{"name":"value","range_size":"10"}]},
		{"limit":0,"name":"none","tags":{},"aggregators":[],"group_by":[]}]}`)
	empty := `{"sample_size":0,"results":[{"name":"none","tags":{},"values":[]}]}`
	want := `{"queries":[` + empty + `,{"sample_size":1,"results":[{"name":"m","group_by":[{"name":"value","range_size":10,"group":{"group_number":0}},{"name":"type","type":"number"}],"tags":{"h":["a"]},"values":[[1700000000000,2]]}]},` + empty + `]}`
	if !sameJSON(t, r.body, want) {
		t.Errorf("the answer is %s, want %s", r.body, want)
	}
}

func alignedRate(t *testing.T) {
	s := process.Start(t, t.TempDir())
	r := dial(t, s.HTTP).want(http.StatusBadRequest, "POST", ask, `{"start_absolute":1,"metrics":[{"name":"m","aggregators":[{"name":"rate","align_sampling":true,"unit":"SECONDS"}]}]}`)
	if !strings.Contains(r.body, "align_sampling") {
		t.Errorf("the answer does not name the property: %s", r.body)
	}
}

func bodiesOfGets(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	for _, path := range []string{"version", "health/status", "health/check", "metricnames", "tagnames", "tagvalues", "features", "rollups", "nosuch"} {
		w.request("GET", "/api/v1/"+path, "{}", "Content-Type: application/json")
	}
	w.request("DELETE", "/api/v1/metric/a", "{}")
	w.request("DELETE", "/api/v1/rollups/a", "{}")
	w.request("POST", push, point("m", 1))
	var got []int
	for range 12 {
		got = append(got, w.answer("GET").StatusCode)
	}
	if want := []int{200, 200, 204, 200, 200, 200, 200, 200, 404, 204, 404, 204}; !slices.Equal(got, want) {
		t.Errorf("statuses on one connection are %v, want %v", got, want)
	}
}

func wrongLength(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	body := `[{"name":"m é","timestamp":1700000000000,"value":321,"tags":{"host":"server"}}]`
	cut := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\n\r\n", push, len([]rune(body)))
	w.send(cut + body + cut + body)
	if r := w.answer("POST"); r.StatusCode != http.StatusBadRequest || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a body that is cut off: %d %s", r.StatusCode, r.body)
	}
	if r := w.answer("POST"); r.StatusCode != http.StatusBadRequest || !r.Close {
		t.Errorf("a request line that begins with the rest of a body: %d, close %v", r.StatusCode, r.Close)
	}
	if !w.closed() {
		t.Error("the connection goes on")
	}
}

func emptyConnections(t *testing.T) {
	s := process.Start(t, t.TempDir())
	for range 100 {
		for _, address := range []string{s.HTTP, s.Telnet} {
			dial(t, address).conn.Close()
		}
	}
	byTelnet(t, s, "", nil)
	if fault := s.Log.Fault(); fault != "" {
		t.Errorf("connections without a byte are worth a line in the log: %s", fault)
	}
	if strings.Contains(s.Log.Tail(), "connection ended") {
		t.Errorf("the log is\n%s", s.Log.Tail())
	}
}

func silentTelnet(t *testing.T) {
	s := process.Start(t, t.TempDir())
	byTelnet(t, process.Start(t, t.TempDir()), "nonsense\nput m 1 1 bad\n\n", map[string]float64{"bad_command": 1, "bad_tag": 1})
	w := dial(t, s.Telnet)
	w.send("put m 1700000001 1 h=a\nversion\n")
	if line, err := w.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "KairosDB 1.3.0") {
		t.Errorf("version is answered by %q, %v", line, err)
	}
	// A sender that resets its connection after what it has sent arrived.
	w.send("put m 1700000002 1 h=a\nversion\n")
	if _, err := w.in.Peek(1); err != nil {
		t.Fatal(err)
	}
	w.conn.SetLinger(0)
	w.conn.Close()
	if got := countPoints(t, s, "m"); got != 2 {
		t.Errorf("%d points, want 2", got)
	}
	s.Stop(t)
	if fault := s.Log.Fault(); fault != "" {
		t.Errorf("a reset is worth a line in the log: %s", fault)
	}
}

func drainedBeforeClose(t *testing.T) {
	dir := t.TempDir()
	s := process.Start(t, dir)
	w := dial(t, s.Telnet)
	const lines = 20_000
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "putm m %d %d h=a\n", 1700000000000+i, i)
	}
	w.send(b.String()) // the lines are now in the buffers of both kernels' sockets and of the server
	s.Stop(t)
	if !w.closed() {
		t.Error("the connection stays open")
	}
	if got := countPoints(t, process.Start(t, dir), "m"); got != lines {
		t.Errorf("%d of %d points were stored by a server that stopped", got, lines)
	}
}

func expectContinue(t *testing.T) {
	s := process.Start(t, t.TempDir())
	w := dial(t, s.HTTP)
	var b strings.Builder
	b.WriteString(`[{"name":"large","tags":{"h":"a"},"datapoints":[`)
	const points = 60_000
	for i := range points {
		fmt.Fprintf(&b, "[%d,%d],", 1700000000000+i, i)
	}
	body := strings.TrimSuffix(b.String(), ",") + "]}]"
	w.send(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: v\r\nContent-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", push, len(body)))
	if line, err := w.in.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("the first line is %q, %v", line, err)
	}
	w.in.ReadString('\n')
	w.send(body)
	if r := w.answer("POST"); r.StatusCode != http.StatusNoContent {
		t.Errorf("status %d: %s", r.StatusCode, r.body)
	}
	if got := countPoints(t, s, "large"); got != points {
		t.Errorf("%d of %d points", got, points)
	}
	for _, contentType := range []string{"Content-Type: text/html", "Content-Type: nonsense", "X-None: 1"} {
		w.want(http.StatusNoContent, "POST", push, point("typed", 1), contentType)
		w.want(http.StatusOK, "POST", ask, fmt.Sprintf(gotAll, "typed"), contentType)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		return // this client does nothing else
	}
	ctx, cancel := context.WithTimeout(t.Context(), programRuns)
	defer cancel()
	c := process.Command(ctx, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", "@-", "http://"+s.HTTP+push)
	c.Stdin = strings.NewReader(strings.ReplaceAll(body, "large", "curled"))
	if out, err := c.CombinedOutput(); err != nil || string(out) != "204" {
		t.Errorf("curl: %v, %s", err, out)
	}
	if got := countPoints(t, s, "curled"); got != points {
		t.Errorf("%d of %d points by curl", got, points)
	}
}

func tagOrder(t *testing.T) {
	s := process.Start(t, t.TempDir())
	byTelnet(t, s, "put m 1700000000 1 b=2 a=1\nput m 1700000001 1 a=1 b=2\nput m 1700000002 1 b=2=3 a=1=\n", nil)
	w := dial(t, s.HTTP)
	w.want(http.StatusNoContent, "POST", push, `[{"name":"m","tags":{"b":"2","a":"1"},"datapoints":[[1700000003000,1]]},{"name":"m","tags":{"a":"1","b":"2"},"datapoints":[[1700000004000,1]]}]`)
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tagsOf(t, s, "m"), "map[a:[1] b:[2]]"; got != want || countPoints(t, s, "m") != 5 {
		t.Errorf("tags are %s of %d points, want %s of 5", got, countPoints(t, s, "m"), want)
	}
	if got := m.Sum("varve_store_series"); got != 2 {
		t.Errorf("%v series, want 2, end among them", got)
	}
}
