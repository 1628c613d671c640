package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/store"
)

// While the store is slow for long, some writes over HTTP wait for it and the others are
// refused at once. Lines over TCP are never refused, and all goes on once the store does.
func TestCongestedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took atomic.Int64 // by an append
		recorder := &ingesttest.Recorder{OnAppend: func(*store.Batch) error { time.Sleep(time.Duration(took.Load())); return nil }}
		p, reg := ingesttest.NewPipelineAt(recorder, func(c *ingest.Config) { c.StoreWait = 30 * time.Second }, time.Now)
		defer p.Close()
		proto := p.Protocol("test")
		var all sync.WaitGroup
		var refused, stored atomic.Int64
		var lastFault atomic.Value
		write := func(wait time.Duration) {
			w := p.NewWriter(proto, "", wait)
			n, err := w.Ingest(t.Context(), 1, func() error { return put(w, "m", "a", time.Now().UnixMilli()) })
			if stored.Add(int64(n)); err != nil {
				refused.Add(1)
				lastFault.Store(err)
			}
		}
		send := func(during time.Duration) {
			for began := time.Now(); time.Since(began) < during; time.Sleep(100 * time.Millisecond) {
				all.Go(func() { write(time.Second) })
			}
		}
		send(time.Minute)
		took.Store(int64(10 * time.Second))
		send(15 * time.Second)
		if n := refused.Load(); n != 0 {
			t.Errorf("%d writes are refused before the line is long for a while", n)
		}
		stored.Store(0)
		send(25 * time.Second)
		if refused.Load() < 100 || stored.Load() < 50 {
			t.Errorf("%d writes are refused, %d stored", refused.Load(), stored.Load())
		}
		err := lastFault.Load().(error)
		if limit := (*store.LimitError)(nil); !errors.As(err, &limit) || limit.Limit != "writes that wait" || limit.Wait != 6*time.Second || !store.Passes(err) {
			t.Errorf("the error of a write: %v", err)
		}
		if got := ingesttest.Counters(t, reg, "varve_ingest_congested_refused_total")[""]; got != float64(refused.Load()) {
			t.Errorf("%v are counted, %d were refused", got, refused.Load())
		}
		before := refused.Load()
		for range 50 {
			all.Go(func() { write(0) })
		}
		all.Wait()
		if refused.Load() != before {
			t.Errorf("lines over TCP are refused: %v", lastFault.Load())
		}
		took.Store(0)
		send(time.Minute)
		all.Wait()
		if refused.Load() != before {
			t.Error(fmt.Errorf("writes are refused although the store is quick again: %w", lastFault.Load().(error)))
		}
	})
}

// A request that takes longer than a sender waits for its turn, but not longer than a request may
// take, is stored as a whole. Refused within, it would be sent again and be refused at the same
// place for ever. A longer one is told to come in parts.
func TestRequestLargerThanTheSampleRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, wait, most = 1000, time.Second, 30 * time.Second
		p, _ := ingesttest.NewPipelineAt(&ingesttest.Recorder{}, func(c *ingest.Config) { c.SamplesPerSecond = perSecond }, time.Now)
		defer p.Close()
		w := p.NewWriter(p.Protocol("test"), "", wait)
		send := func(seconds, parts int) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			part := 0
			return w.IngestAll(ctx, t.Context(), func() (int, func() error) {
				if part == parts {
					return 0, nil
				}
				part++
				n := seconds * perSecond / parts
				return n, func() error {
					for i := range n {
						if err := put(w, "m", "a", time.Now().UnixMilli()+int64(i)); err != nil {
							return err
						}
					}
					return nil
				}
			})
		}
		for range 3 {
			began := time.Now()
			if n, err := send(20, 4); err != nil || n != 20*perSecond {
				t.Fatalf("%d samples are stored after %s: %v", n, time.Since(began), err)
			}
			time.Sleep(10 * time.Second)
		}
		for _, parts := range []int{100, 4} { // the blocks of 100 parts wait for less than wait
			n, err := send(60, parts)
			if limit := (*store.LimitError)(nil); !errors.As(err, &limit) || limit.Limit != "ingest.samples_per_second" || !strings.Contains(limit.What, "in several requests") {
				t.Errorf("a request of a minute in %d blocks: %d samples are stored, %v", parts, n, err)
			}
			if parts > 4 {
				time.Sleep(10 * time.Second)
			}
		}
		if n, err := send(4, 4); n > 0 || !store.Passes(err) || strings.Contains(err.Error(), "several requests") {
			t.Errorf("a request that finds the limit reached: %d samples are stored, %v", n, err)
		}
	})
}
