package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manySeries is how many series TestManySeries sends. The goals are for
// 1,000,000: go test ./cmd/varve -run ManySeries -series 1000000 -v
var manySeries = flag.Int("series", 20_000, "series of TestManySeries and TestManyNames")

// goal is a limit that holds for a million series on an idle machine. With a
// smaller number it is loose enough for a busy one.
func goal(idle time.Duration) time.Duration {
	if *manySeries < 1_000_000 {
		return 20 * idle
	}
	return idle
}

// manyLine is the i-th series: six tags, a user of its own, ten to a host.
func manyLine(i int) string {
	return fmt.Sprintf("requests.count %%d %d dc=dc-%d env=env-%d host=host-%06d region=region-%d service=service-%d user=user-%07d",
		i, i%4, i%3, i/10, i%9, i%50, i)
}

// TestManySeries sends many series of one metric over telnet, asks for a few
// of them, and starts the server again. It reports memory and latencies.
func TestManySeries(t *testing.T) {
	const rounds = 4
	n, dir := *manySeries, t.TempDir()
	p := start(t, dir, "--tune=ingest.new_series_burst=100000000")
	began := time.Now()
	p.putMany(n, rounds)
	p.waitFor("varve_store_appended_samples_total", float64(n*rounds))
	t.Logf("%d series, %d samples sent in %v", n, n*rounds, time.Since(began).Round(time.Millisecond))
	p.report("after sending")
	p.askMany(n, "warm", goal(50*time.Millisecond), 300)
	p.report("after queries")
	p.checkCardinality(n)

	p.stop(syscall.SIGTERM)
	p = start(t, dir)
	t.Logf("ready after %v", p.ready)
	if p.ready > goal(10*time.Second) {
		t.Errorf("ready after %v", p.ready)
	}
	p.askMany(n, "cold", goal(300*time.Millisecond), 30)
	p.report("started again")
}

// TestManyNames sends many metrics and asks for pages of their names.
func TestManyNames(t *testing.T) {
	n := *manySeries
	p := start(t, t.TempDir(), "--tune=ingest.new_series_burst=100000000")
	p.stream(func(w io.Writer) {
		for i := range n {
			fmt.Fprintf(w, "put servers.dc%d.host%06d.cpu.%d 1700000000 1 host=a\n", i%4, i/10, i%10)
		}
	})
	p.waitFor("varve_store_appended_samples_total", float64(n))
	p.report("names sent")
	if status, body := p.do("POST", "/admin/compact", ""); status != 204 { // nothing else is to run meanwhile
		t.Fatal(status, body)
	}
	p.latency("names", goal(20*time.Millisecond), 300, func(i int) (string, string, int) {
		return "GET", fmt.Sprintf("/api/v1/metricnames?limit=100&prefix=servers.dc%d.host0", i%4), 100
	})
	p.latency("names of a host", goal(20*time.Millisecond), 300, func(i int) (string, string, int) {
		return "GET", fmt.Sprintf("/api/v1/metricnames?prefix=servers.dc1.host%06d.", i*7919%(n/20)*2), 3
	})
}

// putMany sends rounds samples of each of n series.
func (p *process) putMany(n, rounds int) {
	p.stream(func(w io.Writer) {
		for r := range rounds {
			for i := range n {
				fmt.Fprintf(w, "put "+manyLine(i)+"\n", 1_700_000_000+60*r)
			}
		}
	})
}

// stream sends what write writes by telnet.
func (p *process) stream(write func(io.Writer)) {
	p.t.Helper()
	c, err := net.Dial("tcp", p.telnet)
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close()
	w := bufio.NewWriterSize(c, 64<<10)
	write(w)
	if err := w.Flush(); err != nil {
		p.t.Fatal(err)
	}
}

// metric returns one number of /internal/metrics.
func (p *process) metric(name string) float64 {
	p.t.Helper()
	_, body := p.do("GET", "/internal/metrics", "")
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
	}
	p.t.Fatalf("no metric %s", name)
	return 0
}

func (p *process) waitFor(name string, want float64) {
	p.t.Helper()
	var got float64
	for deadline := time.Now().Add(20 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = p.metric(name); got >= want {
			return
		}
	}
	p.t.Fatalf("%s is %v, want %v", name, got, want)
}

// report logs what a series costs the process.
func (p *process) report(when string) {
	series := p.metric("varve_store_series")
	t := ""
	for _, m := range []struct{ name, metric string }{
		{"rss", "process_resident_memory_bytes"}, {"heap", "go_memstats_heap_inuse_bytes"}, {"alias", "varve_ingest_alias_cache_bytes"},
		{"head", "varve_store_head_bytes"}, {"index", "varve_store_index_bytes"},
	} {
		if _, body := p.do("GET", "/internal/metrics", ""); strings.Contains(body, "\n"+m.metric+" ") {
			t += fmt.Sprintf(" %s %.0f", m.name, p.metric(m.metric)/series)
		}
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(text)[0])
			t += fmt.Sprintf(" peak-rss %.0f", float64(kb)*1024/series)
		}
	}
	p.t.Logf("%s: %.0f series, cpu %.1f s, bytes a series:%s", when, series, p.metric("process_cpu_seconds_total"), t)
}

// askMany looks for single series, for those of a host, and for patterns.
func (p *process) askMany(n int, when string, most time.Duration, rounds int) {
	ask := func(name, tag string, want int, value func(i int) string) {
		p.t.Helper()
		p.latency(when+" "+name, most, rounds, func(i int) (string, string, int) {
			return "POST", fmt.Sprintf(`{"start_absolute":1699999000000,"end_absolute":1700009000000,"metrics":[{"name":"requests.count","tags":{%q:%q}}]}`, tag, value(i)), want
		})
	}
	user := func(i int) int { return i * 7919 % n }
	ask("exact", "user", 1, func(i int) string { return fmt.Sprintf("user-%07d", user(i)) })
	ask("exact of ten", "host", 10, func(i int) string { return fmt.Sprintf("host-%06d", user(i)/10) })
	before := p.metric("varve_store_index_entries_read_total")
	ask("exact of one", "user", 1, func(i int) string { return fmt.Sprintf("user-%07d", user(i)) })
	if read := p.metric("varve_store_index_entries_read_total") - before; read > float64(rounds*(1+2*1)) {
		p.t.Errorf("%d selections of one series each have read %v entries of the index", rounds, read)
	}
	ask("prefix", "user", 10, func(i int) string { return fmt.Sprintf("regex:user-%06d.*", user(i)/10) })
	ask("set", "user", 2, func(i int) string { return fmt.Sprintf("regex:user-%06d(1|2)", user(i)/10) })
	most *= 10 // a hundred series, found by looking at each value once
	ask("suffix, kept", "user", n/10_000, func(int) string { return "regex:.*1234" })
}

// checkCardinality wants the culprit named, fast.
func (p *process) checkCardinality(n int) {
	p.t.Helper()
	for _, query := range []string{"?limit=3", "?limit=3&metric=requests.count"} {
		began := time.Now()
		status, body := p.do("GET", "/admin/cardinality"+query, "")
		took := time.Since(began)
		p.t.Logf("cardinality%s: %v", query, took)
		if status != 200 || took > goal(time.Second) {
			p.t.Errorf("%d after %v", status, took)
		}
		for _, want := range []string{
			fmt.Sprintf(`"totals":{"series":%d,"metrics":1,"tag_names":6,`, n),
			fmt.Sprintf(`"top_metrics":[{"metric":"requests.count","series":%d}]`, n),
			fmt.Sprintf(`"top_tags":[{"tag":"user","values":%d},{"tag":"host",`, n),
			`"top_tag_values":[{"tag":"env","value":"env-0","series":`,
			fmt.Sprintf(`"since_start":%d,"top_since_start":[{"metric":"requests.count","series":%d}]`, n, n),
		} {
			if !strings.Contains(body, want) {
				p.t.Errorf("no %s in %s", want, body)
			}
		}
	}
	for _, limit := range []string{"0", "x", "1001"} {
		if status, body := p.do("GET", "/admin/cardinality?limit="+limit, ""); status != 400 || !strings.Contains(body, "limit must be") {
			p.t.Errorf("limit %s: %d %s", limit, status, body)
		}
	}
}

// latency sends requests and holds the slowest but one in a hundred against a
// goal. request returns method, path or body, and how often the answer must
// hold the sign of a found series or name.
func (p *process) latency(name string, most time.Duration, rounds int, request func(i int) (method, text string, want int)) {
	p.t.Helper()
	took := p.time(rounds, func(i int) (string, string, func([]byte) error) {
		method, text, want := request(i)
		return method, text, func(answer []byte) error {
			if got := foundIn(answer); got != want {
				return fmt.Errorf("found %d, want %d", got, want)
			}
			return nil
		}
	})
	p99 := took[len(took)*99/100]
	p.t.Logf("%s: first to last p50 %v p99 %v max %v", name, took[len(took)/2], p99, took[len(took)-1])
	if p99 > most {
		p.t.Errorf("%s: p99 %v, want at most %v", name, p99, most)
	}
}

// time sends requests over one connection, checks the answers, and returns how
// long they took, the shortest first.
func (p *process) time(rounds int, request func(i int) (method, text string, check func([]byte) error)) []time.Duration {
	p.t.Helper()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	var took []time.Duration
	for i := range rounds {
		method, text, check := request(i)
		path, body := text, ""
		if method == "POST" {
			path, body = "/api/v1/datapoints/query", text
		}
		r, err := http.NewRequest(method, "http://"+p.http+path, strings.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "identity")
		began := time.Now()
		response, err := client.Do(r)
		if err != nil {
			p.t.Fatal(err)
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		took = append(took, time.Since(began))
		if err != nil || response.StatusCode != 200 {
			p.t.Fatalf("%s: %d %v %.200s", text, response.StatusCode, err, answer)
		}
		if err := check(answer); err != nil {
			p.t.Fatalf("%s: %v: %.500s", text, err, answer)
		}
	}
	slices.Sort(took)
	return took
}

// typical times a query again and again and holds the median against a goal. each
// must be in the answer so many times. On a busy machine the server's own CPU time
// counts: a goal is missed if the cores could not have kept it alone.
func (p *process) typical(name string, most time.Duration, rounds int, query, each string, want int) {
	p.t.Helper()
	cpu := p.metric("process_cpu_seconds_total")
	took := p.time(rounds, func(int) (string, string, func([]byte) error) {
		return "POST", query, func(answer []byte) error {
			if got := strings.Count(string(answer), each); got != want {
				return fmt.Errorf("%q is there %d times, want %d", each, got, want)
			}
			return nil
		}
	})
	cpu = (p.metric("process_cpu_seconds_total") - cpu) / float64(rounds)
	p50, alone := took[rounds/2], time.Duration(cpu*1e9)/time.Duration(runtime.NumCPU())
	p.t.Logf("%s: p50 %v min %v max %v, CPU %.1f ms", name, p50, took[0], took[rounds-1], 1000*cpu)
	if p50 > most && alone > most {
		p.t.Errorf("%s: p50 %v, want at most %v", name, p50, most)
	}
}

// TestManyGroups groups a fifth as many series as -series says, of one metric, by
// tags: 20 samples each within an hour, six tags.
func TestManyGroups(t *testing.T) {
	const modes, samples = 20, 20
	hosts := *manySeries / 5 / modes
	p := start(t, t.TempDir(), "--tune=ingest.new_series_burst=100000000")
	p.stream(func(w io.Writer) {
		for i := range samples {
			for h := range hosts {
				for m := range modes {
					fmt.Fprintf(w, "put cpu %d %d.%d dc=dc%d env=env%d host=host-%05d mode=mode-%02d rack=rack-%03d service=web%02d\n",
						1_700_000_000+10*i, (h*m+i*i)%100, i%10, h%4, h%3, h, m, h%200, h%25)
				}
			}
		}
	})
	p.waitFor("varve_store_appended_samples_total", float64(hosts*modes*samples))
	if status, body := p.do("POST", "/admin/compact", ""); status != 204 {
		t.Fatal(status, body)
	}
	by := func(tag, aggregators string) string {
		return fmt.Sprintf(`{"start_absolute":1700000000000,"end_absolute":1700003599999,"metrics":[{"name":"cpu",
			"group_by":[{"name":"tag","tags":[%q]}],"aggregators":[%s]}]}`, tag, aggregators)
	}
	avg := `{"name":"avg","sampling":{"value":1,"unit":"hours"}}`
	p.typical("avg of 4 groups", goal(150*time.Millisecond), 30, by("dc", avg), `"sample_size"`, 1)
	p.typical("avg of 200 groups", goal(150*time.Millisecond), 30, by("rack", avg), `"group":`, min(200, hosts))
	p.typical("avg of each host", goal(300*time.Millisecond), 30, by("host", avg), `"group":`, hosts)
}

// TestLongAnswer asks for two days of one series, a sample a second.
func TestLongAnswer(t *testing.T) {
	const samples = 172_800
	p := start(t, t.TempDir())
	p.stream(func(w io.Writer) {
		for i := range samples {
			fmt.Fprintf(w, "put load %d %d.%02d host=a\n", 1_700_000_000+i, i*7919%50, i%100)
		}
	})
	p.waitFor("varve_store_appended_samples_total", samples)
	if status, body := p.do("POST", "/admin/compact", ""); status != 204 {
		t.Fatal(status, body)
	}
	p.typical("raw", goal(20*time.Millisecond), 50, `{"start_absolute":1700000000000,"metrics":[{"name":"load"}]}`, "[17", samples)
}

// foundIn counts the users of a query's answer, or names.
func foundIn(answer []byte) int {
	var a struct {
		Results []string
		Queries []struct {
			Results []struct{ Tags map[string][]string }
		}
	}
	if json.Unmarshal(answer, &a) != nil {
		return -1
	}
	n := len(a.Results)
	for _, q := range a.Queries {
		for _, r := range q.Results {
			n += len(r.Tags["user"])
		}
	}
	return n
}
