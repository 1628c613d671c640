package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Stages of asking.
const (
	stageGlob     = "graphite glob: "
	stageGlob5    = "graphite glob of five nodes: "
	stageRender   = "graphite render: "
	stageRender30 = "graphite render of 30 days: "
)

var (
	figureNameHeap = figure{"heap of all there is, after a start", "bytes/name"}
	figureNameRAM  = figure{"RSS, after a start", "bytes/name"}
	figureNewRAM   = figure{"RSS, with a point of each in memory", "bytes/name"}
	figureNameCPU  = figure{"server CPU of new names", "s/M names"}
)

// Names of the tree that globs search: rootNames x midNames x groupNames x
// leafNames x 5, 10 million in all. a.*.c.{x,y}.* matches midNames x 2 x 5.
const (
	midNames   = 100
	groupNames = 10
	leafNames  = 100
	lastNames  = 5
	rootNames  = 20
	manyMatch  = midNames * 2 * lastNames
)

// nodeName names the nth node of a level: by a letter without a prefix (up to
// 26 nodes), otherwise by the prefix and a number.
func nodeName(n int, prefix string) string {
	if prefix == "" {
		return string(rune('a' + n))
	}
	return fmt.Sprintf("%s%02d", prefix, n)
}

// leafName is x, y, or a name such as leaf00.
func leafName(n int) string {
	if n < 2 {
		return string(rune('x' + n))
	}
	return nodeName(n, "leaf")
}

// eachGlobName calls f for the names below the first roots.
func eachGlobName(roots int, f func(name string) error) error {
	for root := range roots {
		for mid := range midNames {
			for group := range groupNames {
				for leaf := range leafNames {
					for last := range lastNames {
						name := nodeName(root, "") + "." + nodeName(mid, "web") + "." + nodeName(group, "") + "." + leafName(leaf) + "." + nodeName(last, "n")
						if err := f(name); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// The names of five nodes: a hundred metrics each of a thousand groups, of which
// *.*.*.*.m0[0-4] matches 5,000.
const fiveMatch = 10 * 10 * 5 * 2 * 5

func eachFiveName(f func(name string) error) error {
	for i := range 100_000 {
		name := fmt.Sprintf("dc%d.rack%d.host%d.cpu%d.m%02d", i/10_000, i/1000%10, i/200%5, i/100%2, i%100)
		if err := f(name); err != nil {
			return err
		}
	}
	return nil
}

// sendNames sends a point of each name.
func sendNames(ctx context.Context, addr string, each func(func(string) error) error) (n int64, err error) {
	tail := " 1 " + strconv.FormatInt(time.Now().Unix(), 10) + "\n"
	err = dialed(ctx, addr, func(out *bufio.Writer) error {
		return each(func(name string) error {
			n++
			out.WriteString(name)
			_, err := out.WriteString(tail)
			return err
		})
	})
	return n, err
}

// graphiteGlobs asks for names by globs.
func (r *run) graphiteGlobs(ctx context.Context, ours varveTarget) error {
	roots := rootNames
	if r.quick {
		roots = 2
	}
	stage := nameOf(stageGlob)
	r.book.title(stage, fmt.Sprintf("a.*.c.{x,y}.*, %d matches among %d names, by /metrics/find", manyMatch, roots*midNames*groupNames*leafNames*lastNames))
	err := r.globs(ctx, ours, stage, "a.*.c.{x,y}.*", manyMatch, func(f func(string) error) error { return eachGlobName(roots, f) })
	if err != nil {
		return err
	}
	stage = nameOf(stageGlob5)
	r.book.title(stage, fmt.Sprintf("*.*.*.*.m0[0-4], %d matches among 100000 names, by /metrics/find", fiveMatch))
	return r.globs(ctx, ours, stage, "*.*.*.*.m0[0-4]", fiveMatch, eachFiveName)
}

func (r *run) globs(ctx context.Context, ours varveTarget, stage, glob string, matches int, each func(func(string) error) error) error {
	dir, remove, err := r.emptyDir("globs", ours)
	if err != nil {
		return err
	}
	defer remove()
	add := func(f figure, v float64) { r.book.add(stage, f, varveName, 0, v) }
	s, err := ours.startBy(ctx, dir, "--ingest-max-series=20000000")
	if err != nil {
		return err
	}
	defer func() { s.kill() }()
	empty, err := s.residentBytes()
	if err != nil {
		return err
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	var n int64
	err = r.profiled(ctx, s, stage+" names", func() (err error) {
		if n, err = sendNames(ctx, s.paths, each); err != nil {
			return err
		}
		return awaitStored(ctx, s, n)
	})
	if err != nil {
		return err
	}
	after, err := s.usage()
	if err != nil {
		return err
	}
	full, err := s.residentBytes()
	if err != nil {
		return err
	}
	add(figureNameCPU, (after.cpu-before.cpu)/float64(n)*1e6)
	add(figureNewRAM, float64(full-empty)/float64(n))
	fmt.Fprintf(os.Stderr, "%s: %d names are in\n", stage, n)
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	again, err := ours.startBy(ctx, dir, "--ingest-max-series=20000000")
	if err != nil {
		return err
	}
	s = again
	heap, err := s.heapBytes(ctx)
	if err != nil {
		return err
	}
	add(figureNameHeap, float64(heap)/float64(n))
	if full, err = s.residentBytes(); err != nil {
		return err
	}
	add(figureNameRAM, float64(full-empty)/float64(n))
	path := "/metrics/find?format=completer&query=" + url.QueryEscape(glob)
	return r.timed(ctx, s, stage, path, func(answer []byte) error {
		if n := bytes.Count(answer, []byte(`"path"`)); n != matches {
			return fmt.Errorf("%s has %d matches, want %d", glob, n, matches)
		}
		return nil
	})
}

// timed repeats a request over one connection, and checks the first answer.
func (r *run) timed(ctx context.Context, s *varve, stage, path string, check func(answer []byte) error) error {
	answer, err := httpGet(ctx, "http://"+s.http+path)
	if err != nil {
		return err
	}
	if err := check(answer); err != nil {
		return err
	}
	before, err := s.usage()
	if err != nil {
		return err
	}
	var millis []float64
	err = r.profiled(ctx, s, stage, func() error {
		for range r.turns {
			began := time.Now()
			if _, err := httpGet(ctx, "http://"+s.http+path); err != nil {
				return err
			}
			millis = append(millis, millisSince(began))
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := s.usage()
	if err != nil {
		return err
	}
	r.book.add(stage, figureP50, varveName, 0, median(millis))
	r.book.add(stage, figureP99, varveName, 0, quantile(millis, 0.99))
	r.book.add(stage, figureQueryCPU, varveName, 0, (after.cpu-before.cpu)*1000/float64(len(millis)))
	r.book.add(stage, figureLoad, varveName, 0, loadAverage())
	fmt.Fprintf(os.Stderr, "%s done\n", stage)
	return nil
}

// heapBytes is the size of the live heap, after a collection.
func (s *varve) heapBytes(ctx context.Context) (int64, error) {
	text, err := httpGet(ctx, "http://"+s.pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	const line = "# HeapAlloc = "
	at := bytes.Index(text, []byte(line))
	if at < 0 {
		return 0, fmt.Errorf("the profile of the heap has no %q", line)
	}
	number, _, _ := strings.Cut(string(text[at+len(line):]), "\n")
	return strconv.ParseInt(number, 10, 64)
}

// residentBytes is the resident size now.
func (p *process) residentBytes() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("/proc statm %q: %w", text, err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// Rules of rendering. The last stage reduces 30 days to 1,440 points per series.
const (
	dayPoints    = 1440
	renderHosts  = 1000 / metricsPerHost
	renderDay    = "retention:\n  policies:\n    - {name: all, stages: '60s:7d'}\n"
	renderMonth  = "retention:\n  enforce: true\n  policies:\n    - {name: all, stages: '10m:1d,30m:40d,1h:5y'}\n"
	renderSeries = "sumSeries(production.*.*.*.*.*.*.*.*)"
)

// graphiteRender asks for the sum of 1,000 series: over a day of samples as they were
// sent, and over 30 days that a rule has downsampled.
func (r *run) graphiteRender(ctx context.Context, ours varveTarget) error {
	now := time.Now()
	day := endingAt(workload{name: "day", hosts: renderHosts, steps: dayPoints, stepMS: 60_000, shape: devops}, now)
	month := endingAt(workload{name: "month", hosts: renderHosts, steps: 30 * 24 * 6, stepMS: 600_000, shape: devops}, now.Add(-25*time.Hour))
	r.book.title(nameOf(stageRender), "sumSeries over "+day.String()+", a point a minute, in files")
	r.book.title(nameOf(stageRender30), "sumSeries over 30 days of "+month.String()+", folded to buckets of 30 minutes, 1,440 a series")
	if err := r.renders(ctx, ours, nameOf(stageRender), renderDay, day, day.stepMS); err != nil {
		return err
	}
	return r.renders(ctx, ours, nameOf(stageRender30), renderMonth, month, 3*month.stepMS)
}

// renders sends w, and asks for the sum of its series. The answer must have the step
// stepMS.
func (r *run) renders(ctx context.Context, ours varveTarget, stage, settings string, w workload, stepMS int64) error {
	dir, remove, err := r.emptyDir("render", ours)
	if err != nil {
		return err
	}
	defer remove()
	s, err := ours.startRuled(ctx, dir, settings)
	if err != nil {
		return err
	}
	defer s.kill()
	if err := r.sendAll(ctx, s, w, asPaths); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if stepMS != w.stepMS {
		folded, err := s.metric(ctx, "varve_store_folded_samples_total")
		if err != nil {
			return err
		}
		if int64(folded) < w.points() {
			return fmt.Errorf("%.0f of %d points are in buckets", folded, w.points())
		}
	}
	path := fmt.Sprintf("/render?format=json&target=%s&from=%d&until=%d", url.QueryEscape(renderSeries), w.startMS/1000, w.endMS()/1000-1)
	return r.timed(ctx, s, stage, path, func(answer []byte) error {
		return checkRendered(answer, w, stepMS)
	})
}

// checkRendered checks that an answer has one series of about dayPoints points with the
// given step.
func checkRendered(text []byte, w workload, stepMS int64) error {
	var series []struct{ Datapoints [][2]*float64 }
	if err := json.Unmarshal(text, &series); err != nil {
		return fmt.Errorf("answer of render: %w", err)
	}
	if len(series) != 1 {
		return fmt.Errorf("%d series, want 1", len(series))
	}
	there := 0
	points := series[0].Datapoints
	for i, p := range points {
		if p[0] != nil {
			there++
		}
		if i > 0 && int64(*p[1]-*points[i-1][1])*1000 != stepMS {
			return fmt.Errorf("the answer's step is %v s, want %d ms", *p[1]-*points[i-1][1], stepMS)
		}
	}
	if want := int(int64(w.steps) * w.stepMS / stepMS); there < want-2 || there > want+2 {
		return fmt.Errorf("the sum has %d points, want about %d", there, want)
	}
	return nil
}
