package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Stages of sending; a colon ends the name of a stage in the list of goals.
const (
	stageLines   = "graphite lines: "
	stageWhisper = "graphite lines beside Whisper: "
	stagePickle  = "graphite pickles: "
)

func nameOf(stage string) string { return strings.TrimSuffix(stage, ": ") }

// whisperSteps is how many points of each series servers with Whisper's files get:
// all of W1 would take carbon-cache minutes.
const whisperSteps = 270

// graphiteSend sends W1 in Graphite's protocols.
func (r *run) graphiteSend(ctx context.Context, ours varveTarget) error {
	w := endingAt(r.sized(w1), time.Now())
	w.name = "graphite"
	short := w
	short.steps = min(w.steps, whisperSteps)
	short = endingAt(short, time.Now())
	r.book.title(nameOf(stageLines), w.String()+", lines of Graphite over TCP")
	r.book.title(nameOf(stagePickle), fmt.Sprintf("%v, pickles of %d points over TCP", w, framePoints))
	r.book.title(nameOf(stageWhisper), short.String()+", lines of Graphite over TCP; less than W1, since each server has all of it in its files in the end")

	fast, err := installed[target](ctx, r, varveLines{ours}, victoriaLines{})
	if err != nil {
		return err
	}
	whisper, err := installed[target](ctx, r, varveLines{ours}, goCarbonTarget{}, carbonCacheTarget{})
	if err != nil {
		return err
	}
	for round := range r.rounds {
		for i := range fast {
			r.turn(ctx, nameOf(stageLines), round, fast[(round+i)%len(fast)], w, asPaths)
		}
		r.turn(ctx, nameOf(stagePickle), round, varveLines{ours}, w, asPickles)
		if cpu, ok := r.book.row(nameOf(stageLines), figureCPU).Values[varveName][round]; ok {
			r.book.column(sentAsLines)
			r.book.add(nameOf(stagePickle), figureCPU, sentAsLines, round, cpu)
		}
		for i := range whisper {
			if len(whisper) > 1 {
				r.turn(ctx, nameOf(stageWhisper), round, whisper[(round+i)%len(whisper)], short, asPaths)
			}
		}
	}
	return nil
}

// varveLines is Varve as a target of Graphite's protocols.
type varveLines struct{ varveTarget }

type varveLineServer struct{ *varve }

func (t varveLines) start(ctx context.Context, dir string, _ mode) (server, error) {
	v, err := t.startRuled(ctx, dir, "")
	return varveLineServer{v}, err
}

// counts asks for the path of each host.
func (s varveLineServer) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	var metrics []object
	for h := range w.hosts {
		metrics = append(metrics, object{"name": graphitePath(h, metric), "aggregators": aggregator("count", w.endMS()-w.startMS)})
	}
	text, err := s.query(w.startMS, w.endMS(), metrics...).do(ctx)
	if err != nil {
		return nil, err
	}
	decoded, err := parseKairos(text)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int64)
	for h, q := range decoded.Queries {
		for _, r := range q.Results {
			for _, v := range r.Values {
				counts[hostName(h)] += int64(v[1])
			}
		}
	}
	return counts, nil
}

// victoriaLines is VictoriaMetrics as a target of Graphite's lines.
type victoriaLines struct{ victoriaTarget }

type victoriaLineServer struct{ *victoria }

func (t victoriaLines) start(ctx context.Context, dir string, _ mode) (server, error) {
	v, err := t.startBy(ctx, dir, "-graphiteListenAddr=")
	return victoriaLineServer{v}, err
}

func (s victoriaLineServer) send(ctx context.Context, w workload, _ form, n int) error {
	return inParallel(ctx, w, n, func(ctx context.Context, from, to int) error { return sendPathLines(ctx, w, s.put, from, to) })
}

func (s victoriaLineServer) stored(ctx context.Context) (int64, error) {
	n, err := metricOf(ctx, "http://"+s.http+"/metrics", `vm_rows_inserted_total{type="graphite"}`)
	return int64(n), err
}

func (s victoriaLineServer) counts(ctx context.Context, w workload, metric int) (map[string]int64, error) {
	text, err := promRequest(s.http, "query", url.Values{
		"query":   {fmt.Sprintf(`count_over_time({__name__=~"production.+%s"}[%ds]) keep_metric_names`, metricName(metric), (w.endMS()-w.startMS)/1000)},
		"time":    {promTime(w.endMS() - 1)},
		"nocache": {"1"},
	}).do(ctx)
	if err != nil {
		return nil, err
	}
	byPath, err := promCounts(text, "__name__")
	counts := make(map[string]int64)
	for h := range w.hosts {
		counts[hostName(h)] = byPath[graphitePath(h, metric)]
	}
	return counts, err
}

// A whisperServer keeps Whisper's files. It does not report when it has
// received all points, but becomes idle once they are in files.
type whisperServer struct {
	*process
	dir, lines string
	sent       int64
}

const whisperSchemas = "[all]\npattern = .*\nretentions = 10s:7h\n"

func startWhisper(ctx context.Context, dir, config, program string, args []string, settings func(data, line, pickle string) string) (server, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "whisper")
	for name, text := range map[string]string{config: settings(data, addrs[0], addrs[1]), "storage-schemas.conf": whisperSchemas, "storage-aggregation.conf": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	s := &whisperServer{dir: data, lines: addrs[0]}
	if s.process, err = startProcess(ctx, program, args...); err != nil {
		return nil, err
	}
	return s, s.awaitReady(usualPatience, func() error { return listens(s.lines) })
}

// dataDirs returns none: the schema determines the size of Whisper's files.
func (s *whisperServer) dataDirs() []string { return nil }

func (s *whisperServer) send(ctx context.Context, w workload, _ form, n int) error {
	s.sent = w.points()
	return inParallel(ctx, w, n, func(ctx context.Context, from, to int) error { return sendPathLines(ctx, w, s.lines, from, to) })
}

// stored reports all points as stored; settle waits until they are.
func (s *whisperServer) stored(context.Context) (int64, error) { return s.sent, nil }

func (s *whisperServer) flush(context.Context) error { return nil }

func (s *whisperServer) settle(ctx context.Context) error {
	return s.awaitQuiet(ctx, s.dir, 3*time.Second, 10*time.Minute)
}

// counts counts the points in files.
func (s *whisperServer) counts(_ context.Context, w workload, metric int) (map[string]int64, error) {
	counts := make(map[string]int64)
	for h := range w.hosts {
		text, err := os.ReadFile(filepath.Join(s.dir, strings.ReplaceAll(graphitePath(h, metric), ".", "/")) + ".wsp")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		const head, point = 16 + 12, 4 + 8 // of the file with its one archive
		for at := head; at+point <= len(text); at += point {
			if ms := int64(binary.BigEndian.Uint32(text[at:])) * 1000; ms >= w.startMS && ms < w.endMS() {
				counts[hostName(h)]++
			}
		}
	}
	return counts, nil
}

// request is never called: these servers get no queries.
func (s *whisperServer) request(question) request { return request{} }

func (s *whisperServer) read(question, []byte) (answer, error) { return nil, errors.ErrUnsupported }

// goCarbonTarget is go-carbon, where it is installed.
type goCarbonTarget struct{}

func (goCarbonTarget) name() string { return "go-carbon" }

func (goCarbonTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "go-carbon", "go-carbon", "-version")
}

func (goCarbonTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	const config = "go-carbon.conf"
	return startWhisper(ctx, dir, config, "go-carbon", []string{"-config", filepath.Join(dir, config)}, func(data, line, pickle string) string {
		return fmt.Sprintf(`[common]
user = ""
metric-interval = "24h"
max-cpu = %d
[whisper]
data-dir = %q
schemas-file = %q
aggregation-file = ""
workers = %d
enabled = true
[cache]
max-size = 100000000
write-strategy = "max"
[udp]
enabled = false
[tcp]
listen = %q
enabled = true
[pickle]
listen = %q
enabled = true
[carbonlink]
enabled = false
[grpc]
enabled = false
[carbonserver]
enabled = false
[[logging]]
logger = ""
file = "stderr"
level = "warn"
`, runtime.NumCPU(), data, filepath.Join(dir, "storage-schemas.conf"), runtime.NumCPU(), line, pickle)
	})
}

// carbonCacheTarget is carbon-cache as Debian packages it.
type carbonCacheTarget struct{}

func (carbonCacheTarget) name() string { return "carbon-cache" }

func (carbonCacheTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "carbon-cache", "graphite-carbon", "--version")
}

func (carbonCacheTarget) start(ctx context.Context, dir string, _ mode) (server, error) {
	const config = "carbon.conf"
	args := []string{"--config=" + filepath.Join(dir, config), "--nodaemon", "--pidfile=" + filepath.Join(dir, "pid"), "--logdir=" + dir, "start"}
	return startWhisper(ctx, dir, config, "carbon-cache", args, func(data, line, pickle string) string {
		lineHost, linePort, _ := net.SplitHostPort(line)
		_, picklePort, _ := net.SplitHostPort(pickle)
		return fmt.Sprintf(`[cache]
STORAGE_DIR = %s
LOCAL_DATA_DIR = %s
CONF_DIR = %[1]s
LOG_DIR = %[1]s
PID_DIR = %[1]s
USER =
MAX_CACHE_SIZE = inf
MAX_UPDATES_PER_SECOND = inf
MAX_CREATES_PER_MINUTE = inf
CACHE_WRITE_STRATEGY = sorted
LINE_RECEIVER_INTERFACE = %[3]s
LINE_RECEIVER_PORT = %[4]s
PICKLE_RECEIVER_INTERFACE = %[3]s
PICKLE_RECEIVER_PORT = %[5]s
CACHE_QUERY_INTERFACE = %[3]s
CACHE_QUERY_PORT = 0
ENABLE_UDP_LISTENER = False
CARBON_METRIC_INTERVAL = 0
LOG_UPDATES = False
LOG_CREATES = False
LOG_CACHE_HITS = False
`, dir, data, lineHost, linePort, picklePort)
	})
}
