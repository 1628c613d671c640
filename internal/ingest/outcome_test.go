package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
)

// TestFail: how a request that ended with an error is counted.
func TestFail(t *testing.T) {
	for _, tc := range []struct {
		err    error
		reason string
	}{
		{&ingest.Fault{Reason: ingest.BadSyntax, Text: "no JSON"}, "bad_syntax"},
		{&ingest.Fault{Reason: ingest.TooSlow, Text: "slow"}, "too_slow"},
		{&store.InputError{Reason: "no such type"}, "refused"},
		{ingest.ErrBusy, "unavailable"},
		{&store.LimitError{Limit: "l", Max: 1, Need: 2}, "unavailable"},
		{&store.CorruptionError{File: "wal", Reason: "crc"}, "unavailable"},
	} {
		p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
		p.Fail(p.Protocol("test"), httptest.NewRequest(http.MethodPost, "/", nil), fmt.Errorf("store: %w", tc.err))
		if got := ingesttest.Counters(t, reg, "varve_ingest_rejected_total"); len(got) != 1 || got["test,"+tc.reason] != 1 {
			t.Errorf("%v: counted %v, want one of %s", tc.err, got, tc.reason)
		}
	}
}

// TestOffer: what a store that is away is offered again, for how long, and what is not.
func TestOffer(t *testing.T) { synctest.Test(t, testOffer) }

func testOffer(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	away := &store.UnavailableError{Reason: "away"}
	for _, tc := range []struct {
		name     string
		err      error
		attempts int           // of an endless error
		took     time.Duration // at least
	}{
		{"away", away, 8, time.Second}, // after 10, 20, 40 ... 640 ms
		{"a part is stored", &store.PartError{Stored: 1, Refused: 1, Err: away}, 1, 0},
		{"no part is stored", &store.PartError{Refused: 2, Err: away}, 8, time.Second},
		{"the sender's fault", &store.InputError{Reason: "bad"}, 1, 0},
		{"a fault of the server", errors.New("plain"), 1, 0},
	} {
		attempts, began := 0, time.Now()
		err := p.Offer(t.Context(), time.Second, func() error { attempts++; return tc.err })
		if err != tc.err || attempts != tc.attempts || time.Since(began) < tc.took || time.Since(began) > 2*time.Second {
			t.Errorf("%s: %v after %d attempts in %v, want %d", tc.name, err, attempts, time.Since(began), tc.attempts)
		}
	}
	attempts := 0
	err := p.Offer(t.Context(), time.Hour, func() error {
		if attempts++; attempts < 20 {
			return away
		}
		return nil
	})
	if err != nil || attempts != 20 {
		t.Errorf("a store that comes back: %v after %d attempts", err, attempts)
	}
	ctx, cancel := context.WithCancel(t.Context())
	attempts = 0
	if err := p.Offer(ctx, time.Hour, func() error {
		if attempts++; attempts == 3 {
			cancel()
		}
		return away
	}); err != away || attempts != 3 {
		t.Errorf("a sender that has left: %v after %d attempts", err, attempts)
	}
	if ingest.PartOf(&store.PartError{Err: away}) != nil || ingest.PartOf(away) != nil || ingest.PartOf(&store.PartError{Stored: 1, Err: away}) == nil {
		t.Error("a block is stored in part if at least one sample is")
	}
}

// TestPrefixes: a sender that may write metrics of one prefix writes only those, also where
// others have written the same series before.
func TestPrefixes(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	write := func(ctx context.Context, metric string) error {
		_, err := w.Ingest(ctx, 1, func() error { return put(w, metric, "a", 1) })
		return err
	}
	for _, metric := range []string{"web.load", "db.load"} {
		if err := write(t.Context(), metric); err != nil {
			t.Fatal(err)
		}
	}
	web := principal.With(t.Context(), principal.Principal{Name: "web", Prefix: "web."})
	for range 2 {
		var f *ingest.Fault
		if err := write(web, "web.load"); err != nil {
			t.Error(err)
		}
		if err := write(web, "db.load"); !errors.As(err, &f) || f.Reason != ingest.Forbidden || !strings.Contains(f.Text, `web may only write metrics that begin with "web."`) {
			t.Errorf("a metric of another prefix: %v", err)
		}
	}
}

// TestGuesses: the series that followed the last time are guessed, and forgotten ones are not.
func TestGuesses(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	var order []*ingest.Alias
	find := func(kind model.Kind, metric string) (*ingest.Alias, error) {
		if a := w.Find(kind, []byte(metric), []byte("a")); a != nil {
			return a, nil
		}
		return w.Resolve(kind, []byte(metric), []byte("a"), &ingest.Names{Metric: metric, Tags: []model.Tag{{Name: "h", Value: "a"}}})
	}
	round := func() error {
		order = order[:0]
		for _, s := range []struct {
			kind   model.Kind
			metric string
		}{{model.Long, "m1"}, {model.Long, "m2"}, {model.Double, "m2"}} {
			a, err := find(s.kind, s.metric)
			if err != nil {
				return err
			}
			order = append(order, a)
			w.Batch().AddLong(a.Ref, 1, 1, 0)
		}
		w.Retract(0)
		if w.Room() != ingest.BlockSamples {
			return fmt.Errorf("room for %d after all was retracted", w.Room())
		}
		return nil
	}
	if _, err := w.Ingest(t.Context(), 3, round); err != nil {
		t.Fatal(err)
	}
	_, err := w.Ingest(t.Context(), 3, func() error {
		if a, err := find(model.Long, "m1"); err != nil || a != order[0] {
			t.Errorf("%p, %v", a, err)
		}
		if a := w.Guess(); a != order[1] {
			t.Errorf("after the first series %p is guessed, want %p", a, order[1])
		}
		w.Follow(order[1])
		if a := w.Guess(); a != order[2] {
			t.Errorf("after the second %p is guessed, want %p", a, order[2])
		}
		if w.Sibling(order[0]) != nil || w.Sibling(order[1]) != order[2] {
			t.Error("a sibling has the same spelling and another kind")
		}
		w.Batch().AddLong(order[0].Ref, 1, 1, 0)
		if w.Room() != ingest.BlockSamples-1 {
			t.Errorf("room for %d beside one", w.Room())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := p.NewWriter(p.Protocol("other"), "peer", 0).Guess(); a != nil {
		t.Error("a new writer guesses")
	}
}

// TestNewSeriesIn: how long a sender of many new series has to wait.
func TestNewSeriesIn(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	p, _ := ingesttest.NewPipelineAt(&ingesttest.Recorder{}, func(c *ingest.Config) { c.NewSeriesPerSecond, c.NewSeriesBurst = 10, 40 }, func() time.Time { return now })
	if d := p.NewSeriesIn(40); d != 0 {
		t.Errorf("%v for what may come at once", d)
	}
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	for n := range 40 {
		if _, err := w.Ingest(t.Context(), 1, func() error { return put(w, "m", fmt.Sprint(n), 1) }); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]time.Duration{1: 100 * time.Millisecond, 20: 2 * time.Second, 40: 4 * time.Second, 1000: 4 * time.Second} {
		if d := p.NewSeriesIn(n); d.Round(time.Millisecond) != want {
			t.Errorf("%d more: %v, want %v", n, d, want)
		}
	}
	if now = now.Add(time.Second); p.NewSeriesIn(10) != 0 || p.NewSeriesIn(20).Round(time.Millisecond) != time.Second {
		t.Errorf("a second later: %v, %v", p.NewSeriesIn(10), p.NewSeriesIn(20))
	}
}

// TestStringValues: the bounds of string values.
func TestStringValues(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.MaxStringBytes = 4 })
	for text, want := range map[string]string{"": "", "abcd": "", "abcde": "value_too_long", "a\xff": "bad_utf8", "\xff\xff\xff\xff\xff": "value_too_long"} {
		got := ""
		if f := p.CheckString([]byte(text)); f != nil {
			got = f.Reason.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestReleaseTwice: a share that was released holds nothing, and can be used again.
func TestReleaseTwice(t *testing.T) {
	p, reg := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	share := p.NewShare("")
	for _, bytes := range []int64{1000, 8 << 20, 1000} { // a small body, a large one
		if err := share.Grow(t.Context(), bytes); err != nil {
			t.Fatal(err)
		}
		if held := ingesttest.Counters(t, reg, "varve_ingest_body_bytes")[""]; held != float64(bytes) {
			t.Errorf("%v bytes are held, want %d", held, bytes)
		}
		share.Release()
		share.Release()
		if held := ingesttest.Counters(t, reg, "varve_ingest_body_bytes")[""]; held != 0 {
			t.Errorf("%v bytes are held after a share of %d was released twice", held, bytes)
		}
	}
}

// TestNewSeriesRateIsReloaded: a changed new_series_per_second and its burst apply at once.
func TestNewSeriesRateIsReloaded(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	var cfg ingest.Config
	p, _ := ingesttest.NewPipelineAt(&ingesttest.Recorder{}, func(c *ingest.Config) {
		c.NewSeriesPerSecond, c.NewSeriesBurst = 1, 10
		cfg = *c
	}, func() time.Time { return now })
	cfg.NewSeriesPerSecond, cfg.NewSeriesBurst = 20, 50
	p.SetSeriesLimits(cfg)
	if d := p.NewSeriesIn(50).Round(time.Millisecond); d != 2*time.Second { // of which 10 could come by now
		t.Errorf("50 new series may come in %v", d)
	}
	now = now.Add(time.Second)
	if d := p.NewSeriesIn(50).Round(time.Millisecond); d != time.Second {
		t.Errorf("a second later, 50 new series may come in %v", d)
	}
}
