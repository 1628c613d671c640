package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"varve/internal/work"
)

// victoriaTarget is a single node of VictoriaMetrics, as Debian packages it.
type victoriaTarget struct{}

// victoria is a running VictoriaMetrics.
type victoria struct {
	*process
	dir       string
	http, put string
}

func (victoriaTarget) name() string { return "victoria" }

func (victoriaTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "victoria-metrics", "victoria-metrics", "-version")
}

func (t victoriaTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	return t.startBy(ctx, dir, "-opentsdbListenAddr=")
}

// startBy starts a server that accepts points at the listener that a flag
// opens.
func (victoriaTarget) startBy(ctx context.Context, dir, listener string) (*victoria, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	v := &victoria{dir: filepath.Join(dir, "data"), http: addrs[0], put: addrs[1]}
	v.process, err = startProcess(ctx, "victoria-metrics", "-storageDataPath="+v.dir, "-httpListenAddr="+v.http,
		listener+v.put, "-retentionPeriod=100y", "-loggerLevel=WARN")
	if err != nil {
		return nil, err
	}
	return v, v.awaitReady(usualPatience, answers(ctx, "http://"+v.http+"/health"))
}

func (v *victoria) dataDirs() []string { return []string{v.dir} }

func (v *victoria) send(ctx context.Context, w workload, as form, n int) error {
	return sendOpenTSDB(ctx, w, as, n, v.put)
}

func (v *victoria) stored(ctx context.Context) (int64, error) {
	text, err := httpGet(ctx, "http://"+v.http+"/metrics")
	if err != nil {
		return 0, err
	}
	lines, err := metricIn(text, `vm_rows_inserted_total{type="opentsdb"}`)
	if err != nil {
		return 0, err
	}
	bodies, err := metricIn(text, `vm_rows_inserted_total{type="opentsdbhttp"}`)
	return int64(lines + bodies), err
}

func (v *victoria) flush(ctx context.Context) error {
	_, err := httpGet(ctx, "http://"+v.http+"/internal/force_flush")
	return err
}

// settle forces a merge, which runs in the background.
func (v *victoria) settle(ctx context.Context) error {
	if err := v.flush(ctx); err != nil {
		return err
	}
	if _, err := httpGet(ctx, "http://"+v.http+"/internal/force_merge"); err != nil {
		return err
	}
	for active := 1.0; active > 0; {
		if err := work.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		var err error
		if active, err = metricOf(ctx, "http://"+v.http+"/metrics", "vm_active_force_merges"); err != nil {
			return err
		}
	}
	return v.awaitQuiet(ctx, v.dir, time.Second, 20*time.Second)
}

func (v *victoria) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	text, err := promRequest(v.http, "query", url.Values{
		"query":   {fmt.Sprintf(`sum(count_over_time({__name__=%q}[%ds])) by (host)`, metricName(metric), (w.endMS()-w.startMS)/1000)},
		"time":    {promTime(w.endMS() - 1)},
		"nocache": {"1"},
	}).do(ctx)
	if err != nil {
		return nil, err
	}
	return promCounts(text, "host")
}

// request asks for points by the export, which is the fastest way of
// VictoriaMetrics, and for everything else by PromQL.
func (v *victoria) request(q question) request {
	selector := fmt.Sprintf("{__name__=%q}", metricName(q.metric))
	if q.host != allHosts {
		selector = fmt.Sprintf("{__name__=%q,host=%q}", metricName(q.metric), hostName(q.host))
	}
	if q.kind == raw {
		values := url.Values{"match[]": {selector}, "start": {promTime(q.startMS)}, "end": {promTime(q.endExcl - 1)}}
		return promRequest(v.http, "export", values)
	}
	return promQuestion(v.http, q, selector)
}

func (v *victoria) read(q question, text []byte) (answer, error) {
	if q.kind != raw {
		return promRead(q, text)
	}
	a := make(answer)
	for text := range bytes.Lines(text) {
		var line struct {
			Metric     map[string]string
			Values     []float64
			Timestamps []int64
		}
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("answer of VictoriaMetrics: %w", err)
		}
		host := line.Metric["host"]
		for i, ms := range line.Timestamps {
			a[host] = append(a[host], sample{ms, line.Values[i]})
		}
	}
	return a, nil
}

// The functions below speak Prometheus' query API, which VictoriaMetrics has too.

func promRequest(addr, path string, values url.Values) request {
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	return request{http.MethodPost, "http://" + addr + "/api/v1/" + path, header, []byte(values.Encode())}
}

// promTime is a time in seconds, with decimals.
func promTime(ms int64) string { return fmt.Sprintf("%d.%03d", ms/1000, ms%1000) }

// promQuestion asks for q over the series of selector. A bucket [s, s+step) is the
// window that ends with its last millisecond.
func promQuestion(addr string, q question, selector string) request {
	steps := url.Values{
		"start": {promTime(q.startMS + q.stepMS - 1)}, "end": {promTime(q.endExcl - 1)},
		"step": {fmt.Sprintf("%ds", q.stepMS/1000)}, "nocache": {"1"},
	}
	form := map[kind]string{
		average: "avg_over_time(%s[%ds])", maximum: "max(max_over_time(%s[%ds]))",
		total: "sum(sum_over_time(%s[%ds]))", mean: "avg(avg_over_time(%s[%ds]))",
	}[q.kind]
	if form != "" {
		steps.Set("query", fmt.Sprintf(form, selector, q.stepMS/1000))
		return promRequest(addr, "query_range", steps)
	}
	// An instant query returns the last point or, with a window, all points.
	query := selector
	if q.kind == raw {
		query += fmt.Sprintf("[%ds]", (q.endExcl-q.startMS)/1000)
	}
	return promRequest(addr, "query", url.Values{"query": {query}, "time": {promTime(q.endExcl - 1)}, "nocache": {"1"}})
}

// promAnswer is Prometheus' matrix or vector.
type promAnswer struct {
	Data struct {
		Result []struct {
			Metric map[string]string
			Value  promSample
			Values []promSample
		}
	}
}

// A promSample is a pair of seconds and text.
type promSample struct {
	ms    int64
	value float64
}

func (s *promSample) UnmarshalJSON(text []byte) error {
	var pair [2]json.Number
	// Values are quoted. json.Number accepts a quoted text only if it is a
	// number, and no workload has other values.
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	seconds, err := pair[0].Float64()
	if err != nil {
		return err
	}
	s.ms = int64(seconds*1000 + 0.5)
	s.value, err = strconv.ParseFloat(pair[1].String(), 64)
	return err
}

func promRead(q question, text []byte) (answer, error) {
	var decoded promAnswer
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, fmt.Errorf("answer in Prometheus' format: %w", err)
	}
	a := make(answer)
	for _, r := range decoded.Data.Result {
		host := r.Metric["host"]
		if q.kind == latestPoint {
			a[host] = []sample{{q.startMS, r.Value.value}}
			continue
		}
		for _, s := range r.Values {
			ms := s.ms
			if q.kind != raw {
				ms -= q.stepMS - 1 // the start of its bucket
			}
			a[host] = append(a[host], sample{ms, s.value})
		}
	}
	return a, nil
}

// promCounts returns the values of an answer by a label.
func promCounts(text []byte, label string) (map[string]int64, error) {
	var decoded promAnswer
	if err := json.Unmarshal(text, &decoded); err != nil {
		return nil, fmt.Errorf("answer in Prometheus' format: %w", err)
	}
	counts := make(map[string]int64)
	for _, r := range decoded.Data.Result {
		counts[r.Metric[label]] += int64(r.Value.value)
	}
	return counts, nil
}
