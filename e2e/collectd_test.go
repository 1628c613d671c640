package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"varve/e2e/process"
)

// collectdRuns is how long a test waits for collectd's points. collectd sends
// every second.
const collectdRuns = 30 * time.Second

// installStatus says what the exit status of scripts/collectd.sh means.
var installStatus = map[int]string{
	3: "it is not installed and the test does not run as root",
	4: "it is not installed and there is no apt-get",
	5: "apt-get could not install it",
}

// collectdPath returns the path of the daemon, which it installs if necessary.
// If that fails, the test is skipped with the reason.
func collectdPath(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	script := exec.CommandContext(ctx, filepath.Join("..", "scripts", "collectd.sh"))
	var stderr bytes.Buffer
	script.Stderr = &stderr
	out, err := script.Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	why := err.Error()
	var exit *exec.ExitError
	if errors.As(err, &exit) && installStatus[exit.ExitCode()] != "" {
		why = installStatus[exit.ExitCode()]
	}
	t.Skipf("*** NO REAL COLLECTD IN THIS RUN: %s ***\n%s", why, stderr.String())
	return ""
}

// existing returns the first of the paths that exists.
func existing(t *testing.T, what string, paths ...string) string {
	t.Helper()
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("collectd's %s is in none of %q", what, paths)
	return ""
}

// A collectd is a running collectd that sends to a server.
type collectd struct {
	command *exec.Cmd
	socket  string       // takes values to send
	output  bytes.Buffer // read only after stop
	exited  chan struct{}
	err     error
}

// startCollectd runs collectd in the foreground with all its files in dir.
func startCollectd(t *testing.T, daemon, dir, writers string) *collectd {
	t.Helper()
	plugins := existing(t, "plug-ins", "/usr/lib/collectd", "/usr/lib64/collectd", "/usr/local/lib/collectd", "/opt/collectd/lib/collectd")
	types := existing(t, "types.db", "/usr/share/collectd/types.db", "/usr/local/share/collectd/types.db", "/opt/collectd/share/collectd/types.db")
	config := fmt.Sprintf(`Hostname "e2e.example"
FQDNLookup false
Interval 1
BaseDir %q
PIDFile %q
PluginDir %q
TypesDB %q
LoadPlugin logfile
<Plugin logfile>
  LogLevel info
  File stderr
</Plugin>
LoadPlugin cpu
LoadPlugin load
LoadPlugin memory
LoadPlugin interface
LoadPlugin unixsock
<Plugin unixsock>
  SocketFile %q
  DeleteSocket true
</Plugin>
`, dir, filepath.Join(dir, "pid"), plugins, types, filepath.Join(dir, "socket")) + writers
	file := filepath.Join(dir, "collectd.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &collectd{command: exec.Command(daemon, "-f", "-C", file), socket: filepath.Join(dir, "socket"), exited: make(chan struct{})}
	process.EndWithTest(c.command)
	c.command.Stdout, c.command.Stderr = &c.output, &c.output
	if err := c.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.exited)
		c.err = c.command.Wait()
	}()
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			t.Logf("collectd said:\n%s", c.output.String())
		}
	})
	return c
}

// inject lets collectd send a value of the metric injected.<name>.gauge now.
func (c *collectd) inject(t *testing.T, name, value string) {
	t.Helper()
	conn, err := net.DialTimeout("unix", c.socket, process.AnswerWithin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(process.AnswerWithin))
	fmt.Fprintf(conn, "PUTVAL \"e2e.example/injected/gauge-%s\" interval=1 N:%s\n", name, value)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(answer, "0 ") {
		t.Fatalf("collectd does not take a value: %q, %v", answer, err)
	}
}

// stop ends collectd, which sends what it has buffered.
func (c *collectd) stop() {
	c.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(process.AnswerWithin):
		c.command.Process.Kill()
		<-c.exited
	}
}

// TestCollectd lets a real collectd send this machine's metrics to the telnet
// port, and reads them as a dashboard would.
func TestCollectd(t *testing.T) {
	process.SkipShort(t)
	daemon := collectdPath(t)
	s := process.Start(t, t.TempDir())
	c := startCollectd(t, daemon, t.TempDir(), s.Documented(t, "..", "collectd-tsdb"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	waitForPoints(ctx, t, s, c, "load.load.shortterm", 4)

	names, err := s.MetricNames(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range []string{"cpu.", "load.", "memory.", "interface."} {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, plugin) }) {
			t.Errorf("no metric of plug-in %s in %q", plugin, names)
		}
	}
	loads, err := s.MetricNames(ctx, "load.load.")
	if want := []string{"load.load.longterm", "load.load.midterm", "load.load.shortterm"}; err != nil || !slices.Equal(loads, want) {
		t.Errorf("metric names with prefix load.load. are %q, want %q (%v)", loads, want, err)
	}
	checkTags(ctx, t, s, "load.load.shortterm")
	for _, p := range points(ctx, t, s, `{"name":"load.load.shortterm"}`) {
		if p.value < 0 || p.value > 10_000 || p.time.Before(began.Add(-time.Minute)) || p.time.After(time.Now().Add(time.Minute)) {
			t.Errorf("load %v at %v is not plausible", p.value, p.time)
		}
	}

	// Average load by host in steps of a minute, as a panel asks for it.
	const panel = `{"name":"load.load.shortterm","group_by":[{"name":"tag","tags":["fqdn"]}],
		"aggregators":[{"name":"avg","sampling":{"value":"1","unit":"MINUTES"},"align_start_time":true}]}`
	averages := points(ctx, t, s, panel)
	if len(averages) == 0 || len(averages) > 2 {
		t.Errorf("%d averages of some seconds in steps of a minute: %v", len(averages), averages)
	}
	for _, p := range averages {
		if p.group != "e2e.example" || p.value < 0 || p.time.Second() != 0 {
			t.Errorf("average %+v", p)
		}
	}
	checkMemory(ctx, t, s, names)

	// collectd omits NaN and sends inf. Only the line with inf is refused.
	checkRejected(ctx, t, s, "")
	c.inject(t, "infinite", "inf")
	c.inject(t, "finite", "1.5")
	waitForPoints(ctx, t, s, c, "injected.finite.gauge", 1)
	waitForPoints(ctx, t, s, c, "load.load.shortterm", 6)
	c.stop()
	if c.err != nil {
		t.Errorf("collectd ended with %v", c.err)
	}
	checkRejected(ctx, t, s, "put injected.infinite.gauge ")
	if infinite := points(ctx, t, s, `{"name":"injected.infinite.gauge"}`); len(infinite) != 0 {
		t.Errorf("an infinite value was stored: %v", infinite)
	}
	m, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("collectd wrote %v samples of %v series in %d metrics over telnet; reads: %d loads, %d averages",
		m[`varve_ingest_samples_total{protocol="telnet"}`], m["varve_store_series"], len(names), len(loads), len(averages))
	s.Stop(t)
}

// TestCollectdHTTP does the same as TestCollectd with collectd's own KairosDB
// writer.
func TestCollectdHTTP(t *testing.T) {
	process.SkipShort(t)
	daemon := collectdPath(t)
	s := process.Start(t, t.TempDir())
	c := startCollectd(t, daemon, t.TempDir(), s.Documented(t, "..", "collectd-kairosdb"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	waitForPoints(ctx, t, s, c, "collectd.load", 6)
	types := map[string]bool{}
	for _, p := range points(ctx, t, s, `{"name":"collectd.load","tags":{"env":"prod"},"group_by":[{"name":"tag","tags":["ds"]}],
		"aggregators":[{"name":"max","sampling":{"value":1,"unit":"hours"}}]}`) {
		types[p.group] = true
		if p.value < 0 {
			t.Errorf("load %+v", p)
		}
	}
	if len(types) != 3 || !types["shortterm"] || !types["midterm"] || !types["longterm"] {
		t.Errorf("loads by ds: %v", types)
	}
	c.stop()
	checkRejected(ctx, t, s, "")
	m, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("collectd wrote %v samples of %v series as KairosDB JSON", m[`varve_ingest_samples_total{protocol="kairosdb_json"}`], m["varve_store_series"])
	s.Stop(t)
}

// TestCollectdWithToken does the same over TLS, with a token as the password. With a
// wrong token, no point is stored.
func TestCollectdWithToken(t *testing.T) {
	process.SkipShort(t)
	daemon := collectdPath(t)
	s := process.StartSecured(t, t.TempDir(), "")
	written := strings.Replace(s.Documented(t, "..", "collectd-kairosdb"), `URL "http:`, `CACert "`+filepath.Join(s.Files, "ca")+`"
    User "collectd"
    Password "`+s.Token+`"
    URL "https:`, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := startCollectd(t, daemon, t.TempDir(), written)
	waitForPoints(ctx, t, s.Server, c, "collectd.load", 3)
	c.stop()
	before, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c = startCollectd(t, daemon, t.TempDir(), strings.Replace(written, s.Token, "wrong", 1))
	const refused = `varve_auth_refused_total{reason="unknown_token",stream="http"}`
	for {
		m, err := s.Metrics(ctx)
		if err != nil {
			t.Fatalf("collectd with a wrong password is never refused: %v", err)
		}
		const stored = `varve_ingest_samples_total{protocol="kairosdb_json"}`
		if m[stored] != before[stored] {
			t.Fatalf("%v samples came with a wrong password", m[stored]-before[stored])
		}
		if m[refused] > 0 {
			break
		}
		time.Sleep(process.PollEvery)
	}
	c.stop()
	s.Stop(t)
}

// TestCollectdGraphite does the same with collectd's writer for Graphite.
func TestCollectdGraphite(t *testing.T) {
	process.SkipShort(t)
	daemon := collectdPath(t)
	s := process.Start(t, t.TempDir())
	c := startCollectd(t, daemon, t.TempDir(), s.Documented(t, "..", "collectd-graphite"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const load = "collectd.e2e_example.load.load.shortterm"
	waitForPoints(ctx, t, s, c, load, 3)
	c.inject(t, "finite", "1.5")
	waitForPoints(ctx, t, s, c, "collectd.e2e_example.injected.gauge-finite", 1)
	for path, want := range map[string]string{
		"/metrics/find?query=collectd.e2e_example.load.load.*&format=completer":  load,
		"/render?target=" + load + "&from=-10min&format=raw&noNullPoints=1":      load + ",",
		"/render?target=maxSeries(collectd.*.injected.*)&from=-10min&format=raw": "1.5",
	} {
		if answer, err := s.Want(ctx, 200, "GET", path, ""); err != nil || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %s, %v; want %s", path, answer, err, want)
		}
	}
	c.stop()
	rejected, err := s.Want(ctx, 200, "GET", "/admin/rejected", "")
	if err != nil || strings.Count(string(rejected), `"reason": `) != strings.Count(string(rejected), ` nan `) { // the first rate of a counter
		t.Errorf("more is refused than what collectd sends as nan: %s, %v", rejected, err)
	}
	m, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("collectd wrote %v samples of %v series to carbon's port", m[`varve_ingest_samples_total{protocol="carbon"}`], m["varve_store_series"])
	s.Stop(t)
}

// TestCollectdGraphiteOfTenant binds the address of collectd to a tenant: its points are
// visible to that tenant only. When a reload removes the rule, the connection is closed, and
// collectd cannot connect again.
func TestCollectdGraphiteOfTenant(t *testing.T) {
	process.SkipShort(t)
	daemon := collectdPath(t)
	dir, files := t.TempDir(), t.TempDir()
	config := filepath.Join(files, "varve.yaml")
	configure := func(rule string) {
		text := fmt.Sprintf("auth: {enabled: true, token_file: %q, rules: [%q]}\ntenants: [{name: team}, {name: other}]\n", filepath.Join(files, "tokens.json"), rule)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("address=127.0.0.1 stream=carbon role=write tenant=team")
	token := process.Token(t, filepath.Join(files, "tokens.json"), "operator", "admin")
	s := process.Start(t, dir, "--config="+config)
	s.Show(token)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := startCollectd(t, daemon, t.TempDir(), s.Documented(t, "..", "collectd-graphite"))
	waitForPoints(ctx, t, s.OfTenant("team"), c, "collectd.e2e_example.load.load.shortterm", 3)

	configure("address=192.0.2.1 stream=carbon role=write tenant=team")
	if answer, err := s.Want(ctx, 200, "POST", "/admin/reload", ""); err != nil {
		t.Fatalf("%v %s", err, answer)
	}
	const (
		ended   = `varve_auth_ended_total{stream="carbon"}`
		refused = `varve_auth_refused_total{reason="no_credential",stream="carbon"}`
		stored  = `varve_ingest_samples_total{protocol="carbon",tenant="team"}`
	)
	var atFirst process.Metrics
	err := process.Until(ctx, "a refusal", func() (bool, error) {
		var err error
		atFirst, err = s.Metrics(ctx)
		return atFirst[refused] > 0, err
	})
	if err != nil || atFirst[ended] != 1 {
		t.Fatalf("collectd is never refused, or was not cut off (%v): %v", atFirst[ended], err)
	}
	c.inject(t, "late", "1.5")
	var later process.Metrics
	err = process.Until(ctx, "another refusal", func() (bool, error) {
		var err error
		later, err = s.Metrics(ctx)
		return later[refused] > atFirst[refused], err
	})
	if err != nil || later[stored] != atFirst[stored] || later[stored] == 0 {
		t.Errorf("without a rule there are %v samples, before %v: %v", later[stored], atFirst[stored], err)
	}
	c.stop()
	for tenant, want := range map[string]bool{"default": false, "team": true, "other": false} {
		names, err := s.OfTenant(tenant).MetricNames(ctx, "")
		if has := len(names) > 0; err != nil || has != want || slices.Contains(names, "collectd.e2e_example.injected.gauge-late") {
			t.Errorf("the tenant %s has %q, %v", tenant, names, err)
		}
	}
	s.Stop(t)
}

// A point is one value of an answer, with the tag value it was grouped by.
type point struct {
	group string
	time  time.Time
	value float64
}

// points asks for the last hour of a metric.
func points(ctx context.Context, t *testing.T, s *process.Server, metric string) []point {
	t.Helper()
	results, err := s.Query(ctx, `{"start_relative":{"value":1,"unit":"hours"},"metrics":[`+metric+`]}`)
	if err != nil {
		t.Fatal(err)
	}
	var points []point
	for _, r := range results {
		for _, v := range r.Values {
			ms, errTime := strconv.ParseInt(string(v[0]), 10, 64)
			value, errValue := strconv.ParseFloat(string(v[1]), 64)
			if err := errors.Join(errTime, errValue); err != nil {
				t.Fatalf("%s: %v", metric, err)
			}
			points = append(points, point{r.Group(), time.UnixMilli(ms).UTC(), value})
		}
	}
	return points
}

func waitForPoints(ctx context.Context, t *testing.T, s *process.Server, c *collectd, metric string, n int) {
	t.Helper()
	for limit := time.Now().Add(collectdRuns); ; time.Sleep(100 * time.Millisecond) {
		got := len(points(ctx, t, s, fmt.Sprintf(`{"name":%q}`, metric)))
		if got >= n {
			return
		}
		select {
		case <-c.exited:
			if strings.Contains(c.output.String(), "write_http") {
				t.Skipf("*** COLLECTD'S KAIROSDB WRITER IS NOT TESTED: write_http does not load (it needs libyajl2) ***\n%s", c.output.String())
			}
			t.Fatalf("collectd ended: %v", c.err)
		default:
		}
		if time.Now().After(limit) {
			names, _ := s.MetricNames(ctx, "")
			t.Fatalf("%d points of %s after %v, want %d; metrics are %q", got, metric, collectdRuns, n, names)
		}
	}
}

func checkTags(ctx context.Context, t *testing.T, s *process.Server, metric string) {
	t.Helper()
	body, err := s.Want(ctx, 200, "POST", "/api/v1/datapoints/query/tags", fmt.Sprintf(`{"start_absolute":0,"metrics":[{"name":%q}]}`, metric))
	if err != nil {
		t.Fatal(err)
	}
	var tags struct {
		Queries []struct {
			Results []struct{ Tags map[string][]string }
		}
	}
	if err := json.Unmarshal(body, &tags); err != nil || len(tags.Queries) != 1 || len(tags.Queries[0].Results) != 1 {
		t.Fatalf("tags of %s: %s (%v)", metric, body, err)
	}
	got := fmt.Sprint(tags.Queries[0].Results[0].Tags)
	if want := "map[dc:[lga] fqdn:[e2e.example] status:[production]]"; got != want {
		t.Errorf("tags of %s are %s, want %s", metric, got, want)
	}
}

// checkMemory adds up the kinds of memory, each a metric of its own.
func checkMemory(ctx context.Context, t *testing.T, s *process.Server, names []string) {
	t.Helper()
	var sum float64
	kinds := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "memory.") {
			continue
		}
		kinds++
		for _, p := range points(ctx, t, s, fmt.Sprintf(`{"name":%q,"aggregators":[{"name":"sum","sampling":{"value":1,"unit":"hours"}}]}`, name)) {
			if p.value < 0 {
				t.Errorf("%s is %v", name, p.value)
			}
			sum += p.value
		}
	}
	if kinds < 2 || sum < 1<<20 {
		t.Errorf("%d kinds of memory with %v bytes in all", kinds, sum)
	}
}

// checkRejected checks that exactly one line was refused, which begins with
// infinite, as not finite. If infinite is "", no line may have been refused.
func checkRejected(ctx context.Context, t *testing.T, s *process.Server, infinite string) {
	t.Helper()
	var refused struct {
		Rejected []struct{ Reason, Input string }
	}
	var body []byte
	for deadline := time.Now().Add(process.AnswerWithin); ; time.Sleep(50 * time.Millisecond) {
		var err error
		if body, err = s.Want(ctx, 200, "GET", "/admin/rejected", ""); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, &refused); err != nil {
			t.Fatalf("/admin/rejected: %v in %s", err, body)
		}
		// What collectd sent before it ended may still be on its way.
		if infinite == "" || len(refused.Rejected) > 0 || time.Now().After(deadline) {
			break
		}
	}
	m, err := s.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list, want := refused.Rejected, 1
	if infinite == "" {
		want = 0
	}
	if len(list) != want || m.Sum("varve_ingest_rejected_total") != float64(want) {
		t.Errorf("%d inputs of collectd were refused, want %d: %s", len(list), want, body)
		return
	}
	if want == 1 && (list[0].Reason != "not_finite" || !strings.HasPrefix(list[0].Input, infinite)) {
		t.Errorf("refused as %s: %q, want %q as not_finite", list[0].Reason, list[0].Input, infinite)
	}
}
