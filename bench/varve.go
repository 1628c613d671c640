package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// varveTarget is the server of this repository.
type varveTarget struct{ binary string }

// varve is a running Varve.
type varve struct {
	*process
	dir               string
	http, line, pprof string
	paths, pickles    string // addresses of Graphite's protocols
}

// buildVarve compiles the server from the sources around this directory, as their
// Makefile does.
func buildVarve(ctx context.Context, dir string) (binary string, err error) {
	binary = filepath.Join(dir, "varve")
	args := []string{"build", "-trimpath", "-o", binary}
	if described, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		args = append(args, "-ldflags", "-X main.version="+strings.TrimSpace(string(described)))
	}
	build := exec.CommandContext(ctx, "go", append(args, "varve/cmd/varve")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return binary, nil
}

func (varveTarget) name() string { return "varve" }

func (t varveTarget) version(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, t.binary, "version").Output()
	return strings.TrimSpace(string(out)), err
}

func (t varveTarget) start(ctx context.Context, dir string, how mode) (server, error) {
	if how == onlyLogs {
		return t.startBy(ctx, dir, "--tune", "embedded.checkpoint_samples=1000000000", "--tune", "embedded.head_bytes=1GiB",
			"--embedded-head-bytes-max", "2GiB", "--tune", "embedded.checkpoint_interval=24h")
	}
	return t.startBy(ctx, dir)
}

// startBy starts a server with flags.
func (t varveTarget) startBy(ctx context.Context, dir string, flags ...string) (*varve, error) {
	addrs, err := freeAddrs(5)
	if err != nil {
		return nil, err
	}
	v := &varve{dir: filepath.Join(dir, "data"), http: addrs[0], line: addrs[1], pprof: addrs[2], paths: addrs[3], pickles: addrs[4]}
	args := []string{"serve", "--data-dir", v.dir, "--http-addr", v.http, "--telnet-addr", v.line, "--carbon-addr", v.paths, "--pickle-addr", v.pickles, "--server-pprof-addr", v.pprof}
	if v.process, err = startProcess(ctx, t.binary, append(args, flags...)...); err != nil {
		return nil, err
	}
	return v, v.awaitReady(10*time.Minute, answers(ctx, "http://"+v.http+"/api/v1/health/check")) // a start with millions of names takes long
}

func (v *varve) dataDirs() []string {
	return []string{filepath.Join(v.dir, "blocks"), filepath.Join(v.dir, "log"), filepath.Join(v.dir, "catalogue")}
}

func (v *varve) send(ctx context.Context, w workload, as form, n int) error {
	return inParallel(ctx, w, n, func(ctx context.Context, from, to int) error {
		switch as {
		case asJSON:
			return sendKairos(ctx, w, "http://"+v.http+"/api/v1/datapoints", from, to)
		case asPaths:
			return sendPathLines(ctx, w, v.paths, from, to)
		case asPickles:
			return sendPickles(ctx, w, v.pickles, from, to)
		}
		return sendLines(ctx, w, v.line, from, to)
	})
}

func (v *varve) stored(ctx context.Context) (int64, error) {
	n, err := v.metric(ctx, "varve_store_appended_samples_total")
	return int64(n), err
}

// flush has nothing to do: acknowledged points are visible.
func (v *varve) flush(context.Context) error { return nil }

func (v *varve) settle(ctx context.Context) error {
	_, err := v.post("/admin/compact", nil).do(ctx)
	return err
}

type object = map[string]any

// post is a request with a JSON body. Encoding the body cannot fail.
func (v *varve) post(path string, body object) request {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return request{http.MethodPost, "http://" + v.http + path, http.Header{"Content-Type": {"application/json"}}, text}
}

func (v *varve) query(startMS, endExcl int64, metrics ...object) request {
	return v.post("/api/v1/datapoints/query", object{
		"start_absolute": startMS, "end_absolute": endExcl - 1, "metrics": metrics,
	})
}

// byHost is KairosDB's grouping by the tag host.
var byHost = []object{{"name": "tag", "tags": []string{"host"}}}

// aggregator is one of KairosDB's, with buckets from the start of the query.
func aggregator(name string, stepMS int64) []object {
	return []object{{"name": name, "align_start_time": true, "sampling": object{"value": stepMS, "unit": "milliseconds"}}}
}

func (v *varve) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	text, err := v.query(w.startMS, w.endMS(), object{
		"name": metricName(metric), "group_by": byHost, "aggregators": aggregator("count", w.endMS()-w.startMS),
	}).do(ctx)
	if err != nil {
		return nil, err
	}
	a, err := v.read(question{host: allHosts}, text)
	return a.counted(), err
}

func (v *varve) request(q question) request {
	metric := object{"name": metricName(q.metric)}
	if q.host != allHosts {
		metric["tags"] = object{"host": []string{hostName(q.host)}}
	}
	if q.kind != raw {
		name := map[kind]string{average: "avg", maximum: "max", total: "sum", mean: "avg", latestPoint: "last"}[q.kind]
		metric["aggregators"] = aggregator(name, q.stepMS)
		if !q.kind.overHosts() {
			metric["group_by"] = byHost
		}
	}
	return v.query(q.startMS, q.endExcl, metric)
}

// kairosAnswer is KairosDB's answer to a query.
type kairosAnswer struct {
	Queries []struct {
		Results []struct {
			Tags   map[string][]string
			Values [][2]float64
		}
	}
}

func parseKairos(text []byte) (a kairosAnswer, err error) {
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("answer of varve: %w", err)
	}
	return a, nil
}

func (v *varve) read(q question, text []byte) (answer, error) {
	decoded, err := parseKairos(text)
	if err != nil {
		return nil, err
	}
	a := make(answer)
	for _, query := range decoded.Queries {
		for _, r := range query.Results {
			if len(r.Values) == 0 {
				continue
			}
			host := ""
			if !q.kind.overHosts() && len(r.Tags["host"]) == 1 {
				host = r.Tags["host"][0]
			}
			for _, value := range r.Values {
				a[host] = append(a[host], sample{int64(value[0]), value[1]})
			}
		}
	}
	return a, nil
}

// metric reads one of the server's own metrics.
func (v *varve) metric(ctx context.Context, name string) (float64, error) {
	return metricOf(ctx, "http://"+v.http+"/internal/metrics", name)
}

func metricOf(ctx context.Context, url, name string) (float64, error) {
	text, err := httpGet(ctx, url)
	if err != nil {
		return 0, err
	}
	return metricIn(text, name)
}

// metricIn finds a number in Prometheus' text format. name includes labels.
func metricIn(text []byte, name string) (float64, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("server has no metric %s", name)
}

// profile writes CPU profiles of a second each to prefix-N.pprof until ctx is
// done. go tool pprof adds up files that are given together. KairosDB has none.
func (v *varve) profile(ctx context.Context, prefix string) error {
	for n := 0; v.pprof != "" && ctx.Err() == nil; n++ {
		text, err := httpGet(context.WithoutCancel(ctx), "http://"+v.pprof+"/debug/pprof/profile?seconds=1")
		if err != nil {
			return err
		}
		if err := os.WriteFile(fmt.Sprintf("%s-%d.pprof", prefix, n), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
