package cassandra

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

func TestTrend(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	var b backlog
	want := func(what string, samples, bytes int64, trend Trend, text string) {
		t.Helper()
		got := b.trend(level{at, samples, bytes, failing}, 1_000_000)
		if got != trend || got.String() != text {
			t.Errorf("%s: %+v, %q; want %+v, %q", what, got, got, trend, text)
		}
	}
	step := func(n int, samples, bytes func(i int64) int64) {
		for i := range int64(n) {
			b.note(level{at, samples(i), bytes(i), failing})
			at = at.Add(backlogEvery)
		}
	}
	none := Trend{}
	want("at the start", 10, 10, none, "")
	step(4, func(i int64) int64 { return 500 * i }, func(i int64) int64 { return 3000 * i })
	want("it grows", 2000, 12_000, Trend{100, 1647 * time.Second, 0}, "100 more each second, and spool.max_bytes is reached in about 27m")
	step(20, func(i int64) int64 { return 2000 }, func(i int64) int64 { return 12_000 })
	want("it stays", 2000, 12_000, none, "")
	step(4, func(i int64) int64 { return 100_000 }, func(i int64) int64 { return 500_000 })
	step(13, func(i int64) int64 { return 100_000 - 500*i }, func(i int64) int64 { return 500_000 })
	far := Trend{SamplesPerSecond: 0.5}
	slow := backlog{levels: []level{{at.Add(-time.Minute), 0, 0, failing}}}
	if got := slow.trend(level{at, 30, 3, failing}, 1_000_000); got != far || got.String() != "" {
		t.Errorf("it grows so slowly that no end is in sight: %+v, %q", got, got)
	}
	if got := slow.trend(level{at, 30, 600, failing}, 1_000_000); got.String() != "0.5 more each second, and spool.max_bytes is reached in about 27h46m" {
		t.Errorf("it grows slowly: %q", got)
	}
	want("it drains", 93_500, 500_000, Trend{-100, 0, 935 * time.Second}, "100 fewer each second, none in about 16m")
	if len(b.levels) != backlogKept {
		t.Errorf("%d levels are kept", len(b.levels))
	}
}

// TestTrendOfPhases: an outage, the drain after it and the usual gathering do not count for each other.
func TestTrendOfPhases(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	var b backlog
	for _, tc := range []struct {
		what   string
		phase  phase
		levels []int64 // of samples, each 5 s
		want   Trend   // after them, with 10 bytes a sample
	}{
		{"gathering", gathering, []int64{0, 500, 1000, 1500, 2000, 2500}, Trend{}},
		{"an outage begins", failing, []int64{3000}, Trend{}},
		{"an outage", failing, []int64{5000, 7000}, Trend{400, 233 * time.Second, 0}},
		{"the spool is full", refusing, []int64{7500, 7500, 7500}, Trend{}},
		{"Cassandra is back", queued, []int64{8000}, Trend{}},
		{"the drain", queued, []int64{6000, 4000}, Trend{-400, 0, 10 * time.Second}},
		{"gathering again", gathering, []int64{0, 500, 1000}, Trend{}},
	} {
		var now level
		for _, samples := range tc.levels {
			now = level{at, samples, 10 * samples, tc.phase}
			b.note(now)
			at = at.Add(backlogEvery)
		}
		if got := b.trend(now, 1_000_000); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.what, got, tc.want)
		}
	}
}

func TestAboutText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		3 * time.Second:                    "3s",
		599 * time.Second:                  "9m59s",
		time.Hour + 29*time.Second:         "1h0m",
		27*time.Hour + 45*time.Minute + 40: "27h45m",
		1295*time.Hour + 52*time.Minute:    "54 days",
	} {
		if got := aboutText(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// TestFullBacklog: while the spool is full there is no forecast of when it will be.
func TestFullBacklog(t *testing.T) {
	c := defaultSettings()
	c.Hosts = []string{cqltest.ClosedPort(t)}
	c.Spool.Linger, c.Spool.MaxBytes = time.Hour, units.MiB
	s := openStore(t, c, Options{})
	if got := s.level(); got.phase != failing {
		t.Errorf("before Cassandra was reached: %+v", got)
	}
	ref, err := s.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("host", "a"), Type: model.TypeString})
	if err != nil {
		t.Fatal(err)
	}
	for ms := int64(1); err == nil; ms++ {
		var b store.Batch
		b.Reset(s.Epoch())
		b.AddBytes(ref, ms, bytes.Repeat([]byte("x"), 60_000), 0)
		err = s.Append(t.Context(), &b)
	}
	s.backlog.note(level{at: s.now().Add(-30 * time.Second), phase: failing})
	if got := s.Status(); got.Refusing == "" || got.Trend != (Trend{}) || !strings.Contains(got.Degraded, "; further samples are refused: ") {
		t.Errorf("a full spool: %+v", got)
	}
	var outage *outageError
	if err := s.Degraded(); !errors.As(err, &outage) || strings.Contains(outage.Public(), c.Hosts[0]) || !strings.Contains(err.Error(), c.Hosts[0]) ||
		!strings.HasSuffix(outage.Public(), "; further samples are refused") {
		t.Errorf("an outage: %q, and for everybody %q", err, outage.Public())
	}
}
