package graphite

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/e2e/process"
)

// programRuns is how long a sender may run.
const programRuns = time.Minute

// paths are the paths of a server.
func paths(t *testing.T, s *process.Server) []string {
	t.Helper()
	var list []string
	w := ask(t, s.Client, "http://"+s.HTTP, http.MethodGet, "/metrics/index.json", nil)
	if err := json.Unmarshal(w.body, &list); err != nil || w.status != 200 {
		t.Fatalf("index.json: %d %s", w.status, w.body)
	}
	return list
}

// noneRejected fails the test if the server has refused something.
func noneRejected(t *testing.T, s *process.Server) {
	t.Helper()
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Fault(); err != nil {
		t.Error(err)
	}
}

// sent is a path, a value and the second of a point.
type sent struct {
	path  string
	value float64
	at    int64
}

// bulk returns many points of several series. No value occurs twice.
func bulk(prefix string, series, each int) []sent {
	now := time.Now().Unix()
	var all []sent
	for i := range series * each {
		all = append(all, sent{fmt.Sprintf("%s.s%d.value", prefix, i%series), float64(i) + 0.25, now - int64(i/series)*60})
	}
	return all
}

// checkBulk waits until all points of a bulk are stored, and compares them one by
// one.
func checkBulk(t *testing.T, s *process.Server, prefix string, want []sent) {
	t.Helper()
	form := url.Values{"target": {prefix + ".*.value"}, "from": {"-1w"}, "format": {"json"}}
	var got map[string]map[int64]float64
	n := 0
	err := process.Until(t.Context(), fmt.Sprintf("%d points of %s", len(want), prefix), func() (bool, error) {
		w := ask(t, s.Client, "http://"+s.HTTP, http.MethodGet, "/render", form)
		var series []struct {
			Target     string
			Datapoints [][2]*float64
		}
		if err := json.Unmarshal(w.body, &series); err != nil || w.status != 200 {
			return false, fmt.Errorf("render: %d %.300s", w.status, w.body)
		}
		got, n = map[string]map[int64]float64{}, 0
		for _, one := range series {
			got[one.Target] = map[int64]float64{}
			for _, p := range one.Datapoints {
				if p[0] != nil {
					got[one.Target][int64(*p[1])] = *p[0]
					n++
				}
			}
		}
		return n >= len(want), nil
	})
	if err != nil || n != len(want) {
		t.Fatalf("%d of %d points: %v", n, len(want), err)
	}
	for _, p := range want {
		if v, ok := got[p.path][p.at-p.at%60]; !ok || v != p.value {
			t.Fatalf("%s at %d is %v, %v; want %v", p.path, p.at, v, ok, p.value)
		}
	}
}

// start runs a program until the test ends.
func start(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programRuns)
	c := process.Command(ctx, name, args...)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		c.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, said.String())
		}
	})
}

// written writes a file of settings and returns its path.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRelay sends lines to a carbon-c-relay, which sends them to Varve.
func TestRelay(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	relay := process.Provide(t, "carbon-c-relay", root, "carbonrelay.sh")
	s := process.Start(t, t.TempDir())
	address := net.JoinHostPort(process.FreeAddress(t, "tcp"))
	start(t, relay, "-f", written(t, "relay.conf", strings.ReplaceAll(s.Documented(t, root, "carbon-c-relay"), "127.0.0.1:2013", address)))
	var c net.Conn
	err := process.Until(t.Context(), "the relay", func() (bool, error) {
		var err error
		c, err = net.DialTimeout("tcp", address, process.AnswerWithin)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	points := bulk("relay", 50, 200) // fewer than the relay's queue holds
	var lines strings.Builder
	for _, p := range points {
		fmt.Fprintf(&lines, "%s %v %d\n", p.path, p.value, p.at)
	}
	if _, err := c.Write([]byte(lines.String())); err != nil {
		t.Fatal(err)
	}
	checkBulk(t, s, "relay", points)
	noneRejected(t, s)
	s.Stop(t)
}

// TestPickles sends pickles of each protocol from Python.
func TestPickles(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("*** NO PYTHON IN THIS RUN ***")
	}
	s := process.Start(t, t.TempDir())
	python := func(text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), programRuns)
		defer cancel()
		if out, err := process.Command(ctx, "python3", "-c", text).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	documented := s.Documented(t, root, "python carbon-pickle")
	python(documented)
	for protocol := range 6 {
		points := bulk(fmt.Sprint("pickle", protocol), 20, 100)
		var list strings.Builder
		for _, p := range points {
			fmt.Fprintf(&list, "(%q, (%d, %v)),", p.path, p.at, p.value)
		}
		text := strings.Replace(documented, "protocol=2", fmt.Sprint("protocol=", protocol), 1)
		first, rest, _ := strings.Cut(text, "\n")
		_, rest, _ = strings.Cut(rest, "\n") // the points of the page
		python(first + "\npoints = [" + list.String() + "]\n" + rest)
		checkBulk(t, s, fmt.Sprint("pickle", protocol), points)
	}
	if got := paths(t, s); len(got) != 6*20+1 || got[len(got)-1] != "web.a.requests" {
		t.Errorf("%d paths: %.300q", len(got), got)
	}
	w := ask(t, s.Client, "http://"+s.HTTP, http.MethodGet, "/tags/findSeries", url.Values{"expr": {"name=disk.used"}})
	if string(w.body) != `["disk.used;host=web1"]` {
		t.Errorf("series with tags: %s", w.body)
	}
	noneRejected(t, s)
	s.Stop(t)
}

// TestStatsd lets statsd count, and counts what arrives by its own backend for Graphite.
func TestStatsd(t *testing.T) {
	process.SkipShort(t)
	t.Parallel()
	library := process.Provide(t, "Node clients", root, "nodeclients.sh")
	s := process.Start(t, t.TempDir(), "--storage-schemas", written(t, "storage-schemas.conf", "[all]\npattern = .*\nretentions = 1s:1d\n"))
	host, port := process.FreeAddress(t, "udp")
	manageHost, managePort := process.FreeAddress(t, "tcp")
	config := strings.NewReplacer("8125", port+", address: '"+host+"', mgmt_address: '"+manageHost+"'", "8126", managePort,
		"flushInterval: 500", "flushInterval: 3000"). // statsd rounds times to seconds: two flushes must not meet, however slow the machine is
		Replace(s.Documented(t, root, "js-statsd-graphite"))
	start(t, "node", filepath.Join(library, "node_modules", "statsd", "stats.js"), written(t, "config.js", config))
	c, err := net.Dial("udp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sum := func(path string) float64 {
		w := ask(t, s.Client, "http://"+s.HTTP, http.MethodGet, "/render", url.Values{"target": {"integral(" + path + ")"}, "from": {"-10min"}, "format": {"json"}, "noNullPoints": {"1"}})
		var series []struct{ Datapoints [][2]float64 }
		if err := json.Unmarshal(w.body, &series); err != nil || w.status != 200 {
			t.Fatalf("render: %d %.300s", w.status, w.body)
		}
		if len(series) == 0 || len(series[0].Datapoints) == 0 {
			return 0
		}
		return series[0].Datapoints[len(series[0].Datapoints)-1][0]
	}
	// statsd takes a while until it listens; earlier datagrams are lost.
	err = process.Until(t.Context(), "statsd", func() (bool, error) {
		fmt.Fprint(c, "awake:1|c")
		return sum("stats.counters.awake.count") > 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const hits = 200
	for range hits {
		fmt.Fprint(c, "hits:3|c\nload:1.5|g\ntook:12|ms")
	}
	err = process.Until(t.Context(), "all hits", func() (bool, error) { return sum("stats.counters.hits.count") >= 3*hits, nil })
	if got := sum("stats.counters.hits.count"); err != nil || got != 3*hits {
		t.Errorf("%v hits, %v; want %d", got, err, 3*hits)
	}
	all := strings.Join(paths(t, s), " ") + " "
	for _, path := range []string{"stats.gauges.load ", "stats.timers.took.mean ", "stats.statsd.numStats "} {
		if !strings.Contains(all, path) {
			t.Errorf("no path %s in %s", path, all)
		}
	}
	noneRejected(t, s)
	s.Stop(t)
}
