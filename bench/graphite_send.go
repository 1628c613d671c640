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
	"os/exec"
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

// A lineTarget is a kind of server that takes Graphite's lines.
type lineTarget interface {
	name() string
	version(ctx context.Context) (string, error) // exec.ErrNotFound if it is not installed
	startLines(ctx context.Context, dir string) (lineServer, error)
}

// A lineServer is a running one.
type lineServer interface {
	account() *process
	sendPaths(ctx context.Context, w workload, pickles bool, n int) error
	// visible returns when all n points can be asked for.
	visible(ctx context.Context, n int64) error
	// settle returns when everything is in files.
	settle(ctx context.Context) error
	// points is how many points of w there are. It may stop the server.
	points(ctx context.Context, w workload) (int64, error)
}

// whisperSteps is how many points of each series are sent beside servers that keep
// Whisper's files: all of W1 would take carbon-cache minutes.
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

	fast, err := r.installed(ctx, varveLines{ours}, victoriaLines{})
	if err != nil {
		return err
	}
	whisper, err := r.installed(ctx, varveLines{ours}, goCarbonTarget{}, carbonCacheTarget{})
	if err != nil {
		return err
	}
	for round := range r.rounds {
		for i := range fast {
			r.sendOnce(ctx, nameOf(stageLines), fast[(round+i)%len(fast)], round, w, false)
		}
		r.sendOnce(ctx, nameOf(stagePickle), varveLines{ours}, round, w, true)
		if cpu, ok := r.book.row(nameOf(stageLines), figureCPU).Values[varveName][round]; ok {
			r.book.column(sentAsLines)
			r.book.add(nameOf(stagePickle), figureCPU, sentAsLines, round, cpu)
		}
		for i := range whisper {
			if len(whisper) > 1 {
				r.sendOnce(ctx, nameOf(stageWhisper), whisper[(round+i)%len(whisper)], round, short, false)
			}
		}
	}
	return nil
}

// installed returns the targets that are there, and says which are not.
func (r *run) installed(ctx context.Context, all ...lineTarget) (found []lineTarget, err error) {
	for _, t := range all {
		version, err := t.version(ctx)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Printf("%s is not there and NOT MEASURED\n", t.name())
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", t.name(), err)
		}
		if t.name() != varveName {
			fmt.Printf("%s: %s\n", t.name(), version)
		}
		r.book.Versions[t.name()] = version
		r.book.column(t.name())
		found = append(found, t)
	}
	return found, nil
}

func (r *run) sendOnce(ctx context.Context, stage string, t lineTarget, round int, w workload, pickles bool) {
	if ctx.Err() != nil {
		return
	}
	dir, err := os.MkdirTemp(r.dir, "graphite-"+t.name()+"-")
	if err == nil {
		err = r.sendAndCount(ctx, stage, t, round, w, pickles, dir)
		os.RemoveAll(dir)
	}
	if err != nil {
		r.book.fail(stage, t.name(), err)
	}
	fmt.Fprintf(os.Stderr, "%s round %d: %s done\n", stage, round+1, t.name())
}

func (r *run) sendAndCount(ctx context.Context, stage string, t lineTarget, round int, w workload, pickles bool, dir string) error {
	s, err := t.startLines(ctx, dir)
	if err != nil {
		return err
	}
	defer s.account().kill()
	add := func(f figure, v float64) { r.book.add(stage, f, t.name(), round, v) }
	millions := float64(w.points()) / 1e6
	before, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	began := time.Now()
	send := func() error { return s.sendPaths(ctx, w, pickles, r.connections) }
	if v, ok := s.(*varveLineServer); ok {
		err = r.profiled(ctx, v.varve, stage, send)
	} else {
		err = send()
	}
	if err == nil {
		err = s.visible(ctx, w.points())
	}
	if err != nil {
		return err
	}
	taken := time.Since(began)
	visible, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	settled, err := s.account().cpuSeconds()
	if err != nil {
		return err
	}
	memory, err := s.account().peakMemory()
	if err != nil {
		return err
	}
	n, err := s.points(ctx, w)
	if err != nil {
		return err
	}
	if n != w.points() {
		return fmt.Errorf("%d points are there, %d were sent", n, w.points())
	}
	if _, untold := s.(*whisperServer); !untold {
		add(figureCPU, (visible-before)/millions)
		add(figureSpeed, millions/taken.Seconds())
	}
	add(figureCPUAll, (settled-before)/millions)
	add(figurePeak, float64(memory)/1e6)
	add(figureLoad, loadAverage())
	return nil
}

// varveLines is Varve as a target of lines.
type varveLines struct{ varveTarget }

type varveLineServer struct{ *graphiteVarve }

func (t varveLines) startLines(ctx context.Context, dir string) (lineServer, error) {
	v, err := t.startGraphite(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	return &varveLineServer{v}, nil
}

func (s *varveLineServer) visible(ctx context.Context, n int64) error {
	return awaitStored(ctx, s.varve, n)
}

// points counts host by host, as KairosDB's API does.
func (s *varveLineServer) points(ctx context.Context, w workload) (sum int64, err error) {
	for h := range w.hosts {
		var metrics []object
		for m := range w.metrics() {
			metrics = append(metrics, object{"name": graphitePath(h, m), "aggregators": aggregator("count", w.endMS()-w.startMS)})
		}
		text, err := s.query(ctx, w.startMS, w.endMS(), metrics...)
		if err != nil {
			return 0, err
		}
		a, err := s.read(question{host: 0}, text)
		if err != nil {
			return 0, err
		}
		for _, sample := range a[""] {
			sum += int64(sample.value)
		}
	}
	return sum, nil
}

// victoriaLines is VictoriaMetrics as a target of lines.
type victoriaLines struct{ victoriaTarget }

type victoriaLineServer struct {
	*victoria
	graphiteAddrs
}

func (victoriaLines) startLines(ctx context.Context, dir string) (lineServer, error) {
	addrs, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	v := &victoria{dir: filepath.Join(dir, "data"), http: addrs[0]}
	v.process, err = startProcess(ctx, "victoria-metrics", "-storageDataPath="+v.dir, "-httpListenAddr="+v.http,
		"-graphiteListenAddr="+addrs[1], "-retentionPeriod=100y", "-loggerLevel=WARN")
	if err != nil {
		return nil, err
	}
	err = v.awaitReady(func() error {
		_, err := httpGet(ctx, "http://"+v.http+"/health")
		return err
	})
	return &victoriaLineServer{v, graphiteAddrs{lines: addrs[1]}}, err
}

func (s *victoriaLineServer) visible(ctx context.Context, n int64) error {
	if err := awaitStored(ctx, graphiteRows{s.victoria}, n); err != nil {
		return err
	}
	return s.flush(ctx)
}

// graphiteRows are the points that came as lines of Graphite.
type graphiteRows struct{ *victoria }

func (v graphiteRows) stored(ctx context.Context) (int64, error) {
	text, err := httpGet(ctx, "http://"+v.http+"/metrics")
	if err != nil {
		return 0, err
	}
	n, err := metricIn(text, `vm_rows_inserted_total{type="graphite"}`)
	return int64(n), err
}

func (s *victoriaLineServer) points(ctx context.Context, w workload) (sum int64, err error) {
	text, err := promPost(ctx, s.http, "query", url.Values{
		"query":   {fmt.Sprintf(`sum(count_over_time({__name__=~"production.+"}[%ds]))`, (w.endMS()-w.startMS)/1000)},
		"time":    {promTime(w.endMS() - 1)},
		"nocache": {"1"},
	})
	if err != nil {
		return 0, err
	}
	counts, err := promCounts(text)
	for _, n := range counts {
		sum += n
	}
	return sum, err
}

// A whisperServer keeps Whisper's files. It does not say when it has taken all
// points, but is at rest once they are in files.
type whisperServer struct {
	*process
	graphiteAddrs
	dir string
}

const whisperSchemas = "[all]\npattern = .*\nretentions = 10s:7h\n"

func startWhisper(ctx context.Context, dir, config, program string, args []string, settings func(data, line, pickle string) string) (lineServer, error) {
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
	s := &whisperServer{graphiteAddrs: graphiteAddrs{addrs[0], addrs[1]}, dir: data}
	if s.process, err = startProcess(ctx, program, args...); err != nil {
		return nil, err
	}
	return s, s.awaitReady(func() error {
		conn, err := net.Dial("tcp", s.lines)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (s *whisperServer) account() *process { return s.process }

func (s *whisperServer) visible(context.Context, int64) error { return nil }

func (s *whisperServer) settle(ctx context.Context) error {
	return s.awaitQuiet(ctx, s.dir, 3*time.Second, 10*time.Minute)
}

// points counts the points in files.
func (s *whisperServer) points(_ context.Context, w workload) (sum int64, err error) {
	err = filepath.WalkDir(filepath.Join(s.dir, "production"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".wsp" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		const head, point = 16 + 12, 4 + 8 // of the file with its one archive
		for at := head; at+point <= len(text); at += point {
			if ms := int64(binary.BigEndian.Uint32(text[at:])) * 1000; ms >= w.startMS && ms < w.endMS() {
				sum++
			}
		}
		return nil
	})
	return sum, err
}

// goCarbonTarget is go-carbon, where it is installed.
type goCarbonTarget struct{}

func (goCarbonTarget) name() string { return "go-carbon" }

func (goCarbonTarget) version(ctx context.Context) (string, error) {
	return packageVersion(ctx, "go-carbon", "go-carbon", "-version")
}

func (goCarbonTarget) startLines(ctx context.Context, dir string) (lineServer, error) {
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

func (carbonCacheTarget) startLines(ctx context.Context, dir string) (lineServer, error) {
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
