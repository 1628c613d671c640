package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what takes some moments.
const patience = 2 * time.Minute

// binary is the varve that all tests run, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "varve-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "varve")
		build := exec.Command("go", "build", "-ldflags", "-X main.version=1.2.3-test", "-o", binary, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// once runs varve to its end, in an empty directory, with this environment
// and nothing of the test's own.
func once(t *testing.T, environment []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir, c.Env = t.TempDir(), append([]string{}, environment...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// A process is a running varve serve.
type process struct {
	t            *testing.T
	command      *exec.Cmd
	http, telnet string
	greeting     string
	ready        time.Duration // from start to greeting
	stderr       *bytes.Buffer // to be read after the end
	ended        bool
}

// start runs varve serve on dir and waits until it is ready.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startIn(t, nil, dir, args...)
}

// startIn does so in an environment.
func startIn(t *testing.T, environment []string, dir string, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0", "--carbon-addr=127.0.0.1:0", "--pickle-addr=127.0.0.1:0"}, args...)
	p := &process{t: t, command: exec.Command(binary, args...), stderr: &bytes.Buffer{}}
	p.command.Env = append([]string{}, environment...)
	p.command.Stderr = p.stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.greeting += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			break
		}
	}
	p.ready = time.Since(began)
	p.http = p.find(`HTTP +http://(\S+)`)
	p.telnet = p.find(`telnet +(\S+)`)
	return p
}

// find returns the first group of expr in the greeting.
func (p *process) find(expr string) string {
	p.t.Helper()
	m := regexp.MustCompile(expr).FindStringSubmatch(p.greeting)
	if m == nil {
		p.kill()
		p.t.Fatalf("no %s in the greeting:\n%s%s", expr, p.greeting, p.stderr)
	}
	return m[1]
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	if p.ended {
		return
	}
	p.ended = true
	p.command.Process.Kill()
	p.command.Wait()
}

// settle returns once all points seen before are in the log. A query sees a
// point of telnet a moment before; a 204 for one sent after it says that the
// log has both, since the log keeps the order.
func (p *process) settle() {
	p.t.Helper()
	if status, body := p.do("POST", "/api/v1/datapoints", `[{"name":"test.settled","datapoints":[[1700000000000,1]],"tags":{"host":"a"}}]`); status != 204 {
		p.t.Fatalf("put: %d %s", status, body)
	}
}

// stop sends a signal and wants a clean end within 10 s, or three times that: the machine
// may be busy.
func (p *process) stop(signal os.Signal) {
	p.t.Helper()
	began := time.Now()
	if err := p.command.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	hang := time.AfterFunc(time.Minute, func() { p.command.Process.Kill() })
	defer hang.Stop()
	err := p.command.Wait()
	p.ended = true
	if err != nil {
		p.t.Fatalf("after %v: %v\n%s", signal, err, p.stderr)
	}
	if elapsed := time.Since(began); elapsed > 30*time.Second {
		p.t.Errorf("stopped after %v", elapsed)
	}
}

// do sends a request and returns status and body.
func (p *process) do(method, path, body string) (int, string) {
	p.t.Helper()
	request, err := http.NewRequest(method, "http://"+p.http+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// put sends lines by telnet and closes the connection.
func (p *process) put(lines ...string) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.telnet)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprint(c, strings.Join(lines, "\n")+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// values returns the points of a metric as JSON. It asks until there are as
// many as wanted, since telnet does not say when a line is stored.
func (p *process) values(metric string, want int) string {
	p.t.Helper()
	query := fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q}]}`, metric)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		status, body := p.do("POST", "/api/v1/datapoints/query", query)
		var answer struct {
			Queries []struct {
				Results []struct{ Values []json.RawMessage }
			}
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 || len(answer.Queries) != 1 {
			p.t.Fatalf("query: %d %s", status, body)
		}
		values, n := "", 0
		for _, r := range answer.Queries[0].Results {
			n += len(r.Values)
			values += fmt.Sprintf("%s", r.Values)
		}
		if n >= want {
			return values
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %d of %d points: %s", metric, n, want, body)
		}
	}
}

func (p *process) wantValues(metric string, n int, want string) {
	p.t.Helper()
	if got := p.values(metric, n); got != want {
		p.t.Errorf("%s: %s, want %s", metric, got, want)
	}
}

// A newcomer starts it, sends points, sees them, kills it, starts it and still
// sees them.
func TestPointsSurviveKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	p := start(t, dir)
	if p.ready > time.Second {
		t.Logf("ready after %v; 1s is the goal on an idle machine", p.ready)
	}
	p.put("put demo.load 1700000000 1.5 host=a", "put demo.load 1700000010 9007199254740993 host=a", "this is no command")
	p.wantValues("demo.load", 2, `[[1700000000000,1.5] [1700000010000,9007199254740993]]`)
	status, body := p.do("POST", "/api/v1/datapoints",
		`[{"name":"demo/json","tags":{"host":"ü"},"datapoints":[[1700000000000,1],[1700000001000,2]]}]`)
	if status != 204 {
		t.Fatalf("POST: %d %s", status, body)
	}
	status, body = p.do("POST", "/api/put?details",
		`{"metric":"demo.tsdb","timestamp":1700000000,"value":3,"tags":{"host":"a"}}`)
	if status != 200 || !strings.Contains(body, `"success":1`) {
		t.Fatalf("put: %d %s", status, body)
	}
	p.kill()

	p = start(t, dir)
	p.wantValues("demo.tsdb", 1, `[[1700000000000,3]]`)
	p.wantValues("demo.load", 2, `[[1700000000000,1.5] [1700000010000,9007199254740993]]`)
	p.wantValues("demo/json", 2, `[[1700000000000,1] [1700000001000,2]]`)
	if status, body := p.do("DELETE", "/api/v1/metric/demo%2Fjson/", ""); status != 204 {
		t.Errorf("DELETE: %d %s", status, body)
	}
	p.wantValues("demo/json", 0, "[]")
	p.stop(syscall.SIGTERM)

	p = start(t, dir)
	p.wantValues("demo.load", 2, `[[1700000000000,1.5] [1700000010000,9007199254740993]]`)
	p.wantValues("demo/json", 0, "[]")
	p.stop(os.Interrupt)
}

// What was sent before SIGTERM is stored, also if the client never closes.
func TestStopDrainsTelnet(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	c, err := net.Dial("tcp", p.telnet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 5000
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, "putm drained %d %d host=a\n", 1_700_000_000_000+i, i)
	}
	if _, err := c.Write(lines.Bytes()); err != nil {
		t.Fatal(err)
	}
	p.values("drained", 1)
	p.stop(syscall.SIGTERM)
	p = start(t, dir)
	p.values("drained", n)
}

func TestGreeting(t *testing.T) {
	p := start(t, t.TempDir())
	line := p.find(`(?m)^  echo "(put demo.load .*)" \| nc`)
	p.put(strings.Replace(line, "$(date +%s)", fmt.Sprint(time.Now().Unix()), 1))
	p.values("demo.load", 1)
	query := p.find(`(?m)^  curl -sS http://\S+ -d '(.*)'$`)
	if path := p.find(`curl -sS http://[^/]*(/\S*)`); path != "/api/v1/datapoints/query" {
		t.Errorf("path %s", path)
	}
	if status, body := p.do("POST", "/api/v1/datapoints/query", query); status != 200 || !strings.Contains(body, "1.5]]") {
		t.Errorf("%d %s", status, body)
	}
}

// TestGreetingWithTokens types what the greeting of a server that asks for tokens says. Others
// may not look into the data directory that the server has made.
func TestGreetingWithTokens(t *testing.T) {
	for _, flags := range [][]string{nil, {"--auth-token-file=" + filepath.Join(t.TempDir(), "my tokens.json")}} {
		dir := filepath.Join(t.TempDir(), "a customer's data")
		p := start(t, dir, append(flags, "--auth-enabled=true")...)
		c := exec.CommandContext(t.Context(), "sh", "-ec", `varve() { `+binary+` "$@"; }; `+p.find(`(?m)^  (TOKEN=.*)$`)+`; echo "$TOKEN"`)
		c.Dir, c.Env = t.TempDir(), []string{} // no settings of whoever runs the tests
		var said bytes.Buffer
		c.Stderr = &said
		token, err := c.Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", c.Args[2], err, &said)
		}
		ask := func() int {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.http+"/api/v1/metricnames", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			return response.StatusCode
		}
		for limit := time.Now().Add(patience); ask() != http.StatusOK; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%q: the server does not take the token", flags)
			}
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
				t.Errorf("%s of the data directory has mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestOwnPages(t *testing.T) {
	p := start(t, t.TempDir())
	p.put("put short", "put bad.line now 1 host=a", "put good.line 1700000000 1 host=a")
	p.values("good.line", 1)
	for { // a refusal is listed when its block has been stored
		if _, body := p.do("GET", "/admin/rejected", ""); strings.Contains(body, "bad.line") {
			break
		}
	}
	for _, tc := range []struct {
		path   string
		status int
		want   []string
	}{
		{"/", 200, []string{"/api/v1/"}},
		{"/api/v1/health/check", 204, nil},
		{"/api/v1/health/status", 200, []string{`["JVM-Thread-Deadlock: OK","Datastore-Query: OK"]`}},
		{"/api/v1/version/", 200, []string{"KairosDB"}},
		{"//api/v1/metricnames", 200, []string{`{"results":["good.line"]}`}},
		{"/admin/rejected", 200, []string{"want: put <metric> <time> <value>", "put bad.line now 1 host=a"}},
		{"/internal/metrics", 200, []string{"varve_build_info{", "varve_server_http_requests_total{", "varve_ingest_", "varve_telnet_", "varve_wal_", "go_goroutines ", "process_resident_memory_bytes "}},
		{"/debug/pprof/", 404, nil},
		{"/api/v1/nothing", 404, nil},
	} {
		status, body := p.do("GET", tc.path, "")
		if status != tc.status {
			t.Errorf("%s: %d, want %d", tc.path, status, tc.status)
		}
		for _, want := range tc.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %.2000s", tc.path, want, body)
			}
		}
	}
}

// Requests that each are worth a line of the log do not fill it: of one message it has
// 60 lines a minute, and how many were left out.
func TestLogOfManyRequests(t *testing.T) {
	p := start(t, t.TempDir())
	const n = 100
	for i := range n {
		if status, body := p.do("DELETE", fmt.Sprintf("/api/v1/metric/m%d", i), ""); status != 204 {
			t.Fatalf("%d %s", status, body)
		}
	}
	p.stop(syscall.SIGTERM)
	log := p.stderr.String()
	if got := strings.Count(log, `msg="points deleted"`); got < 60 || got > 2*60 || !strings.Contains(log, `message="points deleted" count=`) {
		t.Errorf("%d lines about %d deletes in\n%s", got, n, log)
	}
	if !strings.Contains(log, "msg=stopped") {
		t.Error("the last line is missing")
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir)
	status, stdout, stderr := once(t, nil, "serve", "--data-dir", dir, "--http-addr=127.0.0.1:0", "--telnet-addr=127.0.0.1:0")
	if status != exitFault || stdout != "" || !strings.Contains(stderr, dir) || !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, "--data-dir") || strings.Contains(stderr, "stopping") {
		t.Errorf("%d\n%s%s", status, stdout, stderr)
	}
	p.put("put still.there 1700000000 1 host=a")
	p.values("still.there", 1)
}

func TestTelnetOff(t *testing.T) {
	command := exec.Command(binary, "serve", "--data-dir", t.TempDir(), "--http-addr=127.0.0.1:0", "--telnet-addr=")
	command.Env = []string{}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	greeting := ""
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "Ctrl-C"); {
		greeting += lines.Text() + "\n"
	}
	if strings.Contains(greeting, "telnet") || strings.Contains(greeting, "nc -w") || !strings.Contains(greeting, "curl") {
		t.Error(greeting)
	}
	// The first point of the greeting can be sent as it is.
	m := regexp.MustCompile(`curl -sS (\S+/datapoints) -d (.*)`).FindStringSubmatch(greeting)
	if m == nil {
		t.Fatalf("no first point in the greeting:\n%s", greeting)
	}
	body, err := exec.Command("sh", "-c", "printf %s "+m[2]).Output()
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(m[1], "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if response.Body.Close(); response.StatusCode != http.StatusNoContent {
		t.Errorf("%s: %s", body, response.Status)
	}
	command.Process.Signal(syscall.SIGTERM)
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestTakenPort(t *testing.T) {
	p := start(t, t.TempDir())
	status, _, stderr := once(t, nil, "serve", "--http-addr", p.http, "--telnet-addr=127.0.0.1:0")
	if status != exitFault || !strings.Contains(stderr, "set server.http_addr to another address") {
		t.Errorf("%d %s", status, stderr)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args           string
		status         int
		stdout, stderr string // contained; "" means nothing at all
	}{
		{"", 2, "", "Usage: varve COMMAND"},
		{"help", 0, "Usage: varve COMMAND", ""},
		{"--help", 0, "Usage: varve COMMAND", ""},
		{"help serve --all", 0, "--embedded-row-width=504h", ""},
		{"serve --help", 0, "Usage: varve serve [FLAGS]", ""},
		{"config -h", 0, "Usage: varve config [FLAGS]", ""},
		{"version --help", 0, "Usage: varve version", ""},
		{"help help", 0, "Usage: varve help", ""},
		{"check --http-addr http://127.0.0.1:8080", 2, "", `flag --http-addr: "http://127.0.0.1:8080": want host:port, without http://`},
		{"export --http-addr=https://db", 2, "", `flag --http-addr: "https://db": want host:port, without https://; commands speak TLS if the variable VARVE_CA_FILE`},
		{"serve --http-addr http://127.0.0.1:8080", 2, "", `server.http_addr: "http://127.0.0.1:8080": want host:port, without http://`},
		{"help srve", 2, "", `varve: unknown command "srve"; did you mean serve?`},
		{"version", 0, "varve ", ""},
		{"--version", 0, "varve ", ""},
		{"version x", 2, "", "varve: version takes no arguments"},
		{"srve", 2, "", `varve: unknown command "srve"; did you mean serve?`},
		{"xyzzy", 2, "", `varve: unknown command "xyzzy"; varve help lists the commands`},
		{"token", 2, "", "varve: token needs a subcommand: varve token create, varve token list, varve token revoke\n"},
		{"toke create", 2, "", "varve: unknown command \"toke\"; did you mean token?\n"},
		{"help token", 0, "varve token revoke", ""},
		{"token --help", 0, "varve token create", ""},
		{"help timeline read", 0, "varve timeline read NAME...", ""},
		{"help timeline raed", 2, "", "help explains one command at a time"},
		{"help timeline read tail", 2, "", "help explains one command at a time"},
		{"export wisper", 2, "", `varve: unknown command "export wisper"; did you mean export whisper?`},
		{"help import whispr", 2, "", `varve: unknown command "import whispr"; did you mean import whisper?`},
		{"export points.gz", 2, "", `varve: unexpected argument "points.gz"; only flags are allowed`},
		{"token crate", 2, "", "varve: token needs a subcommand: varve token create,"},
		{"--data-dir x", 2, "", "varve: --data-dir: flags come after the command, for example varve serve --data-dir"},
		{"serve --htp-addr :1", 2, "", "varve: flag --htp-addr: unknown; did you mean --http-addr?\n"},
		{"doctor --datadir x", 1, "flag --datadir: unknown; did you mean --data-dir?\n", "varve: there are faults to fix"},
		{"doctor --jsn", 2, "", "varve: flag --jsn: unknown; did you mean --json?\n"},
		{"health --htp-addr x --url http://a", 2, "", "varve: flag --htp-addr: unknown; did you mean --http-addr?\n"},
		{"policies --datadir x a", 2, "", "varve: flag --datadir: unknown; did you mean --data-dir?\n"},
		{"inspect --cassandra-host x", 2, "", "varve: flag --cassandra-host: unknown; did you mean --cassandra-hosts?\n"},
		{"repair --dryrun", 2, "", "varve: flag --dryrun: unknown; did you mean --dry-run?\n"},
		{"token create a --roel read", 2, "", "varve: flag --roel: unknown; did you mean --role?\n"},
		{"export -n", 2, "", "varve: flag -n: needs a value\n"},
		{"backup --nothing-like-it", 2, "", "varve: flag --nothing-like-it: unknown; the flags are --http-addr, --tenant, --to\n"},
		{"serve --http-addr 80", 2, "", `varve: flag --http-addr: server.http_addr: "80": want host:port, for example 127.0.0.1:8080`},
		{"config x", 2, "", `varve: unexpected argument "x"; only flags are allowed`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			status, stdout, stderr := once(t, nil, strings.Fields(tc.args)...)
			if status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			for _, o := range []struct{ name, got, want string }{{"stdout", stdout, tc.stdout}, {"stderr", stderr, tc.stderr}} {
				if !strings.Contains(o.got, o.want) || o.want == "" && o.got != "" {
					t.Errorf("%s: %q, want %q", o.name, o.got, o.want)
				}
			}
		})
	}
}

func TestConfigLayers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "varve.yaml")
	text := "server:\n  http_addr: 127.0.0.1:1\n  telnet_addr: 127.0.0.1:2\nquery:\n  timeout: 5s\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	environment := []string{"VARVE_CONFIG=" + file, "VARVE_SERVER_TELNET_ADDR=127.0.0.1:3", "VARVE_QUERY_TIMEOUT=6s"}
	status, stdout, stderr := once(t, environment, "config", "--query-timeout=7s")
	if status != 0 || stderr != "" {
		t.Fatalf("%d %s", status, stderr)
	}
	for _, want := range []string{
		"  http_addr: 127.0.0.1:1  # set by file " + file + ":2, default 127.0.0.1:8080\n",
		"  telnet_addr: 127.0.0.1:3  # set by environment VARVE_SERVER_TELNET_ADDR, default 127.0.0.1:4242\n",
		"  timeout: 7s  # set by flag --query-timeout, default 2m\n",
		"\ndata_dir: ./varve-data\n",
	} {
		if !strings.Contains("\n"+stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}

	if err := os.WriteFile(file, []byte("server:\n\n  htp_addr: x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, stderr = once(t, append(environment, "VARVE_QUERY_TIMEOT=1s"), "serve")
	want := "varve: file " + file + ":3: unknown key server.htp_addr; did you mean server.http_addr?\n" +
		"environment: unknown variable VARVE_QUERY_TIMEOT; did you mean VARVE_QUERY_TIMEOUT?\n"
	if status != exitUsage || stderr != want {
		t.Errorf("%d %s", status, stderr)
	}
}

func TestVersion(t *testing.T) {
	if _, stdout, _ := once(t, nil, "version"); !strings.HasPrefix(stdout, "varve 1.2.3-test (go1.") {
		t.Errorf("the linker's version is not printed: %s", stdout)
	}
	if versionText() == "" {
		t.Error("no version in a binary that was told none")
	}
}

func TestCloseWithin(t *testing.T) {
	fault := errors.New("disk full")
	if err := closeWithin(closer(func() error { return fault }), time.Minute); !errors.Is(err, fault) {
		t.Error(err)
	}
	release := make(chan struct{})
	defer close(release)
	if err := closeWithin(closer(func() error { <-release; return nil }), time.Millisecond); err == nil {
		t.Error("no error from a store that does not close")
	}
}

type closer func() error

func (c closer) Close() error { return c() }
