package main

import (
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"
)

// small returns all workloads, cut to a size for tests.
func small() []workload {
	all := append([]workload{w1, w2, w3, dense}, shapes...)
	for i := range all {
		all[i].hosts, all[i].steps = 4, min(all[i].steps, 200)
	}
	return all
}

type key struct {
	host, metric int
	ms           int64
}

// pointsOf generates w in parts.
func pointsOf(t *testing.T, w workload, parts int) map[key]value {
	t.Helper()
	got := make(map[key]value)
	for c := range parts {
		err := w.generate(w.hosts*c/parts, w.hosts*(c+1)/parts, func(p point) error {
			k := key{p.host, p.metric, p.ms}
			if _, twice := got[k]; twice {
				t.Errorf("%s: %v comes twice", w.name, k)
			}
			got[k] = p.value
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// A workload has the points that it says, each once, in its range, on whole
// seconds; and the same ones over any number of connections.
func TestWorkloadsAreWhatTheySay(t *testing.T) {
	for _, w := range small() {
		t.Run(w.name, func(t *testing.T) {
			got := pointsOf(t, w, 1)
			if int64(len(got)) != w.points() {
				t.Errorf("%d points, want %d", len(got), w.points())
			}
			for k := range got {
				if k.ms < w.startMS || k.ms >= w.endMS() || k.ms%1000 != 0 {
					t.Fatalf("%v is not a full second from %d to %d", k, w.startMS, w.endMS())
				}
			}
			if diff := cmp.Diff(got, pointsOf(t, w, 3), cmp.AllowUnexported(value{})); diff != "" {
				t.Errorf("over three connections:\n%.500s", diff)
			}
		})
	}
}

func TestLateIsLate(t *testing.T) {
	w := workload{hosts: 5, steps: 1000, startMS: fullHourMS, stepMS: 10_000, shape: devops, order: late}
	newest := make(map[int]int64)
	var behind int
	err := w.generate(0, w.hosts, func(p point) error {
		series := p.host*metricsPerHost + p.metric
		if p.ms < newest[series] {
			behind++
		}
		newest[series] = max(newest[series], p.ms)
		return nil
	})
	if part := float64(behind) / float64(w.points()); err != nil || part < 0.03 || part > 0.06 {
		t.Errorf("%.3f of all points are late, %v, want 0.05", part, err)
	}
}

func TestValueAsText(t *testing.T) {
	for _, c := range []struct {
		v    value
		want string
	}{
		{value{0, 0}, "0"}, {value{-12, 0}, "-12"}, {value{5, 2}, "0.05"}, {value{-5, 2}, "-0.05"},
		{value{1234, 2}, "12.34"}, {value{1200, 2}, "12.00"}, {value{7_000_001, 6}, "7.000001"},
		{value{int64(math.Float64bits(0.1)), fullDouble}, "0.1"},
	} {
		if got := string(c.v.appendTo(nil)); got != c.want {
			t.Errorf("%v is %q, want %q", c.v, got, c.want)
		}
		if read, err := strconv.ParseFloat(c.want, 64); err != nil || read != c.v.float() {
			t.Errorf("%v is %v, its text %v", c.v, c.v.float(), read)
		}
	}
}

// What each sender puts on the wire, for the smallest workload there is.
func TestSenders(t *testing.T) {
	w := workload{hosts: 1, steps: 7, startMS: fullHourMS, stepMS: 1000, shape: constant}
	var mu sync.Mutex
	var bodies [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, text)
	}))
	defer server.Close()
	defer client.CloseIdleConnections()

	check := func(name string, send func() error, wants map[string]int) {
		t.Helper()
		bodies = nil
		if err := send(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		all := string(slices.Concat(bodies...))
		for want, n := range wants {
			if got := strings.Count(all, want); got != n {
				t.Errorf("%s: %q is there %d times, want %d, in %.700s", name, want, got, n, all)
			}
		}
	}
	tags := `"tags":{"dc":"dc0","env":"production","host":"server-0000","os":"linux-6.1","rack":"rack-00","service":"web00"}}`
	check("KairosDB", func() error { return sendKairos(t.Context(), w, server.URL, 0, 1) }, map[string]int{
		`{"name":"cpu.usage.percent.01","datapoints":[[1699999200000,1],[1699999201000,1],[1699999202000,1],[1699999203000,1],[1699999204000,1]],` + tags: 1,
		`{"name":"cpu.usage.percent.01","datapoints":[[1699999205000,1],[1699999206000,1]],` + tags:                                                       1,
		"datapoints": 40,
	})
	check("OpenTSDB", func() error { return sendPuts(t.Context(), w, server.URL, 0, 1) }, map[string]int{
		`{"metric":"disk.size.bytes.19","timestamp":1699999206000,"value":19,` + tags: 1, `"metric"`: 140, "[": 1, "]": 1,
	})
	check("remote write", func() error {
		err := sendRemote(t.Context(), w, server.URL, 0, 1)
		for i := range bodies {
			plain, failed := s2.Decode(nil, bodies[i])
			if failed != nil {
				return failed
			}
			bodies[i] = plain
		}
		return err
	}, map[string]int{
		"\n\x20\n\x08__name__\x12\x14cpu_usage_percent_01\n\x09\n\x02dc\x12\x03dc0": 7,
		// The sample of metric 1 at the first second.
		"\x12\x10\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x80\xe6\xe4\xfe\xbc\x31": 1,
	})
}

func TestSendLines(t *testing.T) {
	w := workload{hosts: 2, steps: 3, startMS: fullHourMS, stepMS: 1000, shape: constant}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	texts := make(chan string, 2)
	go func() {
		for range 2 {
			conn, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			text, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			conn.Close()
			texts <- string(text)
		}
	}()
	err = inParallel(t.Context(), w, 2, func(ctx context.Context, from, to int) error {
		return sendLines(ctx, w, l.Addr().String(), from, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	all := <-texts + <-texts
	if n := strings.Count(all, "\n"); int64(n) != w.points() {
		t.Errorf("%d lines, want %d", n, w.points())
	}
	const want = "put net.bytes.total.10 1699999202 10 dc=dc1 env=production host=server-0001 os=linux-6.1 rack=rack-01 service=web01\n"
	if strings.Count(all, want) != 1 {
		t.Errorf("no line %q in %.300s", want, all)
	}
}

// The answers of all targets to the same question, as they come, are read as the
// same.
func TestAnswersAreReadAlike(t *testing.T) {
	q := question{kind: average, host: allHosts, startMS: 60_000, endExcl: 180_000, stepMS: 60_000}
	want := answer{"a": {{60_000, 1.5}, {120_000, 2}}}
	for name, c := range map[string]struct {
		server server
		text   string
	}{
		"varve":      {&varve{}, `{"queries":[{"results":[{"name":"m","tags":{"host":["a"]},"values":[[60000,1.5],[120000,2]]},{"values":[]}]}]}`},
		"victoria":   {&victoria{}, `{"data":{"result":[{"metric":{"host":"a"},"values":[[119.999,"1.5"],[179.999,"2"]]}]}}`},
		"influx":     {&influx{}, `{"results":[{"series":[{"tags":{"host":"a"},"values":[[60000,1.5],[120000,2]]}]}]}`},
		"prometheus": {&prometheus{}, `{"data":{"result":[{"metric":{"host":"a"},"values":[[119.999,"1.5"],[179.999,"2"]]}]}}`},
	} {
		got, err := c.server.read(q, []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := want.equal(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, other := range []answer{{}, {"b": want["a"]}, {"a": want["a"][:1]}, {"a": {{60_000, 1.5}, {120_000, 2.1}}}, {"a": {{60_000, 1.5}, {120_001, 2}}}} {
		if want.equal(other) == nil {
			t.Errorf("%v is the same as %v", want, other)
		}
	}
}
