package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/s2"
)

// prometheusTarget is Prometheus as a receiver of remote writes.
type prometheusTarget struct{}

// prometheus is a running Prometheus.
type prometheus struct {
	*process
	dir  string
	http string
}

func (prometheusTarget) name() string { return "prometheus" }

func (prometheusTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "prometheus", "prometheus", "--version")
}

func (prometheusTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return nil, err
	}
	s := &prometheus{dir: filepath.Join(dir, "data"), http: addrs[0]}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, nil, 0o644); err != nil {
		return nil, err
	}
	s.process, err = startProcess(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+s.dir,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+s.http, "--web.enable-remote-write-receiver",
		"--web.enable-admin-api", "--log.level=error")
	if err != nil {
		return nil, err
	}
	return s, s.awaitReady(usualPatience, answers(ctx, "http://"+s.http+"/-/ready"))
}

// dataDirs is the snapshot that settle takes, which has everything in blocks.
func (s *prometheus) dataDirs() []string { return []string{filepath.Join(s.dir, "snapshots")} }

// send ignores n and uses one connection: Prometheus refuses points an hour
// older than the newest, so a slower connection could lose points.
func (s *prometheus) send(ctx context.Context, w workload, as form, _ int) error {
	if as != asLines {
		return errors.ErrUnsupported
	}
	return sendRemote(ctx, w, "http://"+s.http+"/api/v1/write", 0, w.hosts)
}

func (s *prometheus) stored(ctx context.Context) (int64, error) {
	n, err := metricOf(ctx, "http://"+s.http+"/metrics", `prometheus_tsdb_head_samples_appended_total{type="float"}`)
	return int64(n), err
}

// flush has nothing to do: acknowledged points are visible.
func (s *prometheus) flush(context.Context) error { return nil }

// settle takes a snapshot: Prometheus writes the last hours to a block only
// once newer points have arrived.
func (s *prometheus) settle(ctx context.Context) error {
	_, err := httpDo(ctx, http.MethodPost, "http://"+s.http+"/api/v1/admin/tsdb/snapshot", nil, nil)
	return err
}

func (s *prometheus) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	text, err := promRequest(s.http, "query", url.Values{
		"query": {fmt.Sprintf(`sum(count_over_time(%s[%dms])) by (host)`, promName(metric), w.endMS()-w.startMS-1)},
		"time":  {promTime(w.endMS() - 1)},
	}).do(ctx)
	if err != nil {
		return nil, err
	}
	return promCounts(text, "host")
}

func (s *prometheus) request(q question) request {
	selector := promName(q.metric)
	if q.host != allHosts {
		selector += fmt.Sprintf("{host=%q}", hostName(q.host))
	}
	return promQuestion(s.http, q, selector)
}

func (s *prometheus) read(q question, text []byte) (answer, error) { return promRead(q, text) }

// promName is the name of a metric without dots, which Prometheus 2 refuses.
func promName(metric int) string { return strings.ReplaceAll(metricName(metric), ".", "_") }

// sendRemote sends hosts [from, to) of w by Prometheus' remote write, as many
// points per body as other protocols, each as a series of its own.
func sendRemote(ctx context.Context, w workload, url string, from, to int) error {
	labels := make([][]byte, (to-from)*w.metrics())
	for i := range labels {
		labels[i] = appendLabel(nil, "__name__", promName(i%w.metrics()))
		for _, t := range hostTags(from + i/w.metrics()) {
			labels[i] = appendLabel(labels[i], t.name, t.value)
		}
	}
	header := http.Header{
		"Content-Encoding": {"snappy"}, "Content-Type": {"application/x-protobuf"},
		"X-Prometheus-Remote-Write-Version": {"0.1.0"},
	}
	var request, packed []byte
	entries := 0
	post := func() error {
		packed = s2.EncodeSnappy(packed[:cap(packed)], request)
		request, entries = request[:0], 0
		_, err := httpDo(ctx, http.MethodPost, url, header, packed)
		return err
	}
	err := w.generate(from, to, func(p point) error {
		request = appendSeries(request, labels[(p.host-from)*w.metrics()+p.metric], p.value.float(), p.ms)
		if entries++; entries < bodyPutPoints {
			return nil
		}
		return post()
	})
	if err == nil && entries > 0 {
		err = post()
	}
	return err
}

// The part of protocol buffers that prometheus.WriteRequest needs. The tag of
// field n is n<<3 | wire type: 0 is a varint, 1 eight bytes, 2 a length and
// that many bytes.

// appendLabel appends field 1 of TimeSeries, a Label{1: name, 2: value}.
func appendLabel(dst []byte, name, value string) []byte {
	label := append([]byte{1<<3 | 2}, byte(len(name)))
	label = append(label, name...)
	label = append(label, 2<<3|2, byte(len(value)))
	label = append(label, value...)
	dst = append(dst, 1<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(label)))
	return append(dst, label...)
}

// appendSeries appends field 1 of WriteRequest, a TimeSeries{1: labels,
// 2: Sample{1: value, 2: time}}.
func appendSeries(dst, labels []byte, v float64, ms int64) []byte {
	var sample [32]byte
	s := append(sample[:0], 1<<3|1)
	s = binary.LittleEndian.AppendUint64(s, math.Float64bits(v))
	s = append(s, 2<<3)
	s = binary.AppendUvarint(s, uint64(ms))
	dst = append(dst, 1<<3|2)
	dst = binary.AppendUvarint(dst, uint64(len(labels)+2+len(s)))
	dst = append(dst, labels...)
	dst = append(dst, 2<<3|2, byte(len(s)))
	return append(dst, s...)
}
