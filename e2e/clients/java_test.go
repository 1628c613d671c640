package clients

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// smallBodies let two requests with unfinished bodies take all memory for
// bodies, so that all other requests are refused at once as overload.
var smallBodies = []string{"--tune=ingest.max_body_bytes=1MiB", "--tune=ingest.max_unpacked_bytes=1MiB", "--ingest-body-memory=2MiB", "--tune=ingest.busy_wait=50ms"}

// occupy takes all memory for bodies of a server with smallBodies until release
// is called.
func occupy(t *testing.T, s *process.Server) (release func()) {
	t.Helper()
	var held []net.Conn
	unanswered := func() int {
		held = slices.DeleteFunc(held, answered) // this request was refused itself, because another one holds the memory
		return len(held)
	}
	closeAll := func() {
		for _, conn := range held {
			conn.Close()
		}
	}
	t.Cleanup(func() { closeAll() })
	body := "[" + strings.Repeat(" ", 1<<20-2)
	err := process.Until(t.Context(), "refuse a request", func() (bool, error) {
		if unanswered() < 2 {
			conn, err := net.Dial("tcp", s.HTTP)
			if err != nil {
				return false, err
			}
			fmt.Fprintf(conn, "POST /api/v1/datapoints HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\n\r\n%s", 1<<20, body)
			held = append(held, conn)
		}
		status, _, err := s.Do(t.Context(), "POST", "/api/v1/datapoints", onePoint)
		return status == http.StatusServiceUnavailable && unanswered() == 2, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		closeAll()
		err := process.Until(t.Context(), "take a request again", func() (bool, error) {
			status, _, err := s.Do(t.Context(), "POST", "/api/v1/datapoints", onePoint)
			return status == http.StatusNoContent, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// answered reports whether an answer came over conn. If so, it closes conn.
func answered(conn net.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	n, _ := conn.Read(make([]byte, 1))
	if n > 0 {
		conn.Close()
	}
	return n > 0
}

const onePoint = `[{"name":"one","tags":{"host":"a"},"datapoints":[[1700000000000,1]]}]`

// pushed are the points that the Java client pushes before it queries: two
// series of numbers, one of them with another tag, and texts.
const pushed = `{"metrics":[
	{"name":"j.m","tags":{"host":"a","city":"Zürich"},"points":[[1700000000000,10],[1700000060000,30],[1700003600000,20]]},
	{"name":"j.m","tags":{"host":"b"},"points":[[1700000000001,1.5],[1700000120000,-2.0],[1700003600001,1.0e300]]},
	{"name":"j.s","type":"string","tags":{"host":"a"},"points":[[1700000000000,"text \"q\" <&> é"]]}]}`

// javaQueries are queries of the client's builders, and the client's reading of
// the answers. Together they use every option of the builders.
var javaQueries = []struct{ name, query, want string }{
	{"all of it", `{"start":1700000000000,"end":1700007200000,"metrics":[{"name":"j.m"},{"name":"j.s"},{"name":"none"}]}`,
		`[{"sampleSize":6,"results":[{"name":"j.m","tags":{"host":["a","b"],"city":["Zürich"]},"groups":["type number"],"points":[
			[1700000000000,10],[1700000000001,1.5],[1700000060000,30],[1700000120000,-2],[1700003600000,20],[1700003600001,1.0E300]]}]},
		{"sampleSize":1,"results":[{"name":"j.s","tags":{"host":["a"]},"groups":["type text"],"points":[[1700000000000,"text \"q\" <&> é"]]}]},
		{"sampleSize":0,"results":[{"name":"none","tags":{},"groups":[],"points":[]}]}]`},
	{"tags, limit, order, no tags, cache", `{"start":1700000000000,"cache":30,"metrics":[{"name":"j.m","tags":{"host":["a","c"]},"limit":2,"order":"DESCENDING","exclude_tags":true}]}`,
		`[{"sampleSize":2,"results":[{"name":"j.m","tags":{},"groups":["type number"],"points":[[1700003600000,20],[1700000060000,30]]}]}]`},
	{"group by tag", `{"start":1700000000000,"end":1700000000001,"metrics":[{"name":"j.m","groups":[["tag","host"]]}]}`,
		`[{"sampleSize":2,"results":[
		{"name":"j.m","tags":{"host":["a"],"city":["Zürich"]},"groups":["tag {host=a}","type number"],"points":[[1700000000000,10]]},
		{"name":"j.m","tags":{"host":["b"]},"groups":["tag {host=b}","type number"],"points":[[1700000000001,1.5]]}]}]`},
	{"group by time, value and bin", `{"start":1700000000000,"end":1700000060000,"metrics":[{"name":"j.m","tags":{"host":["a"]},"groups":[["time",1,"MINUTES",3],["value",15],["bin",11,20.5]]}]}`,
		`[{"sampleSize":2,"results":[
		{"name":"j.m","tags":{"host":["a"],"city":["Zürich"]},"groups":["time 0 of 3","value 0 by 15","bin 0 of [11.0, 20.5]","type number"],"points":[[1700000000000,10]]},
		{"name":"j.m","tags":{"host":["a"],"city":["Zürich"]},"groups":["time 1 of 3","value 2 by 15","bin 2 of [11.0, 20.5]","type number"],"points":[[1700000060000,30]]}]}]`},
	{"days of a time zone", `{"start":1699999200000,"end":1700100000000,"zone":"Asia/Kolkata","metrics":[{"name":"j.m","tags":{"host":["a"]},"exclude_tags":true,"aggregators":[["sum",1,"DAYS","sampling"]]}]}`,
		`[{"sampleSize":3,"results":[{"name":"j.m","tags":{},"groups":["type number"],"points":[[1700000000000,60]]}]}]`},
	{"align to the start", `{"start":1700000000000,"end":1700003600000,"metrics":[{"name":"j.m","tags":{"host":["a"]},"exclude_tags":true,"aggregators":[["count",1,"HOURS","start"]]}]}`,
		`[{"sampleSize":3,"results":[{"name":"j.m","tags":{},"groups":["type number"],"points":[[1699999200000,2],[1700002800000,1]]}]}]`},
	{"align to the end", `{"start":1700000000000,"end":1700000100000,"metrics":[{"name":"j.m","tags":{"host":["a"]},"exclude_tags":true,"aggregators":[["max",1,"HOURS","end"]]}]}`,
		`[{"sampleSize":2,"results":[{"name":"j.m","tags":{},"groups":["type number"],"points":[[1700002800000,30]]}]}]`},
}

// javaAggregators are the other aggregators, on the points 10, 30 and 20 of
// host a at 0, 60 and 3600 seconds.
var javaAggregators = []struct{ aggregators, want string }{
	{`["min",2,"HOURS","start"]`, `[[1699999200000,10]]`},
	{`["avg",2,"HOURS","start"]`, `[[1699999200000,20]]`},
	{`["dev",2,"HOURS","start"]`, `[[1699999200000,10]]`},
	{`["first",2,"HOURS","start"]`, `[[1699999200000,10]]`},
	{`["last",2,"HOURS","start"]`, `[[1699999200000,20]]`},
	{`["percentile",0.5,2,"HOURS"]`, `[[1700000000000,20]]`},
	{`["gaps",30,"MINUTES","start"]`, `[[1700000000000,10],[1700000060000,30],[1700001000000,null],[1700003600000,20],[1700004600000,null],[1700006400000,null]]`},
	{`["least_squares",1,"HOURS","start"]`, `[[1700000000000,10],[1700000060000,30],[1700003600000,20]]`},
	{`["diff"]`, `[[1700000060000,20],[1700003600000,-10]]`},
	{`["rate","SECONDS"]`, `[[1700000060000,0.3333333333333333],[1700003600000,-0.002824858757062147]]`},
	{`["sampler"]`, `[[1700000060000,5.0E-4],[1700003600000,5.649717514124294E-6]]`},
	{`["sma",2]`, `[[1700000060000,20],[1700003600000,25]]`},
	{`["scale",1.5]`, `[[1700000000000,15],[1700000060000,45],[1700003600000,30]]`},
	{`["div",4]`, `[[1700000000000,2.5],[1700000060000,7.5],[1700003600000,5]]`},
	{`["trim","FIRST"]`, `[[1700000060000,30],[1700003600000,20]]`},
	{`["trim","LAST"]`, `[[1700000000000,10],[1700000060000,30]]`},
	{`["trim","BOTH"]`, `[[1700000060000,30]]`},
	{`["filter","LT",20]`, `[[1700000060000,30],[1700003600000,20]]`},
	{`["filter","LTE",20]`, `[[1700000060000,30]]`},
	{`["filter","GT",20]`, `[[1700000000000,10],[1700003600000,20]]`},
	{`["filter","GTE",20]`, `[[1700000000000,10]]`},
	{`["filter","EQUAL",20]`, `[[1700000000000,10],[1700000060000,30]]`},
	{`["custom","sum","\"sampling\":{\"value\":1,\"unit\":\"weeks\"},\"align_start_time\":true"]`, `[[1699833600000,60]]`},
	{`["sum",1,"HOURS","start"],["max",1,"YEARS","start"]`, `[[1672531200000,40]]`},
	{`["save_as","j.saved"]`, `[[1700000000000,10],[1700000060000,30],[1700003600000,20]]`},
}

// TestKairosJavaClient takes one instance of KairosDB's Java client, with its
// pool of two connections, through everything that a server does.
func TestKairosJavaClient(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	dir := t.TempDir()
	s := process.Start(t, dir, smallBodies...)
	j := startShell(t, "http://"+s.HTTP)

	j.call("push", pushed)
	j.call("push", `{"gzip":true,"metrics":[{"name":"a/b","tags":{"host":"a"},"points":[[1700000000000,1]]}]}`)
	if got, want := j.call("names", `{}`), `["a/b","j.m","j.s"]`; !sameJSON(t, got, want) {
		t.Errorf("names are %s, want %s", got, want)
	}
	if got := j.call("version", `{}`); !strings.Contains(got, "KairosDB 1.3.0") {
		t.Errorf("the version is %s", got)
	}
	if got, want := j.call("status", `{}`), `["JVM-Thread-Deadlock: OK","Datastore-Query: OK"]`; !sameJSON(t, got, want) {
		t.Errorf("the status is %s, want %s", got, want)
	}
	if got := j.call("check", `{}`); got != "204" {
		t.Errorf("the health check returns %s, want 204", got)
	}
	if got, want := j.call("tags", `{"name":"j.m","tags":{"host":"a"}}`), `[{"name":"j.m","tags":{}}]`; !sameJSON(t, got, want) {
		t.Errorf("tags of the last year are %s, want %s", got, want)
	}
	askByJava(t, j)
	javaErrors(t, j)
	javaRollups(t, j)
	javaDeletes(t, j)
	javaExpiry(t, j, s)
	javaOverload(t, j, s)
	s = javaRestart(t, j, s, dir)
	javaCrash(t, j, s, dir)
}

func askByJava(t *testing.T, j *shell) {
	for _, c := range javaQueries {
		if got := j.call("query", c.query); !sameJSON(t, got, c.want) {
			t.Errorf("%s: the client understood\n%s, want\n%s", c.name, compact(t, got), compact(t, c.want))
		}
	}
	for _, c := range javaAggregators {
		got := j.call("query", `{"start":1700000000000,"end":1700007200000,"metrics":[{"name":"j.m","tags":{"host":["a"]},"aggregators":[`+c.aggregators+`]}]}`)
		var understood []struct {
			Results []struct{ Points json.RawMessage }
		}
		if err := json.Unmarshal([]byte(got), &understood); err != nil || len(understood) != 1 || len(understood[0].Results) != 1 {
			t.Fatalf("%s: %v in %s", c.aggregators, err, got)
		}
		if got := string(understood[0].Results[0].Points); !sameJSON(t, got, c.want) {
			t.Errorf("%s: the client understood %s, want %s", c.aggregators, got, c.want)
		}
	}
	want := `[{"sampleSize":3,"results":[{"name":"j.saved","tags":{"saved_from":["j.m"]},"groups":["type number"],"points":[[1700000000000,10],[1700000060000,30],[1700003600000,20]]}]}]`
	if got := j.call("query", `{"start":1700000000000,"end":1700007200000,"metrics":[{"name":"j.saved"}]}`); !sameJSON(t, got, want) {
		t.Errorf("save_as stored %s, want %s", got, want)
	}
}

// javaErrors: a 400 with JSON is an exception with its status and costs no
// connection of the pool.
func javaErrors(t *testing.T, j *shell) {
	for range 3 {
		a := j.try("query", `{"start":1700000000000,"metrics":[{"name":"j.m","aggregators":[["custom","nosuch","\"a\":1"]]}]}`)
		if a.Status != http.StatusBadRequest {
			t.Errorf("an unknown aggregator: the client says %d %s", a.Status, a.Message)
		}
	}
}

func javaRollups(t *testing.T, j *shell) {
	created := j.call("createRollup", `{"name":"hourly","save_as":"j.r","query":{"start":"1 HOURS","metrics":[{"name":"j.m","aggregators":[["max",1,"MINUTES"]]}]}}`)
	var task struct{ ID, Name, Interval string }
	if err := json.Unmarshal([]byte(created), &task); err != nil || task.ID == "" {
		t.Fatalf("created %s (%v)", created, err)
	}
	want := fmt.Sprintf(`{"id":%q,"name":"hourly","interval":"1 HOURS","rollups":[{"save_as":"j.r","metrics":["j.m 1"]}]}`, task.ID)
	if got := j.call("rollup", `"`+task.ID+`"`); !sameJSON(t, got, want) {
		t.Errorf("the task is %s, want %s", got, want)
	}
	if got := j.call("rollups", `{}`); !sameJSON(t, got, "["+want+"]") {
		t.Errorf("the tasks are %s, want [%s]", got, want)
	}
	j.call("deleteRollup", `"`+task.ID+`"`)
	if got := j.call("rollups", `{}`); !sameJSON(t, got, "[]") {
		t.Errorf("after deletion the tasks are %s", got)
	}
}

func javaDeletes(t *testing.T, j *shell) {
	j.call("deleteMetric", `"a%2Fb"`) // the client escapes nothing
	j.call("deleteMetric", `"j.saved"`)
	j.call("deleteMetric", `"never.was"`)
	j.call("delete", `{"start":1700000000000,"end":1700000060000,"metrics":[{"name":"j.m","tags":{"host":["a"]}}]}`)
	if got, want := j.call("names", `{}`), `["j.m","j.s"]`; !sameJSON(t, got, want) {
		t.Errorf("after deletions names are %s, want %s", got, want)
	}
	got := j.call("query", `{"start":1700000000000,"end":1700003600000,"metrics":[{"name":"j.m","exclude_tags":true}]}`)
	want := `[{"sampleSize":3,"results":[{"name":"j.m","tags":{},"groups":["type number"],"points":[[1700000000001,1.5],[1700000120000,-2],[1700003600000,20]]}]}]`
	if !sameJSON(t, got, want) {
		t.Errorf("after a deletion there is %s, want %s", got, want)
	}
}

// javaExpiry pushes points of which one is older than its time-to-live, which
// counts from the write.
func javaExpiry(t *testing.T, j *shell, s *process.Server) {
	now := time.Now().UnixMilli()
	j.call("push", fmt.Sprintf(`{"metrics":[{"name":"j.ttl","ttl":3600,"tags":{"host":"a"},"points":[[%d,1],[%d,2]]}]}`, now-7200_000, now-60_000))
	got := j.call("query", `{"start":"1 DAYS","end":"1 SECONDS","metrics":[{"name":"j.ttl","exclude_tags":true}]}`)
	want := fmt.Sprintf(`[{"sampleSize":2,"results":[{"name":"j.ttl","tags":{},"groups":["type number"],"points":[[%d,1],[%d,2]]}]}]`, now-7200_000, now-60_000)
	if !sameJSON(t, got, want) {
		t.Errorf("with a time-to-live of an hour there is %s, want %s", got, want)
	}
}

// javaOverload: more answers of 503 than the pool has connections, then all
// kinds of calls work again.
func javaOverload(t *testing.T, j *shell, s *process.Server) {
	release := occupy(t, s)
	for range 5 {
		a := j.try("push", `{"metrics":[{"name":"j.busy","tags":{"host":"a"},"points":[[1700000000000,1]]}]}`)
		if a.Status != http.StatusServiceUnavailable {
			t.Errorf("a push to a busy server: the client says %d %s", a.Status, a.Message)
		}
	}
	// The server does not read this body completely. The answer may get lost when
	// the connection is closed, but the client must not lose a connection of its
	// pool.
	for range 3 {
		a := j.try("push", `{"metrics":[{"name":"j.busy","tags":{"host":"a"},"points":[`+points(30_000)+`]}]}`)
		if a.Status != http.StatusServiceUnavailable && !a.failed("SocketException") {
			t.Errorf("a large push to a busy server: the client says %s %d %s", a.Error, a.Status, a.Message)
		}
	}
	j.call("names", `{}`) // reads are not affected
	release()
	for i := range 4 {
		j.call("push", fmt.Sprintf(`{"gzip":true,"metrics":[{"name":"j.after","tags":{"host":"a"},"points":[[%d,1]]}]}`, 1700000000000+i))
	}
	if got := countPoints(t, s, "j.after"); got != 4 {
		t.Errorf("%d points after the overload, want 4", got)
	}
	if got := countPoints(t, s, "j.busy"); got != 0 {
		t.Errorf("%d points of pushes that were refused", got)
	}
}

// javaRestart stops the server while the client pushes, without a pause, and
// starts it again. The server announces each close of a connection, so a push never
// fails on a closed connection: it is either stored, or its connection is refused.
// Only a connection that the kernel has established and the server has not accepted
// is reset with the listener, and the client opens one at a time.
func javaRestart(t *testing.T, j *shell, s *process.Server, dir string) *process.Server {
	stopped := make(chan struct{})
	var acknowledged, refused, reset int
	push := func() {
		a := j.try("push", fmt.Sprintf(`{"metrics":[{"name":"j.restart","tags":{"host":"a"},"points":[[%d,1]]}]}`, 1700000000000+acknowledged))
		switch {
		case a.Error == nil:
			acknowledged++
		case a.failed("HttpHostConnectException"):
			refused++
		case a.failed("SocketException") && reset == 0:
			reset++
		default:
			t.Errorf("push %d while the server stops: %s %s", acknowledged, a.Error, a.Message)
		}
	}
	for range 20 {
		push()
	}
	go func() {
		defer close(stopped)
		s.Terminate()
	}()
	for end := false; !end; {
		select {
		case <-stopped:
			end = true
		default:
			push()
		}
	}
	push()
	if refused == 0 || acknowledged < 20 {
		t.Errorf("%d pushes were stored and %d refused while the server stopped", acknowledged, refused)
	}

	again := process.Start(t, dir, "--http-addr="+s.HTTP)
	for range 4 {
		push()
	}
	if got := countPoints(t, again, "j.restart"); got != acknowledged {
		t.Errorf("%d points of %d acknowledged pushes after a restart", got, acknowledged)
	}
	if got, want := j.call("names", `{}`), `["j.after","j.m","j.restart","j.s","j.ttl","one"]`; !sameJSON(t, got, want) {
		t.Errorf("after a restart names are %s, want %s", got, want)
	}
	return again
}

// javaCrash kills the server while the client pushes. All acknowledged points
// exist. Of the pushes after the next start, at most as many are lost as the
// client's pool has connections.
func javaCrash(t *testing.T, j *shell, s *process.Server, dir string) {
	acknowledged := 0
	push := func() bool {
		a := j.try("push", fmt.Sprintf(`{"metrics":[{"name":"j.crash","tags":{"host":"a"},"points":[[%d,1]]}]}`, 1700000000000+acknowledged))
		if a.Error == nil {
			acknowledged++
		}
		return a.Error == nil
	}
	killed := make(chan struct{})
	for range 20 {
		push()
	}
	go func() {
		defer close(killed)
		s.Kill()
	}()
	for push() {
	}
	<-killed
	again := process.Start(t, dir, "--http-addr="+s.HTTP)
	lost := 0
	for !push() {
		lost++
	}
	if lost > 2 {
		t.Errorf("%d pushes were lost after the start", lost)
	}
	if got := countPoints(t, again, "j.crash"); got < acknowledged || got > acknowledged+1 {
		t.Errorf("%d points of %d acknowledged pushes after a crash", got, acknowledged)
	}
	again.Stop(t)
}

// TestKairosJavaQueriesRefused: queries for which there is no memory are refused
// without a body as well, and the client continues to query.
func TestKairosJavaQueriesRefused(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	s := process.Start(t, t.TempDir(), "--query-total-memory=2MiB", "--query-max-wait=50ms")
	j := startShell(t, "http://"+s.HTTP)
	w := dial(t, s.HTTP)
	const series, each = 10, 30_000
	for i := range series {
		w.want(http.StatusNoContent, "POST", push, fmt.Sprintf(`[{"name":"big","tags":{"series":"%d"},"datapoints":[%s]}]`, i, points(each)))
	}
	const small = `{"start":1700000000000,"end":1700000000001,"metrics":[{"name":"big","exclude_tags":true,"aggregators":[["count",1,"HOURS"]]}]}`
	j.call("query", small)

	// An answer of 6 MB does not fit.
	const large = `{"start":1700000000000,"metrics":[{"name":"big","exclude_tags":true}]}`
	for range 4 {
		if a := j.try("query", large); a.Status != http.StatusServiceUnavailable {
			t.Errorf("a query without memory: the client says %s %d %s", a.Error, a.Status, a.Message)
		}
	}
	j.call("push", `{"metrics":[{"name":"small","tags":{"host":"a"},"points":[[1700000000000,1]]}]}`)
	for range 3 {
		j.call("query", small)
	}
	s.Stop(t)
}

// points returns n points for a push.
func points(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[%d,%d],", 1700000000000+i, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// countPoints counts a metric's points.
func countPoints(t *testing.T, s *process.Server, metric string) (n int) {
	t.Helper()
	results, err := s.Query(t.Context(), fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q}]}`, metric))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		n += len(r.Values)
	}
	return n
}
