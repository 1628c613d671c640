package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
)

// timelineCurl matches the forms that docs/timelines.md uses.
var timelineCurl = regexp.MustCompile(`(?s)^curl (-N )?(?:-X (\w+) )?(?:-H 'Content-Type: ([^']*)' )?'localhost:8080([^']*)'(?: -d '(.*)')?$`)

// Every example in docs/timelines.md works, top to bottom on an empty server.
func TestTimelineExamples(t *testing.T) { start(t, t.TempDir()).timelineExamples(t) }

func (p *process) timelineExamples(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/timelines.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := example.FindAllStringSubmatch(string(page), -1)
	if len(examples) < 14 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, ex := range examples {
		parts := timelineCurl.FindStringSubmatch(ex[1])
		if parts == nil {
			t.Fatalf("not understood: %s", ex[1])
		}
		method := parts[2]
		switch {
		case method != "":
		case parts[5] != "":
			method = http.MethodPost
		default:
			method = http.MethodGet
		}
		status, first, body := p.exchange(t, method, parts[4], parts[3], parts[5], parts[1] != "")
		switch {
		case parts[1] != "":
			if status != 200 || first != "retry: 1000\n" {
				t.Errorf("%s\n%d %s", ex[1], status, first)
			}
		case ex[2] == "":
			if status != http.StatusNoContent {
				t.Errorf("%s\n%d %s", ex[1], status, body)
			}
		case status != 200 || !fits(values(t, body), values(t, ex[2])):
			t.Errorf("%s\n got %d %s\nwant %s", ex[1], status, body, ex[2])
		}
	}
}

// exchange sends a request and returns its answer, or the first line of one without an end.
func (p *process) exchange(t *testing.T, method, path, kind, body string, endless bool) (status int, first, all string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+p.http+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	in := bufio.NewReader(answer.Body)
	if endless {
		first, err = in.ReadString('\n')
	} else {
		var text bytes.Buffer
		_, err = text.ReadFrom(in)
		all = text.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, first, all
}

// The command appends, reads and lays out; it reports lines that are refused.
func TestTimelineCommand(t *testing.T) { start(t, t.TempDir()).timelineCommands(t) }

func (p *process) timelineCommands(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, "in")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := func(status int, stdout, stderr string, args ...string) {
		t.Helper()
		got, out, errs := once(t, []string{"TZ=UTC"}, append(append([]string{"timeline"}, args...), "--http-addr="+p.http)...)
		if got != status || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
			t.Errorf("varve timeline %q: %d\n%s%s\nwant %d %s %s", args, got, out, errs, status, stdout, stderr)
		}
	}
	want(0, "", "2 events appended", "append", "a/b", "-f", file(`{"time":5,"id":"x","data":[1]}`+"\n\n"+`{"time":6,"id":"y","type":"t","data":2}`+"\n"), "--json")
	want(3, "", "line 2: the event has no", "append", "a/b", "-f", file(`{"time":7,"id":"z","data":3}`+"\n"+`{"time":6}`+"\n"), "--json")
	want(3, "", "line 1: the event has no", "append", "a/b", "-f", file(`{"time":6}`), "--json")
	want(0, `{"time":7,"id":"z","type":"","data":3}
{"time":6,"id":"y","type":"t","data":2}
{"time":5,"id":"x","type":"","data":[1]}
`, "", "read", "a/b")
	want(0, `{"time":5,"id":"x","type":"","data":[1]}
{"time":6,"id":"y"`, "", "read", "a/b", "--order", "asc", "--limit", "2")
	want(0, "", "2 events appended", "append", "log", "-f", file("2024-03-10  12:00:00 one\n2024-03-10 12:00:00 two\n"), "--time-format", "2006-01-02 15:04:05", "--type", "line")
	want(0, `"type":"line","data":"2024-03-10 12:00:00 two"}`, "", "read", "log", "--limit", "1")
	want(3, "", "line 1: the line does not begin with a time such as 2006 15:04", "append", "log", "-f", file("none\n"), "--time-format", "2006 15:04")
	want(2, "", `flag --time-format: "15:04" has no year`, "append", "log", "-f", file("16:32 one\n"), "--time-format", "15:04")
	want(0, "", "no events; varve timeline stats lists the timelines", "read", "mistyped")
	want(0, `{"timeline":"a/b","time":5,`, "", "read", "log", "a/b", "--until", "6", "--limit", "0")
	want(0, `"newest": {`, "", "stats", "log")
	want(0, `{"name":"a/b",`, "", "stats")
	want(0, `"partitions": 3`, "", "layout", "a/b", "--partitions", "3", "--size", "1d")
	want(0, `"size": 86400000`, "", "layout", "a/b")
	want(1, "", "partitions", "layout", "a/b", "--partitions", "65")
	want(1, "", "not found", "stats", "never")
	for _, args := range [][]string{{}, {"apend"}, {"append"}, {"read"}, {"tail", "a", "b"}, {"read", "a", "--limit", "x"}, {"append", "a", "--json", "--type", "x"}, {"stats", "a", "--limit", "1"}} {
		want(2, "", "varve: ", args...)
	}
}

var long = flag.Bool("cassandra.long", false, "run tests over Cassandra that take long")

// The same examples and commands work with the timelines in Cassandra. While that is away, the
// timelines that are spooled take events, others answer 503; kill -9 loses none of them.
func TestTimelinesOverCassandra(t *testing.T) {
	if !*long {
		t.Skip("needs -cassandra.long: make test-contract")
	}
	address := originals.Cassandra(t)
	node := cqltest.NewFailingNode(t, address)
	config := cqltest.Config(address)
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	dir := t.TempDir()
	serve := func() *process {
		return start(t, dir, "--store=cassandra", "--cassandra-hosts="+node.Address, "--cassandra-keyspace="+config.Keyspace, "--timeline-spool=journal", "--cassandra-schema-create=keyspace", "--tune=cassandra.outage_grace=100ms")
	}
	p := serve()
	wait := func(what string, done func() bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s does not come", what)
			}
		}
	}
	status := func(method, path, body string) int {
		code, _ := p.do(method, path, body)
		return code
	}
	wait("the keyspace", func() bool { return status("GET", "/api/v1/timelines", "") == 200 })
	p.timelineExamples(t)
	p.timelineCommands(t)

	node.Cut()
	const journal, other = "/api/v1/timelines/journal/events", "/api/v1/timelines/other/events"
	wait("the outage", func() bool { return status("POST", other, `{"time":1,"id":"x","data":0}`) == 503 })
	if got := status("POST", journal, `[{"time":1,"id":"a","data":1},{"time":2,"id":"b","data":2}]`); got != 200 {
		t.Errorf("a spooled timeline answers %d", got)
	}
	if got := status("GET", journal, ""); got != 503 {
		t.Errorf("a page without Cassandra: %d", got)
	}
	p.kill()
	p = serve()
	if got := status("POST", journal, `{"time":3,"id":"c","data":3}`); got != 200 {
		t.Errorf("a spooled timeline answers %d after a start without Cassandra", got)
	}
	node.Mend()
	want := `{"events":[{"time":3,"id":"c","type":"","data":3},{"time":2,"id":"b","type":"","data":2},{"time":1,"id":"a","type":"","data":1}],"end":true}`
	wait("what was acknowledged", func() bool {
		_, page := p.do("GET", journal, "")
		return strings.TrimSpace(page) == want
	})
	if got := status("DELETE", journal+"?id=b", ""); got != 204 {
		t.Errorf("a delete answers %d", got)
	}
}

// What waits in the spool of timelines is shown in the health status and under /admin, and a
// server that is to use another keyspace, or the embedded store, does not start.
func TestSpoolOfTimelinesIsShown(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--store=cassandra", "--cassandra-hosts=127.0.0.1:1", "--timeline-spool=journal"}
	p := start(t, dir, args...)
	if status, body := p.do("POST", "/api/v1/timelines/journal/events", `[{"time":1,"data":1},{"time":2,"data":2}]`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, status := p.do("GET", "/api/v1/health/status", "")
		_, state := p.do("GET", "/admin/cassandra", "")
		shown := strings.Contains(state, `"timeline_spool":{"events":2,"log_bytes":`) && strings.Contains(state, `"max_bytes":1073741824,"oldest":"20`) && strings.Contains(state, `"failing_since":"20`)
		if shown && strings.Contains(status, `"Datastore-Timelines: FAIL"`) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("status %s\n%s", status, state)
		}
	}
	if status, _ := p.do("GET", "/api/v1/health/check", ""); status != 204 {
		t.Errorf("the health check answers %d: events are taken", status)
	}
	p.kill()
	serve := []string{"serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=127.0.0.1:0", "--pickle-addr=127.0.0.1:0"}
	status, _, errs := once(t, nil, serve...)
	if want := "2 events of timelines in " + filepath.Join(dir, "timeline-spool") + " wait for keyspace kairosdb, but the settings say store: embedded. Start with"; status == 0 || !strings.Contains(errs, want) {
		t.Errorf("with the embedded store: %d\n%s\nwant %s", status, errs, want)
	}
	status, _, errs = once(t, nil, append(append(serve, "--cassandra-keyspace=other"), args...)...)
	if want := "2 events of timelines in " + filepath.Join(dir, "timeline-spool") + " wait for keyspace kairosdb, but the settings name keyspace other."; status == 0 || !strings.Contains(errs, want) {
		t.Errorf("with another keyspace: %d\n%s\nwant %s", status, errs, want)
	}
}

// A server that is to use the embedded store does not start while samples wait for Cassandra,
// and starts when none does.
func TestEmbeddedStoreBesideSpool(t *testing.T) {
	dir := t.TempDir()
	serve := []string{"serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=127.0.0.1:0", "--pickle-addr=127.0.0.1:0"}
	p := start(t, dir, "--store=cassandra", "--cassandra-hosts=127.0.0.1:1")
	if status, _, errs := once(t, nil, serve...); status == 0 || !strings.Contains(errs, "is in use by another process") {
		t.Errorf("beside a server over Cassandra: %d\n%s", status, errs)
	}
	p.kill()
	p = start(t, dir)
	if status, _, errs := once(t, nil, append(serve, "--store=cassandra", "--cassandra-hosts=127.0.0.1:1")...); status == 0 || !strings.Contains(errs, "is in use by another process") {
		t.Errorf("beside a server with the embedded store: %d\n%s", status, errs)
	}
	p.kill()
	p = start(t, dir, "--store=cassandra", "--cassandra-hosts=127.0.0.1:1")
	wantRun(t, 0, []string{"no damage found"}, "check", "--data-dir", dir) // what the embedded store has left may be read
	if status, body := p.do("POST", "/api/v1/datapoints", `[{"name":"spooled","tags":{"host":"b"},"timestamp":1700000000000,"value":2}]`); status != 204 {
		t.Fatalf("%d %s", status, body)
	}
	p.kill()
	status, _, errs := once(t, nil, serve...)
	if want := "1 samples in " + filepath.Join(dir, "spool") + " wait for keyspace kairosdb, but the settings say store: embedded. Start with store: cassandra and POST /admin/flush; or"; status == 0 || !strings.Contains(errs, want) {
		t.Errorf("%d\n%s\nwant %s", status, errs, want)
	}
}

// tail prints the newest events and those that arrive, also after the server was started again.
func TestTimelineTail(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	event := func(i int) string { return fmt.Sprintf(`{"time":%d,"id":"e%d","type":"","data":%d}`, i, i, i) }
	put := func(i int) {
		t.Helper()
		if status, body := p.do("POST", "/api/v1/timelines/t/events", event(i)); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	for i := range 5 {
		put(i)
	}
	c := exec.Command(binary, "timeline", "tail", "t", "-n", "3", "--http-addr="+p.http)
	c.Env = []string{}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(2*time.Minute, func() { c.Process.Kill() })
	defer guard.Stop()
	in := bufio.NewScanner(out)
	want := func(from, to int) {
		t.Helper()
		for i := from; i <= to; i++ {
			if !in.Scan() || in.Text() != event(i) {
				t.Fatalf("%q, want event %d", in.Text(), i)
			}
		}
	}
	want(2, 4)
	put(5)
	want(5, 5)
	address := p.http
	p.stop(syscall.SIGTERM)
	p = start(t, dir, "--http-addr="+address)
	put(6)
	put(7)
	want(6, 7)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}
