package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// python runs a Python client.
func python(t *testing.T, library, client, address string) string {
	t.Helper()
	host, port := process.HostPort(t, address)
	return run(t, pythonPath(library), "python3", filepath.Join("python", "driver.py"), client, host, port)
}

// pythonPath lets a Python program import from library.
func pythonPath(library string) func(*exec.Cmd) {
	return func(c *exec.Cmd) {
		c.Env = append(os.Environ(), "PYTHONPATH="+library, "PYTHONDONTWRITEBYTECODE=1")
	}
}

// TestPython runs opentsdb-py, potsdb and python-kairosdb.
func TestPython(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	library := process.Provide(t, "Python clients", root, "pythonclients.sh")
	s := process.Start(t, t.TempDir())

	var told map[string]int
	out := python(t, library, "opentsdb-http", s.HTTP)
	if err := json.Unmarshal([]byte(out), &told); err != nil || told["success"] != 20 || told["failed"] != 0 {
		t.Errorf("opentsdb-py says of 20 points: %s (%v)", out, err)
	}
	if got := countPoints(t, s, "py.http"); got != 20 {
		t.Errorf("%d of 20 points of opentsdb-py by HTTP", got)
	}
	for client, metric := range map[string]string{"opentsdb-telnet": "py.telnet", "potsdb": "py.potsdb"} {
		python(t, library, client, s.Telnet)
		err := process.Until(t.Context(), "20 points of "+client, func() (bool, error) { return countPoints(t, s, metric) == 20, nil })
		if err != nil {
			t.Error(err)
		}
	}

	out = python(t, library, "kairosdb", s.HTTP)
	stored := `{"return_code":204,"status":"success"}`
	want := `[` + stored + `,{"return_code":200,"version":"VERSION"},` + stored + `,
		{"return_code":200,"results":["py.http","py.m","py.potsdb","py.telnet"]},
		{"return_code":200,"results":["host","node","tag1"]},{"return_code":200,"results":["n1","v","é"]},
		{"return_code":200,"queries":[{"sample_size":3,"results":[{"name":"py.m","group_by":[{"name":"tag","tags":["host"],"group":{"host":"é"}},{"name":"type","type":"number"}],"tags":{"host":["é"]},"values":[[1700000000000,1]]}]}]},` +
		stored + `,{"return_code":200,"results":["py.http","py.potsdb","py.telnet"]},` + stored + `,
		{"return_code":400,"errors":["metric[0].name may not be empty.","metric[0].tags count must be greater than or equal to 1."]}]`
	var answers []map[string]any
	if err := json.Unmarshal([]byte(out), &answers); err != nil || len(answers) != 11 {
		t.Fatalf("python-kairosdb said %s (%v)", out, err)
	}
	version := fmt.Sprint(answers[1]["version"])
	if !strings.HasPrefix(version, "KairosDB 1.3.0") {
		t.Errorf("python-kairosdb got the version %s", version)
	}
	if want = strings.Replace(want, "VERSION", version, 1); !sameJSON(t, out, want) {
		t.Errorf("python-kairosdb got\n%s, want\n%s", compact(t, out), compact(t, want))
	}

	for block, metric := range map[string]string{"python opentsdb": "load", "python potsdb": "temperature"} {
		run(t, pythonPath(library), "python3", "-c", s.Documented(t, root, block))
		err := process.Until(t.Context(), "the point of "+block, func() (bool, error) { return countPoints(t, s, metric) == 1, nil })
		if err != nil {
			t.Error(err)
		}
	}
	s.Stop(t)
}

// TestNodeKairosDB runs npm kairosdb.
func TestNodeKairosDB(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	library := process.Provide(t, "Node clients", root, "nodeclients.sh")
	s := process.Start(t, t.TempDir())
	host, port := process.HostPort(t, s.HTTP)
	out := run(t, func(c *exec.Cmd) {
		c.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(library, "node_modules"))
	}, "node", filepath.Join("node", "kairosdb.js"), host, port)
	var got []any
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got) != 5 {
		t.Fatalf("it said %s (%v)", out, err)
	}
	answer := `{"queries":[{"sample_size":1,"results":[{"name":"node.m","group_by":[{"name":"type","type":"number"}],"tags":{"host":["server"]},"values":[[1700000000000,321]]}]}]}`
	for i, want := range map[int]string{1: `""`, 2: answer, 3: `"Error: 400: server error"`} {
		text, err := json.Marshal(got[i])
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, string(text), want) {
			t.Errorf("call %d got %s, want %s", i, text, want)
		}
	}
	s.Stop(t)
}

// TestStatsd runs statsd with the backends for KairosDB, which keeps one
// connection, and OpenTSDB, which opens one each second.
func TestStatsd(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	library := process.Provide(t, "Node clients", root, "nodeclients.sh")
	s := process.Start(t, t.TempDir())
	config := filepath.Join(t.TempDir(), "config.js")
	host, port := process.FreeAddress(t, "udp")
	manageHost, managePort := process.FreeAddress(t, "tcp")
	text := strings.NewReplacer("8125", port+", address: '"+host+"', mgmt_address: '"+manageHost+"'", "8126", managePort).
		Replace(s.Documented(t, root, "js-statsd"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), programRuns)
	defer cancel()
	c := process.Command(ctx, "node", filepath.Join(library, "node_modules", "statsd", "stats.js"), config)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// statsd takes a while until it listens, and its backend until it has
	// connected.
	err = process.Until(ctx, "points of statsd", func() (bool, error) {
		fmt.Fprint(conn, "hits:3|c\nload:1.5|g\ntook:12|ms")
		time.Sleep(50 * time.Millisecond)
		names, err := s.MetricNames(ctx, "")
		all := strings.Join(names, " ") + " "
		return strings.Contains(all, "hits ") && strings.Contains(all, "stats.gauges.load ") && countPoints(t, s, "stats.gauges.load") >= 2, err
	})
	cancel()
	c.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	for metric, want := range map[string]string{
		"hits":              "map[client:[127.0.0.1] source:[statsd]]", // by the backend for KairosDB
		"stats.gauges.load": "map[source:[statsd]]",                    // by the one for OpenTSDB
		"stats.statsd.opentsdbStats.last_exception": "map[add:[tag]]", // the backend omits the tag here
	} {
		if got := tagsOf(t, s, metric); got != want {
			t.Errorf("tags of %s are %s, want %s", metric, got, want)
		}
	}
	if got := rejected(t, s); len(got) != 0 {
		t.Errorf("refused were %v", got)
	}
	s.Stop(t)
}
