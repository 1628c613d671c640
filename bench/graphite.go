package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// graphiteParts are the parts of the stage graphite, which can be run alone.
var graphiteParts = []string{"graphite-send", "graphite-globs", "graphite-render", "graphite-retention"}

// overGraphite runs parts of the stage graphite.
func (r *run) overGraphite(ctx context.Context, parts []string) {
	if len(parts) == 0 {
		return
	}
	ours, err := r.varve()
	if err != nil {
		r.book.fail("graphite", varveName, err)
		return
	}
	for _, part := range []struct {
		name string
		do   func(context.Context, varveTarget) error
	}{
		{"graphite-send", r.graphiteSend}, {"graphite-globs", r.graphiteGlobs},
		{"graphite-render", r.graphiteRender}, {"graphite-retention", r.graphiteRetention},
	} {
		if !slices.Contains(parts, part.name) || ctx.Err() != nil {
			continue
		}
		if err := part.do(ctx, ours); err != nil {
			r.book.fail(part.name, varveName, err)
		}
	}
}

// Columns with which Varve is compared in stages without peers.
const (
	sentAsLines = "as lines"
	withoutRule = "without a rule"
)

// The goals of the stage graphite.
func init() {
	for row, g := range map[string]goal{
		stageLines + figureCPU.name:         {Ratio: 0.40},
		stageWhisper + figureCPUAll.name:    {Ratio: 0.25, Peer: goCarbonTarget{}.name()},
		stagePickle + figureCPU.name:        {Ratio: 1.2, Peer: sentAsLines},
		stageGlob + figureP99.name:          {Most: 100},
		stageGlob + figureNameHeap.name:     {Most: 120},
		stageGlob5 + figureP50.name:         {Most: 20},
		stageRender + figureP50.name:        {Most: 30},
		stageRender30 + figureP50.name:      {Most: 60},
		stageRetention + figureCPUAll.name:  {Ratio: 1.25, Peer: withoutRule},
		stageStages + figureStageBytes.name: {Ratio: 0.15, Peer: withoutRule},
	} {
		stage, name, _ := strings.Cut(row, ": ")
		goals[stage+" "+name] = g
	}
}

// startRuled starts a Varve with a configuration file, which may be empty.
func (t varveTarget) startRuled(ctx context.Context, dir, settings string) (*varve, error) {
	config := filepath.Join(dir, "varve.yaml")
	if err := os.WriteFile(config, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	return t.startBy(ctx, dir, "--config", config, "--tune", "embedded.late_hold=1ms") // so that settle can fold without the wait after a start
}

// graphitePath is the path of a series, with the tags of a put line as nodes.
func graphitePath(host, metric int) string {
	return fmt.Sprintf("production.dc%d.rack-%02d.web%02d.%s.%s", host%4, host%40, host%25, hostName(host), metricName(metric))
}

// paths returns the paths of hosts [from, to) of w.
func paths(w workload, from, to int) (list []string) {
	for h := from; h < to; h++ {
		for m := range w.metrics() {
			list = append(list, graphitePath(h, m))
		}
	}
	return list
}

// dialed calls send with a buffered connection.
func dialed(ctx context.Context, addr string, send func(*bufio.Writer) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	out := bufio.NewWriterSize(conn, 64<<10)
	return errors.Join(send(out), out.Flush())
}

// sendPathLines sends hosts [from, to) of w as lines of about 75 bytes.
func sendPathLines(ctx context.Context, w workload, addr string, from, to int) error {
	heads := paths(w, from, to)
	return dialed(ctx, addr, func(out *bufio.Writer) error {
		line := make([]byte, 0, 256)
		return w.generate(from, to, func(p point) error {
			line = append(line[:0], heads[(p.host-from)*w.metrics()+p.metric]...)
			line = p.value.appendTo(append(line, ' '))
			line = strconv.AppendInt(append(line, ' '), p.ms/1000, 10)
			_, err := out.Write(append(line, '\n'))
			return err
		})
	})
}

// framePoints is how many points carbon's relay puts into a pickle.
const framePoints = 500

// sendPickles sends hosts [from, to) of w in pickles as carbon's relay makes them
// on Python 3: a list of (path, (int, float)), protocol 4.
func sendPickles(ctx context.Context, w workload, addr string, from, to int) error {
	heads := paths(w, from, to)
	const memoize, tuple = 0x94, 0x86
	return dialed(ctx, addr, func(out *bufio.Writer) error {
		var items []byte
		n := 0
		flush := func() error {
			if n == 0 {
				return nil
			}
			items = append(items, "e."...)
			head := []byte{0, 0, 0, 0, 0x80, 4, 0x95, 0, 0, 0, 0, 0, 0, 0, 0, ']', memoize, '('}
			binary.BigEndian.PutUint32(head, uint32(len(head)-4+len(items)))
			binary.LittleEndian.PutUint64(head[7:], uint64(3+len(items)))
			_, err := out.Write(head)
			if err == nil {
				_, err = out.Write(items)
			}
			items, n = items[:0], 0
			return err
		}
		err := w.generate(from, to, func(p point) error {
			path := heads[(p.host-from)*w.metrics()+p.metric]
			items = append(items, 0x8c, byte(len(path)))
			items = append(append(items, path...), memoize, 'J')
			items = binary.LittleEndian.AppendUint32(items, uint32(p.ms/1000))
			items = binary.BigEndian.AppendUint64(append(items, 'G'), math.Float64bits(p.value.float()))
			items = append(items, tuple, memoize, tuple, memoize)
			if n++; n < framePoints {
				return nil
			}
			return flush()
		})
		return errors.Join(err, flush())
	})
}

// endingAt is w with its last step at or before a time, on a full step.
func endingAt(w workload, at time.Time) workload {
	ms := at.UnixMilli()
	w.startMS = ms - ms%w.stepMS - int64(w.steps-1)*w.stepMS
	return w
}
