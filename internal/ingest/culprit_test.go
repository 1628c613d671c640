package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/growth"
	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/principal"
	"varve/internal/store"
)

// TestCulpritsAreNamed: by the errors of both limits of series, and by a
// warning before the first one is reached. They are not asked for with each
// point.
func TestCulpritsAreNamed(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	cfg := ingest.DefaultConfig()
	cfg.NewSeriesBurst, cfg.NewSeriesPerSecond, cfg.MaxSeries = 12, 1, 10
	asked := 0
	var log bytes.Buffer
	p := ingest.New(&ingesttest.Recorder{}, cfg, ingest.Options{
		Registerer: prometheus.NewRegistry(), Now: func() time.Time { return now }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Largest: func(n int) []growth.Metric {
			asked++
			return []growth.Metric{{Metric: "big", Series: 9}, {Metric: "small", Series: 1}, {Metric: "tiny", Series: 1}, {Metric: "fourth", Series: 1}}[:min(n, 4)]
		},
		Fastest: func(int) []growth.Metric { return []growth.Metric{{Metric: "fast", Series: 7}} },
	})
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	try := func(tag string) (text string) {
		t.Helper()
		_, err := w.Ingest(context.Background(), 1, func() error {
			err := put(w, "m", tag, 1)
			if l := (*store.LimitError)(nil); errors.As(err, &l) {
				text = l.Error()
				return nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for i := range 10 {
		if i == 7 && log.Len() > 0 {
			t.Errorf("warned before 80 %%: %s", &log)
		}
		if text := try(fmt.Sprint(i)); text != "" {
			t.Fatal(text)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "the store holds 8 series, ingest.max_series is 10") || !strings.Contains(got, "most series: big (9), small (1), tiny (1)") {
		t.Errorf("log: %s", got)
	}
	for range 100 {
		if text := try("more"); !strings.Contains(text, "limit ingest.max_series of 10 reached, at least 11 needed: new series m; most series: big (9), small (1), tiny (1); see /admin/cardinality") {
			t.Fatal(text)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times for the largest metrics", asked)
	}
	now = now.Add(time.Hour)
	try("more")
	if asked != 2 {
		t.Errorf("asked %d times for the largest metrics, an hour later", asked)
	}

	// Who may see some metrics only does not learn of others.
	_, err := w.Ingest(principal.With(t.Context(), principal.Principal{Rights: principal.Write, Prefix: "m"}), 1, func() error {
		return put(w, "m", "more", 1)
	})
	if err == nil || !strings.Contains(err.Error(), "limit ingest.max_series of 10 reached") || strings.Contains(err.Error(), "big") {
		t.Error(err)
	}

	cfg.NewSeriesBurst = 1
	p = ingest.New(&ingesttest.Recorder{}, cfg, ingest.Options{
		Registerer: prometheus.NewRegistry(), Now: func() time.Time { return now },
		Fastest: func(int) []growth.Metric { return []growth.Metric{{Metric: "fast", Series: 7}} },
	})
	w = p.NewWriter(p.Protocol("test"), "peer", 0)
	try("a")
	if text := try("b"); !strings.Contains(text, "new series m; most new series: fast (7); see /admin/cardinality") {
		t.Error(text)
	}
}

// TestWarningOfABurst: a store knows the metrics of its series once it has samples
// of them. A warning about the first block names them too. Blocks without new series
// do not repeat it.
func TestWarningOfABurst(t *testing.T) {
	cfg := ingest.DefaultConfig()
	cfg.MaxSeries = 10
	now := time.Now()
	var known []growth.Metric
	var log bytes.Buffer
	p := ingest.New(&ingesttest.Recorder{
		OnAppend: func(*store.Batch) error { known = []growth.Metric{{Metric: "burst", Series: 9}}; return nil },
	}, cfg, ingest.Options{
		Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Largest: func(int) []growth.Metric { return known }, Now: func() time.Time { return now },
	})
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	send := func() {
		t.Helper()
		_, err := w.Ingest(context.Background(), 9, func() error {
			for i := range 9 {
				if err := put(w, "burst", fmt.Sprint(i), 1); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	send()
	if got := log.String(); !strings.Contains(got, "the store holds 9 series, ingest.max_series is 10") || !strings.Contains(got, "most series: burst (9); see /admin/cardinality") {
		t.Errorf("log: %s", got)
	}
	log.Reset()
	now = now.Add(time.Hour)
	if send(); log.Len() > 0 {
		t.Errorf("a block without new series: %s", &log)
	}
}

// A sender that may only write learns that a limit is reached, and not whose metrics use it up.
// The operator does.
func TestCulpritsAreNotNamedToWriters(t *testing.T) {
	cfg := ingest.DefaultConfig()
	cfg.MaxSeries = 1
	p := ingest.New(&ingesttest.Recorder{}, cfg, ingest.Options{
		Registerer: prometheus.NewRegistry(), Largest: func(int) []growth.Metric { return []growth.Metric{{Metric: "secret", Series: 9}} },
	})
	defer p.Close()
	for rights, named := range map[principal.Rights]bool{principal.Write: false, principal.Write | principal.Read: true, principal.Admin: true} {
		ctx := principal.With(t.Context(), principal.Principal{Tenant: principal.Default, Name: "sender", Rights: rights})
		w := p.NewWriter(p.Protocol("test"), "peer", 0)
		text := ""
		_, err := w.Ingest(ctx, 2, func() error {
			text = ""
			for _, tag := range []string{"a", "b"} {
				err := put(w, "m", tag, 1)
				if f := (*ingest.Fault)(nil); errors.As(err, &f) {
					text = f.Error() + errors.Unwrap(f).Error()
					w.Reject(f, nil)
				} else if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || !strings.Contains(text, "ingest.max_series") || strings.Contains(text, "secret") != named {
			t.Errorf("%s is told %q, %v", rights, text, err)
		}
		latest, _ := p.Rejected()
		if len(latest) == 0 || !strings.Contains(latest[0].Detail, "secret") {
			t.Errorf("of %s the operator learns %+v", rights, latest)
		}
	}
}
