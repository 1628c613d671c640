package spool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

var rewrite = flag.Bool("rewrite", false, "write golden files instead of comparing")

// TestMetrics compares what is exposed after a life of a few samples with a
// golden file.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	sink := newRemote()
	s := mustOpen(t, vfs.NewMem(), DefaultConfig(), Options{Sink: sink, Registerer: registry})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1, 2, 3)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	put(t, s, testSeries("load", 2), 1, 1)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "varve_spool_") {
			continue // the log's
		}
		for _, m := range f.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			line := fmt.Sprintf("%s %v", f.GetName(), value)
			for _, unsteady := range []string{"oldest_seconds", "memory_bytes", "index_bytes"} {
				if strings.HasSuffix(f.GetName(), unsteady) {
					line = f.GetName() + " varies"
				}
			}
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", "metrics.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("metrics are\n%s, %v", got, err)
	}
}

// TestOldestSeconds: the age of the oldest sample that waits, and 0 when none does.
func TestOldestSeconds(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), Options{Registerer: registry})
	defer s.Close()
	gauge := func(name string) float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatalf("there is no %s", name)
		return 0
	}
	oldest := func() float64 { return gauge("varve_spool_oldest_seconds") }
	if got := gauge("varve_spool_sink_failing"); got != 1 {
		t.Errorf("the remote store, which is not reached yet, is failing: %v, want 1", got)
	}
	if got := oldest(); got != 0 {
		t.Errorf("before any sample: %v seconds", got)
	}
	put(t, s, testSeries("load", 1), 1, 1)
	if got := oldest(); got <= 0 {
		t.Errorf("while a sample waits: %v seconds", got)
	}
	began := s.Health().Oldest
	s.order.Lock()
	err := s.cutLocked()
	s.order.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, testSeries("load", 1), 2, 2)
	if h := s.Health(); h.Generations != 1 || !h.Oldest.Equal(began) {
		t.Errorf("the oldest sample of %d generations and the active one is of %s, want %s", h.Generations, h.Oldest, began)
	}
	s.Start(newRemote())
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := oldest(); got != 0 {
		t.Errorf("when all is drained: %v seconds", got)
	}
}

// TestOldestAfterRestart: a restart does not make the oldest sample that waits younger. While the remote
// store was never reached, one generation that is not cut holds all samples.
func TestOldestAfterRestart(t *testing.T) {
	clock, fs := newClock(), vfs.NewMem()
	s := mustOpen(t, fs, patient(tinyConfig()), clock.options(nil))
	put(t, s, testSeries("load", 1), 1, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		later time.Duration
		want  time.Duration // age of the sample
	}{
		{time.Hour, time.Hour},
		{time.Hour, 2 * time.Hour},
		{-3 * time.Hour, 0}, // the clock was set back to before the sample arrived
	} {
		clock.add(tc.later)
		s := mustOpen(t, fs, patient(tinyConfig()), clock.options(nil))
		if got := time.Since(s.Health().Oldest); got < tc.want || got > tc.want+time.Minute {
			t.Errorf("the oldest sample waits for %v, want %v", got, tc.want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A slowSink fails until it is mended. Then it writes the first samples of a generation, and waits.
type slowSink struct {
	mended, wrote, ends chan struct{}
}

func (s *slowSink) Write(_ context.Context, g *Generation) error {
	select {
	case <-s.mended:
	default:
		return errors.New("away")
	}
	g.Wrote(2)
	s.wrote <- struct{}{}
	<-s.ends
	return nil
}

// TestHealthOfLongDrain: while the remote store takes a generation after an outage, which can take minutes,
// it does not count as failing, and the samples that it has do not wait.
func TestHealthOfLongDrain(t *testing.T) {
	sink := &slowSink{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), quickRetries(Options{Sink: sink}))
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1, 2, 3)
	until(t, "a failure", func() bool { return s.Health().SinkError != nil })
	if h := s.Health(); h.Samples != 3 || h.SinkSince.IsZero() {
		t.Errorf("in the outage: %+v", h)
	}
	close(sink.mended)
	<-sink.wrote
	if h := s.Health(); h.Samples != 1 || h.SinkError != nil || !h.SinkSince.IsZero() {
		t.Errorf("during the drain: %+v, %v", h, h.SinkError)
	}
	close(sink.ends)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if h := s.Health(); h.Samples != 0 {
		t.Errorf("after the drain: %+v", h)
	}
}
