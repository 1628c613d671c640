package spool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
)

// TestWrittenInPart: while the sink leaves the samples of one metric, others are flushed
// past them, and are no longer read from the spool.
func TestWrittenInPart(t *testing.T) {
	var away atomic.Bool
	away.Store(true)
	errAway := errors.New("away")
	sink := sinkFunc(func(_ context.Context, g *Generation) error {
		left := roaring.New()
		for id := range g.Series() {
			if series, _ := g.SeriesOf(id); series.Metric == "away" && away.Load() {
				left.Add(uint32(id))
			}
		}
		if left.IsEmpty() {
			return nil
		}
		return &PartialError{Left: int64(left.GetCardinality()), Err: errAway, Series: left}
	})
	s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{Sink: sink})
	defer s.Close()
	here := func(metric string) string {
		t.Helper()
		v := s.View()
		defer v.Close()
		ids, err := idsOf(v.Select(t.Context(), metric, nil, model.AllTime, nil))
		if err != nil {
			t.Fatal(err)
		}
		names, _, err := v.Names(t.Context(), store.NamesQuery{Kind: store.MetricNames})
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		for _, id := range ids {
			for _, err := range v.Runs(id, model.AllTime, false, nil) {
				if err != nil {
					t.Fatal(err)
				}
				runs++
			}
		}
		return fmt.Sprintf("%d series, %d runs, names %v", len(ids), runs, names)
	}
	flush := func(metrics ...string) {
		t.Helper()
		if _, err := s.Flush(within(t), metrics...); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, testSeries("away", 1), 1, 1)
	put(t, s, testSeries("here", 1), 1, 1)
	put(t, s, testSeries("idle", 1), 1, 1)
	flush("here", "unknown")
	for range 3 {
		put(t, s, testSeries("here", 1), 2, 2)
		flush("here")
	}
	if got := here("here"); got != "0 series, 0 runs, names [away]" {
		t.Errorf("what is written: %s", got)
	}
	if got := here("away"); got != "1 series, 1 runs, names [away]" {
		t.Errorf("what is left: %s", got)
	}
	put(t, s, testSeries("away", 1), 2, 1)
	put(t, s, testSeries("here", 1), 3, 3)
	if got := here("here"); got != "1 series, 1 runs, names [away here]" {
		t.Errorf("what came since: %s", got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for s.Health().Generations < 2 {
			_ = s.offers.Wait(ctx, func() bool { return s.Health().Generations >= 2 })
		}
		cancel(errAway)
	}()
	if _, err := s.Flush(ctx, "away"); !errors.Is(err, context.Canceled) {
		t.Errorf("flush what is left: %v", err)
	}
	if got := here("away"); !strings.HasPrefix(got, "1 series, 2 runs") {
		t.Errorf("both: %s", got)
	}
	away.Store(false)
	flush()
	if got := here("away"); got != "0 series, 0 runs, names []" {
		t.Errorf("at the end: %s", got)
	}
}

// TestAcknowledgedInPart: if writes are acknowledged once the store has them, those of one
// metric that it does not take hold up no others.
func TestAcknowledgedInPart(t *testing.T) {
	sink := sinkFunc(func(_ context.Context, g *Generation) error {
		left := roaring.New()
		for id := range g.Series() {
			if series, _ := g.SeriesOf(id); series.Metric == "away" {
				left.Add(uint32(id))
			}
		}
		if left.IsEmpty() {
			return nil
		}
		return &PartialError{Left: int64(left.GetCardinality()), Err: errors.New("away"), Series: left}
	})
	cfg := DefaultConfig()
	cfg.Acknowledge = AcknowledgeStore
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: sink})
	defer s.Close()
	ref, err := s.Create(t.Context(), testSeries("away", 1))
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	b.AddLong(ref, 1, 1, 0)
	ctx, leave := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() { waits <- s.Append(ctx, &b) }()
	for until := time.Now().Add(time.Minute); s.Health().SinkError == nil && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	for i := range 3 {
		if err := tryPut(s, testSeries("here", i), 1, 1); err != nil {
			t.Fatalf("a metric that the store takes: %v", err)
		}
	}
	leave()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("a metric that the store does not take: %v", err)
	}
}
