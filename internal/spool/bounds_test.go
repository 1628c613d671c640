package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
	"varve/internal/units/unitstest"
	"varve/internal/wal"
)

// fill appends samples until Append refuses them, n at most.
func fill(s *Spool, want content, n int) (int, error) {
	for i := range n {
		series := testSeries("load", i%50)
		first := int64(i/50) * 40
		var times []int64
		for ms := first; ms < first+40; ms++ {
			times = append(times, ms)
		}
		if err := tryPut(s, series, int64(i), times...); err != nil {
			return i, err
		}
		for _, ms := range times {
			want.set(string(series.AppendKey(nil)), ms, longText(int64(i)))
		}
	}
	return n, nil
}

// TestOutage: while the remote store is unavailable, memory stays bounded and all samples stay
// visible; they are drained when it is back.
func TestOutage(t *testing.T) {
	cfg := tinyConfig()
	cfg.GenerationSamples = 1 << 30
	sink := newRemote()
	var down atomic.Bool
	down.Store(true)
	sink.fail = func() error {
		if down.Load() {
			return errDown
		}
		return nil
	}
	fs := crashfs.New()
	s := mustOpen(t, fs, cfg, Options{Sink: sink})
	want := content{}
	if n, err := fill(s, want, 5000); err != nil {
		t.Fatalf("append %d: %v", n, err)
	}
	h := s.Health()
	if h.FileBytes == 0 || h.Samples != 200_000 || h.Generations < 3 || !errors.Is(h.SinkError, errDown) || h.SinkSince.IsZero() || h.Err != nil {
		t.Errorf("health: %+v", h)
	}
	if most := int64(cfg.MaxMemory) + 64<<10; h.MemoryBytes > most {
		t.Errorf("%d bytes in memory, want at most %d", h.MemoryBytes, most)
	}
	see := func(s *Spool, when string) {
		t.Helper()
		v := s.View()
		defer v.Close()
		got := sink.content()
		got.overlay(t, v, "load")
		if err := got.diff(want); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	see(s, "during the outage")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = mustOpen(t, fs, cfg, Options{Sink: sink})
	defer s.Close()
	see(s, "after a restart")
	if h := s.Health(); h.FileBytes == 0 || h.Samples != 200_000 {
		t.Errorf("health after a restart: %+v", h)
	}
	v := s.View()
	down.Store(false)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
	alone := content{}
	alone.overlay(t, v, "load")
	if err := alone.diff(want); err != nil {
		t.Errorf("a view that was opened before: %v", err)
	}
	v.Close()
	names, err := fs.List("spool/" + spillName)
	if err != nil || len(names) != 0 {
		t.Errorf("files left: %v, %v", names, err)
	}
	if h := s.Health(); h.Samples != 0 || h.FileBytes != 0 || h.SinkError != nil || h.MemoryBytes > 1<<10 {
		t.Errorf("health at the end: %+v", h)
	}
}

// TestPartlyAway: while the sink cannot write one series, all others are written, including
// those of later generations and of one that never fills. No generation counts as drained
// before older ones.
func TestPartlyAway(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	far := newRemote()
	sink := sinkFunc(func(ctx context.Context, g *Generation) error {
		left := int64(0)
		for id := range g.Series() {
			if series, _ := g.SeriesOf(id); series.Metric == "away" && away.Load() {
				left++
			} else if err := far.writeOne(g, id); err != nil {
				return err
			}
		}
		if left > 0 {
			return &PartialError{Left: left, Written: true, Err: errDown}
		}
		return nil
	})
	cfg := tinyConfig()
	cfg.GenerationSamples = 20
	s := mustOpen(t, vfs.NewMem(), cfg, quickRetries(Options{Sink: sink}))
	defer s.Close()
	want := content{}
	both := []model.Series{testSeries("away", 1), testSeries("here", 1)}
	for i := range int64(100) {
		putAll(t, s, both, i, 1000*i) // in one batch: a generation of one series would be written
		for _, series := range both {
			want.set(string(series.AppendKey(nil)), 1000*i, longText(i))
		}
	}
	last := testSeries("here", 1) // a generation has 20, this is the 201st
	put(t, s, last, 1, 1_000_000)
	want.set(string(last.AppendKey(nil)), 1_000_000, longText(1))
	here := content{string(testSeries("here", 1).AppendKey(nil)): want[string(testSeries("here", 1).AppendKey(nil))]}
	for end := time.Now().Add(2 * time.Minute); far.content().diff(here) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(far.content().diff(here))
		}
	}
	if h := s.Health(); h.Samples < 199 || !errors.Is(h.SinkError, errDown) {
		t.Errorf("while one series cannot be written: %+v", h)
	}
	away.Store(false)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := far.content().diff(want); err != nil {
		t.Error(err)
	}
	if h := s.Health(); h.Samples != 0 || h.SinkError != nil {
		t.Errorf("afterwards: %+v", h)
	}
}

// TestOffersBehind: while the oldest generation cannot be written, the sink is offered later
// ones only while that is useful: none after a failure that concerns all series, and only a few
// of which it writes nothing. Each round continues where the last one ended.
func TestOffersBehind(t *testing.T) {
	for name, c := range map[string]struct {
		failure error
		atMost  int // generations in one round
	}{
		"the store is away":  {errDown, 1},
		"nothing is written": {&PartialError{Left: 1, Err: errDown}, offersInVain},
		"a part is written":  {&PartialError{Left: 1, Written: true, Err: errDown}, 10},
		"wrapped, the same":  {fmt.Errorf("write: %w", &PartialError{Left: 1, Err: errDown}), offersInVain},
	} {
		t.Run(name, func(t *testing.T) {
			offers := make(chan *Generation)
			sink := sinkFunc(func(ctx context.Context, g *Generation) error {
				select {
				case offers <- g:
				case <-ctx.Done():
					return ctx.Err()
				}
				if g.number == 1 {
					return &PartialError{Left: 1, Err: errDown}
				}
				return c.failure
			})
			s := mustOpen(t, vfs.NewMem(), patient(tinyConfig()), quickRetries(Options{Sink: sink}))
			defer s.Close()
			for ms := range int64(11) { // the first, and ten behind it
				put(t, s, testSeries("load", 1), ms, ms)
				s.order.Lock()
				err := s.cutLocked()
				s.order.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			var round, most int
			turns := map[int64]int{}
			for range 60 {
				switch g := <-offers; g.number {
				case 1:
					round = 0
				default:
					round++
					most = max(most, round)
					turns[g.number]++
				}
			}
			if most != c.atMost {
				t.Errorf("%d generations were offered in one round, want %d", most, c.atMost)
			}
			if len(turns) != 10 {
				t.Errorf("only %d of 10 generations had their turn: %v", len(turns), turns)
			}
		})
	}
}

type sinkFunc func(context.Context, *Generation) error

func (f sinkFunc) Write(ctx context.Context, g *Generation) error { return f(ctx, g) }

func (r *remote) writeOne(g *Generation, id model.SeriesNumber) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writeSeries(g, id)
}

// TestMaxBytes: at the bound, Append says which bound, why, and since when; it accepts samples
// again when there is room.
func TestMaxBytes(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxBytes = units.MiB
	sink := newRemote()
	var down atomic.Bool
	down.Store(true)
	sink.fail = func() error {
		if down.Load() {
			return errDown
		}
		return nil
	}
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	for s.Health().SinkError == nil { // until the first failure is known
		put(t, s, testSeries("early", 1), 1, 1)
		time.Sleep(time.Millisecond)
	}
	want := content{}
	_, err := fill(s, want, 1<<20)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, errDown) {
		t.Fatalf("at the bound: %v", err)
	}
	for _, part := range []string{"max_bytes", "1MiB", "since 20", errDown.Error()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	h := s.Health()
	if h.LogBytes+h.FileBytes > int64(cfg.MaxBytes)+64<<10 {
		t.Errorf("%d bytes of log and %d of files are above the bound", h.LogBytes, h.FileBytes)
	}
	if unhealthy := s.Healthy(); unhealthy == nil || unhealthy.Error() != err.Error() {
		t.Errorf("health of a full spool: %v; writers are told: %v", unhealthy, err)
	}
	series := s.SeriesCount()
	if _, failed := s.Create(t.Context(), testSeries("new", 1)); failed == nil || failed.Error() != err.Error() || s.SeriesCount() != series {
		t.Errorf("a new series while the spool is full: %v; %d series instead of %d", failed, s.SeriesCount(), series)
	}
	down.Store(false)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := fill(s, want, 10); err != nil {
		t.Errorf("after it was drained: %v", err)
	}
	put(t, s, testSeries("new", 1), 1, 1)
	if s.Healthy() != nil {
		t.Errorf("healthy: %v", s.Healthy())
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"early", "new"} {
		want.set(string(testSeries(metric, 1).AppendKey(nil)), 1, longText(1))
	}
	if err := sink.content().diff(want); err != nil { // what was refused is not there, and all else is
		t.Error(err)
	}
}

// TestBatchBeyondMaxBytes: a batch that does not fit is refused as a whole, while smaller ones are accepted.
func TestBatchBeyondMaxBytes(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxBytes = units.MiB
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	defer s.Close()
	var unavailable *store.UnavailableError
	if err := tryPut(s, testSeries("load", 1), 1, make([]int64, 400_000)...); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "max_bytes") {
		t.Errorf("a batch beyond max_bytes: %v", err)
	}
	put(t, s, testSeries("load", 1), 1, 1)
	if h := s.Health(); h.Samples != 1 || h.LogBytes > int64(cfg.MaxBytes) {
		t.Errorf("%d samples and %d bytes of log, want the sample that fits", h.Samples, h.LogBytes)
	}
}

// TestFirstSamples: Options.First gets the metric of each series with its first sample.
func TestFirstSamples(t *testing.T) {
	var first []string
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{First: func(metric string) { first = append(first, metric) }})
	defer s.Close()
	if _, err := s.Create(t.Context(), testSeries("a", 1)); err != nil {
		t.Fatal(err)
	}
	if len(first) != 0 {
		t.Errorf("%q have a first sample", first)
	}
	put(t, s, testSeries("a", 1), 1, 1, 2)
	putAll(t, s, []model.Series{testSeries("a", 1), testSeries("a", 2), testSeries("b", 1)}, 1, 3)
	if want := []string{"a", "a", "b"}; !slices.Equal(first, want) {
		t.Errorf("%q have a first sample, want %q", first, want)
	}
}

// TestMaxMemory: when files cannot be written either, Append says so.
func TestMaxMemory(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.Contains(op.Path, spillName+"/") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s := mustOpen(t, fs, tinyConfig(), Options{})
	defer s.Close()
	_, err := fill(s, content{}, 1<<20)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "max_memory of 128KiB") || !strings.Contains(err.Error(), "has not been reached yet") {
		t.Fatalf("at the bound: %v", err)
	}
	broken.Store(false)
	sink := newRemote()
	s.Start(sink)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := fill(s, content{}, 10); err != nil {
		t.Errorf("after it was drained: %v", err)
	}
}

// TestAcknowledgeStore: Append returns when the remote store has the samples, and concurrent
// appends share a write.
func TestAcknowledgeStore(t *testing.T) {
	cfg := tinyConfig()
	cfg.Acknowledge, cfg.StoreLinger, cfg.Linger = AcknowledgeStore, 20*time.Millisecond, time.Hour
	cfg.GenerationSamples = 1 << 20
	sink := newRemote()
	sink.gate = make(chan struct{})
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	const writers = 50
	errs := make(chan error, writers)
	for i := range writers {
		go func() {
			series := testSeries("load", i)
			err := tryPut(s, series, 7, 1000)
			if got := sink.content()[string(series.AppendKey(nil))][1000]; err == nil && got != "7/0" {
				err = errors.New("acknowledged, but the remote store has " + got)
			}
			errs <- err
		}()
	}
	for deadline := time.Now().Add(time.Minute); s.Health().Samples < writers && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if len(errs) > 0 {
		t.Error("acknowledged before the remote store has it")
	}
	close(sink.gate)
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(sink.written()); n > 2 { // that of the first ones, and that of all who came during it
		t.Errorf("%d writes for %d appends", n, writers)
	}

	// Without an answer from the store.
	sink.mu.Lock()
	sink.fail = func() error { return errDown }
	sink.mu.Unlock()
	s.cfg.AcknowledgeTimeout = 100 * time.Millisecond
	err := tryPut(s, testSeries("load", 1), 8, 1000)
	for deadline := time.Now().Add(time.Minute); !errors.Is(err, errDown) && time.Now().Before(deadline); {
		err = tryPut(s, testSeries("load", 1), 8, 1000) // on a busy machine the store was not asked yet
	}
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "acknowledge is store, and the remote store has not confirmed") {
		t.Errorf("with the store down: %v", err)
	}
	s.cfg.AcknowledgeTimeout = time.Hour
	var b store.Batch
	b.Reset(s.Epoch())
	ref, err := s.Create(context.Background(), testSeries("load", 1))
	if err != nil {
		t.Fatal(err)
	}
	waiting := s.Health().Samples // more than one if the store was asked late
	ctx, cancel := context.WithCancel(within(t))
	b.AddLong(ref, 1, 1, 0)
	go func() {
		defer cancel()
		for ctx.Err() == nil && s.Health().Samples == waiting { // the spool has to take the sample first
			time.Sleep(time.Millisecond)
		}
	}()
	if err := s.Append(ctx, &b); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that ends: %v", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("wait until the remote store has %d samples", waiting+1)) {
		t.Errorf("flush with a context that ends: %v", err)
	}
}

// TestCloseWhileWaiting: an append that waits for the remote store fails.
func TestCloseWhileWaiting(t *testing.T) {
	cfg := tinyConfig()
	cfg.Acknowledge = AcknowledgeStore
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	errs := make(chan error, 2)
	go func() { errs <- tryPut(s, testSeries("load", 1), 1, 1) }()
	for s.Health().Samples == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		_, err := s.Flush(context.Background())
		errs <- err
	}()
	for s.Health().Generations == 0 { // what the flush has cut, and waits for
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := s.Create(context.Background(), testSeries("load", 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("create: %v", err)
	}
	if err := s.Close(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("close again: %v", err)
	}
}

// TestAbsentSink: without a sink all samples are accepted, and no generation is cut by time:
// the longer that lasts, the larger the writes will be.
func TestAbsentSink(t *testing.T) {
	cfg := tinyConfig()
	cfg.GenerationSamples = 1 << 20
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	defer s.Close()
	want := content{}
	for i := range int64(5) {
		put(t, s, testSeries("load", 1), i, i)
		want.set(string(testSeries("load", 1).AppendKey(nil)), i, longText(i))
		time.Sleep(2 * cfg.Linger)
	}
	if h := s.Health(); h.Generations != 0 || h.Samples != 5 || h.Started || h.Oldest.IsZero() {
		t.Errorf("health: %+v", h)
	}
	sink := newRemote()
	s.Start(sink)
	for deadline := time.Now().Add(time.Minute); s.Health().Samples > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
	if len(sink.written()) != 1 {
		t.Errorf("%d writes, want 1", len(sink.written()))
	}
}

// TestSlowSink: while the sink writes, no generation is cut by time, and the next one has all
// samples that arrived meanwhile.
func TestSlowSink(t *testing.T) {
	cfg := tinyConfig()
	cfg.GenerationSamples = 1 << 20
	sink := newRemote()
	sink.gate = make(chan struct{})
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1)
	for s.Health().Generations == 0 {
		time.Sleep(time.Millisecond)
	}
	for i := range int64(20) {
		put(t, s, testSeries("load", 1), 1, 2+i)
		time.Sleep(cfg.Linger)
	}
	sink.gate <- struct{}{}
	sink.gate <- struct{}{}
	for deadline := time.Now().Add(time.Minute); s.Health().Samples > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if len(sink.written()) != 2 {
		t.Errorf("%d writes, want 2", len(sink.written()))
	}
}

// TestDiskFull: a log that failed for lack of space is opened again; nothing that
// was acknowledged is lost, and nothing is written under two timestamps.
func TestDiskFull(t *testing.T) {
	var full atomic.Bool
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, logName+"/") {
			return errNoSpace
		}
		return nil
	}))
	cfg := tinyConfig()
	cfg.GenerationSamples = 100
	s := mustOpen(t, fs, cfg, Options{})
	want := content{}
	if _, err := fill(s, want, 8); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	_, err := fill(s, content{}, 20)
	var unavailable *store.UnavailableError
	if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "disk is full") {
		t.Fatalf("with a full disk: %v", err)
	}
	if s.Healthy() == nil || s.Health().Err == nil {
		t.Error("health says nothing of it")
	}
	full.Store(false)
	s.lookAtSpace()
	if err := s.Healthy(); err != nil {
		t.Fatalf("with space again: %v", err)
	}
	again := content{}
	if _, err := fill(s, again, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sink := newRemote()
	s = mustOpen(t, mem, cfg, Options{Sink: sink})
	defer s.Close()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	for key, cells := range again {
		for ms, value := range cells {
			want.set(key, ms, value)
		}
	}
	got := sink.content()
	for key := range got { // the batch that failed may be there
		for ms := range got[key] {
			if want[key][ms] == "" {
				delete(got[key], ms)
			}
		}
	}
	if err := got.diff(want); err != nil {
		t.Error(err)
	}
}

// TestIdle: series without samples are not listed, and forgotten when there are
// too many of them.
func TestIdle(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxIdleSeries = 10
	sink := newRemote()
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	for i := range 20 {
		put(t, s, testSeries("old", i), 1, 1)
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	list := func(kind store.NameKind, metric string) int {
		v := s.View()
		defer v.Close()
		names, _, err := v.Names(context.Background(), store.NamesQuery{Kind: kind, Metric: metric})
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	put(t, s, testSeries("new", 1), 1, 1)
	if n := list(store.MetricNames, ""); n > 1 {
		t.Errorf("%d metrics listed, want 1 at most", n)
	}
	s.lookAtIdle()
	if n := s.SeriesCount(); n != 21 {
		t.Errorf("%d series at the first look, want 21", n)
	}
	hold := func(i int) *store.Batch {
		ref, err := s.Create(context.Background(), testSeries("old", i))
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		b.Reset(s.Epoch())
		b.AddLong(ref, 4, 4, 0)
		return &b
	}
	idle, used := hold(5), hold(3)
	put(t, s, testSeries("old", 3), 2, 2)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	s.lookAtIdle()
	if n := s.SeriesCount(); n != 1 && n != 2 {
		t.Errorf("%d series at the second look, want the one that was used, and the new one if it was not drained", n)
	}
	metrics := 0
	for range s.SeriesMetrics(1) {
		metrics++
	}
	if metrics != s.SeriesCount() {
		t.Errorf("metrics of %d series, want %d", metrics, s.SeriesCount())
	}
	if err := s.Append(context.Background(), idle); err != store.ErrStale {
		t.Errorf("the ref of a forgotten series: %v, want ErrStale", err)
	}
	if err := s.Append(context.Background(), used); err != nil {
		t.Errorf("the ref of another series: %v", err)
	}
	put(t, s, testSeries("old", 5), 3, 3)
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := sink.content()[string(testSeries("old", 5).AppendKey(nil))]; got[1] != "1/0" || got[3] != "3/0" {
		t.Errorf("a series that came again has %v", got)
	}
}

// TestIdleSeriesAreForgottenInTime: nobody has to ask for it.
func TestIdleSeriesAreForgottenInTime(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxIdleSeries = 10
	cfg.Linger = time.Hour // all series become idle at once: those that are left of some would not be too many
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: newRemote(), idleInterval: time.Millisecond})
	defer s.Close()
	for i := range 20 {
		put(t, s, testSeries("old", i), 1, 1)
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "idle series are forgotten", func() bool { return s.SeriesCount() == 0 })
}

// TestLocked: a second process is refused.
func TestLocked(t *testing.T) {
	fs := vfs.NewMem()
	s := mustOpen(t, fs, tinyConfig(), Options{})
	defer s.Close()
	_, err := Open(fs, "spool", tinyConfig(), Options{})
	var locked *LockedError
	if !errors.As(err, &locked) {
		t.Errorf("second open: %v", err)
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{Acknowledge: "maybe", MaxMemory: 1, MaxIdleSeries: -1, Log: DefaultConfig().Log}
	err := bad.Validate()
	if err == nil {
		t.Fatal("a bad configuration passes")
	}
	for _, key := range []string{"acknowledge:", "acknowledge_timeout:", "max_memory:", "generation_samples:", "max_bytes:", "max_idle_series:"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%q does not name %s", err, key)
		}
	}
	if s, err := Open(vfs.NewMem(), "spool", bad, Options{}); err == nil || !strings.Contains(err.Error(), "settings of the spool: ") {
		t.Errorf("a spool opens with a bad configuration: %v, %v", s, err)
	}
}

// TestConfigBounds: both ends of a range are allowed, what is beyond is refused by
// the setting's name.
func TestConfigBounds(t *testing.T) {
	check := unitstest.Bounds(t, DefaultConfig)
	check("acknowledge_timeout", func(c *Config, v int64) { c.AcknowledgeTimeout = time.Duration(v) },
		[]int64{int64(10 * time.Millisecond), int64(time.Hour)}, []int64{int64(10*time.Millisecond) - 1, int64(time.Hour) + 1})
	check("linger", func(c *Config, v int64) { c.Linger = time.Duration(v) },
		[]int64{0, int64(time.Hour)}, []int64{-1, int64(time.Hour) + 1})
	check("store_linger", func(c *Config, v int64) { c.StoreLinger = time.Duration(v) },
		[]int64{0, int64(time.Minute)}, []int64{-1, int64(time.Minute) + 1})
	check("generation_bytes", func(c *Config, v int64) { c.GenerationBytes, c.MaxMemory = units.Bytes(v), 4*units.GiB },
		[]int64{0, 64 << 10, 1 << 30}, []int64{64<<10 - 1, 1<<30 + 1})
	check("generation_samples", func(c *Config, v int64) { c.GenerationSamples = v },
		[]int64{1, 1 << 30}, []int64{0, 1<<30 + 1})
	check("max_memory", func(c *Config, v int64) { c.GenerationBytes, c.MaxMemory = 1<<20, units.Bytes(v) },
		[]int64{2 << 20}, []int64{2<<20 - 1})
	check("max_memory", func(c *Config, v int64) { c.MaxMemory = units.Bytes(v) }, []int64{128 << 10}, []int64{128<<10 - 1})
	check("max_bytes", func(c *Config, v int64) { c.MaxBytes = units.Bytes(v) },
		[]int64{1 << 20}, []int64{1<<20 - 1})
	check("min_free_bytes", func(c *Config, v int64) { c.MinFreeBytes = units.Bytes(v) },
		[]int64{0}, []int64{-1})
	check("max_idle_series", func(c *Config, v int64) { c.MaxIdleSeries = int(v) },
		[]int64{0}, []int64{-1})
}

// TestGenerationBytes: a generation has a third of the memory, at most 1GiB.
func TestGenerationBytes(t *testing.T) {
	c := DefaultConfig()
	if c.generationBytes() != 48*units.MiB {
		t.Errorf("by default %v", c.generationBytes())
	}
	if c.MaxMemory = 30 * units.GiB; c.generationBytes() != units.GiB {
		t.Errorf("of much memory %v", c.generationBytes())
	}
	if c.GenerationBytes = units.MiB; c.generationBytes() != units.MiB {
		t.Errorf("of a test %v", c.generationBytes())
	}
}

// TestDefaultPace: the pauses between attempts have defaults.
func TestDefaultPace(t *testing.T) {
	var o Options
	o.setDefaults()
	if o.retryFirst < 10*time.Millisecond || o.retryFirst > time.Second || o.retryMost < 10*o.retryFirst || o.retryMost > time.Minute ||
		o.idleInterval < time.Minute || o.idleInterval > time.Hour {
		t.Errorf("retries after %v to %v, idle series every %v", o.retryFirst, o.retryMost, o.idleInterval)
	}
	o = Options{retryFirst: 1, retryMost: 2, idleInterval: 3}
	if o.setDefaults(); o.retryFirst != 1 || o.retryMost != 2 || o.idleInterval != 3 {
		t.Errorf("retries after %v to %v, idle series every %v, though told otherwise", o.retryFirst, o.retryMost, o.idleInterval)
	}
}

// TestAppendRefuses: a batch that cannot be stored is an error, and none of it is stored.
func TestAppendRefuses(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{})
	defer s.Close()
	ref, err := s.Create(context.Background(), testSeries("load", 1))
	if err != nil {
		t.Fatal(err)
	}
	text := testSeries("load", 2)
	text.Type = model.TypeString
	textRef, err := s.Create(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Health()
	var limit *store.LimitError
	for _, c := range []struct {
		what string
		fill func(b *store.Batch)
		want func(err error) bool
	}{
		{"an epoch that is over", func(b *store.Batch) { b.Reset(s.Epoch() + 1); b.AddLong(ref, 1, 1, 0) },
			func(err error) bool { return errors.Is(err, store.ErrStale) }},
		{"a series that is not there", func(b *store.Batch) { b.AddLong(ref, 1, 1, 0); b.AddLong(ref+1000, 1, 1, 0) },
			func(err error) bool { return errors.Is(err, store.ErrStale) }},
		{"17 MiB", func(b *store.Batch) {
			b.AddLong(ref, 1, 1, 0)
			b.AddBytes(textRef, 1, []byte(strings.Repeat("x", 17<<20)), 0)
		},
			func(err error) bool { return errors.As(err, &limit) }},
	} {
		var b store.Batch
		b.Reset(s.Epoch())
		c.fill(&b)
		if err := s.Append(within(t), &b); !c.want(err) {
			t.Errorf("%s: %v", c.what, err)
		}
		if h := s.Health(); h.Samples != 0 || h.LogBytes != before.LogBytes || h.Err != nil {
			t.Errorf("%s: health afterwards: %+v, before: %+v", c.what, h, before)
		}
	}
}

// TestLogBytesAfterRestart: samples in the log count against max_bytes after a restart as
// before, until they are drained.
func TestLogBytesAfterRestart(t *testing.T) {
	cfg := tinyConfig()
	fs := vfs.NewMem()
	s := mustOpen(t, fs, cfg, Options{})
	if _, err := fill(s, content{}, 40); err != nil {
		t.Fatal(err)
	}
	before := s.Health().LogBytes
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fs, cfg, Options{})
	defer s.Close()
	if after := s.Health().LogBytes; before < 1000 || after < before || after > before+4<<10 {
		t.Errorf("%d bytes of log after a restart, %d before", after, before)
	}
	s.Start(newRemote())
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if left := s.Health().LogBytes; left < 0 || left > 4<<10 {
		t.Errorf("%d bytes of log are left", left)
	}
}

// TestLogFilesAfterRestart: when generations that an earlier process had cut are drained, their
// log files are removed, even if no samples arrive.
func TestLogFilesAfterRestart(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	fs := vfs.NewMem()
	s := mustOpen(t, fs, cfg, Options{})
	if _, err := fill(s, content{}, 20); err != nil {
		t.Fatal(err)
	}
	s.order.Lock()
	err := s.cutLocked()
	s.order.Unlock()
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fs, cfg, Options{})
	defer s.Close()
	segments := func() []wal.Segment {
		all, err := wal.Segments(fs, s.path(logName))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := segments()
	if n := s.active.Load().Samples(); n != 0 || len(before) < 2 {
		t.Fatalf("%d samples were not cut, %d log files", n, len(before))
	}
	s.Start(newRemote())
	for deadline := time.Now().Add(time.Minute); len(segments()) == len(before) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if after := segments(); len(after) >= len(before) {
		t.Errorf("%d log files became %d", len(before), len(after))
	}
}

// TestFlushWithoutALog: a flush whose generation cannot be ended is an error.
func TestFlushWithoutALog(t *testing.T) {
	cfg := tinyConfig()
	cfg.Linger = time.Hour
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: newRemote()})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1)
	s.order.Lock()
	s.order.sinceRotate = s.rotateBytes()
	s.order.Unlock()
	if err := s.log.Current().Close(); err != nil {
		t.Fatal(err)
	}
	if stamp, err := s.Flush(within(t)); err == nil {
		t.Errorf("flushed with stamp %d", stamp)
	}
}

// TestFailedOpenLetsGo: a failed Open releases lock and log, so that the next attempt can have
// them.
func TestFailedOpenLetsGo(t *testing.T) {
	fs := vfs.NewMem()
	first := mustOpen(t, fs, tinyConfig(), Options{})
	put(t, first, testSeries("load", 1), 1, 1)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	taken := prometheus.NewRegistry()
	other := mustOpen(t, vfs.NewMem(), tinyConfig(), Options{Registerer: taken})
	defer other.Close()
	s := newSpool(fs, "spool", tinyConfig(), quickRetries(Options{Registerer: taken}))
	if err := s.open(); err == nil {
		t.Fatal("two spools share their metrics")
	}
	if err := s.undo(); err != nil {
		t.Fatal(err)
	}
	if s.ctx.Err() == nil {
		t.Error("what waits for the spool that failed waits on")
	}
	again := mustOpen(t, fs, tinyConfig(), Options{})
	defer again.Close()
	if h := again.Health(); h.Samples != 1 {
		t.Errorf("health after the failed attempt: %+v", h)
	}
}

// TestLogFilesOfAFullDisk: while there is no space, and the free space is not checked, the
// attempts to continue leave no files, whichever of their writes fails.
func TestLogFilesOfAFullDisk(t *testing.T) {
	for _, reason := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		writes := int64(0) // of an attempt that succeed: the header's, the space for records, ...
		for ; attemptsOnAFullDisk(t, reason, writes); writes++ {
		}
		if writes < 2 {
			t.Errorf("%v: an attempt succeeds with %d writes", reason, writes)
		}
	}
}

// attemptsOnAFullDisk lets a spool meet a full disk, and try to continue while the given number
// of writes succeeds each time. It reports whether that was too few.
func attemptsOnAFullDisk(t *testing.T, reason error, writes int64) (failed bool) {
	t.Helper()
	var full atomic.Bool
	var left atomic.Int64
	mem := vfs.NewMem()
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFilePreallocate) && left.Add(-1) < 0 {
			return reason
		}
		return nil
	}))
	s := mustOpen(t, fs, tinyConfig(), Options{})
	want := content{}
	if _, err := fill(s, want, 8); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	if _, err := fill(s, content{}, 20); err == nil {
		t.Fatal("a full disk took a batch")
	}
	before, err := wal.Segments(mem, s.path(logName))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		left.Store(writes)
		s.lookAtSpace()
		failed = s.Healthy() != nil
	}
	after, err := wal.Segments(mem, s.path(logName))
	if err != nil || failed && len(after) > len(before) {
		t.Errorf("%v after %d writes: %d log files became %d, %v", reason, writes, len(before), len(after), err)
	}
	full.Store(false)
	s.lookAtSpace()
	if _, err := fill(s, want, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sink := newRemote()
	s = mustOpen(t, mem, tinyConfig(), Options{Sink: sink})
	defer s.Close()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Errorf("%v after %d writes: %v", reason, writes, err)
	}
	return failed
}

// TestRecordLargerThanTheBuffer: a batch that is larger than the log's buffer is accepted.
func TestRecordLargerThanTheBuffer(t *testing.T) {
	cfg := tinyConfig()
	cfg.Log.BufferBytes = 4 * units.KiB
	s := mustOpen(t, vfs.NewMem(), cfg, Options{})
	defer s.Close()
	var times []int64
	for i := range int64(5000) {
		times = append(times, i*i*977)
	}
	put(t, s, testSeries("load", 1), 1, times...)
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskError: the error of refused writers has the present numbers, and one solution.
func TestFullDiskError(t *testing.T) {
	disk := &freeDisk{FS: vfs.NewMem()}
	disk.free.Store(1 << 40)
	cfg := tinyConfig()
	cfg.MinFreeBytes = 8 * units.MiB
	s := mustOpen(t, disk, cfg, Options{Section: "cassandra.spool"})
	defer s.Close()
	for _, kib := range []uint64{7168, 9216} {
		disk.free.Store(kib << 10)
		s.lookAtSpace()
		_, err := fill(s, content{}, 8)
		want := "the disk is nearly full: " + fmt.Sprint(kib) + ".0 KiB are free; the spool stops writing below 8192.0 KiB (cassandra.spool.min_free_bytes) and resumes at 10.0 MiB: free some space, or enlarge the disk"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	disk.free.Store(10 << 20)
	s.lookAtSpace()
	if _, err := fill(s, content{}, 8); err != nil {
		t.Error(err)
	}
}

// freeDisk reports the free space that a test sets.
type freeDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *freeDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// Idle series with long names are forgotten before there are max_idle_series.
func TestLongIdleNamesAreForgotten(t *testing.T) {
	cfg := tinyConfig()
	cfg.MaxIdleSeries = 10
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: newRemote()})
	defer s.Close()
	for i := range 5 {
		put(t, s, testSeries("long"+strings.Repeat("x", 3000), i), 1, 1)
	}
	if n := s.SeriesBytes(); n < 5*3000 {
		t.Errorf("5 names of 3,000 bytes count as %d", n)
	}
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	s.settleIndex()
	for range 2 {
		s.lookAtIdle()
	}
	if n, size := s.SeriesCount(), s.SeriesBytes(); n != 0 || size != 0 {
		t.Errorf("%d series of %d bytes are left", n, size)
	}
}
