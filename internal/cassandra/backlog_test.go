package cassandra

import (
	"testing"
	"time"
)

func TestTrend(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	var b backlog
	want := func(what string, samples, bytes int64, trend Trend, text string) {
		t.Helper()
		got := b.trend(level{at, samples, bytes}, 1_000_000)
		if got != trend || got.String() != text {
			t.Errorf("%s: %+v, %q; want %+v, %q", what, got, got, trend, text)
		}
	}
	step := func(n int, samples, bytes func(i int64) int64) {
		for i := range int64(n) {
			b.note(level{at, samples(i), bytes(i)})
			at = at.Add(backlogEvery)
		}
	}
	none := Trend{}
	want("at the start", 10, 10, none, "")
	step(4, func(i int64) int64 { return 500 * i }, func(i int64) int64 { return 3000 * i })
	want("it grows", 2000, 12_000, Trend{100, 1647 * time.Second, 0}, "100 more each second, and spool.max_bytes is reached in about 27m27s")
	step(20, func(i int64) int64 { return 2000 }, func(i int64) int64 { return 12_000 })
	want("it stays", 2000, 12_000, none, "")
	step(4, func(i int64) int64 { return 100_000 }, func(i int64) int64 { return 500_000 })
	step(13, func(i int64) int64 { return 100_000 - 500*i }, func(i int64) int64 { return 500_000 })
	far := Trend{SamplesPerSecond: 0.5}
	slow := backlog{levels: []level{{at.Add(-time.Minute), 0, 0}}}
	if got := slow.trend(level{at, 30, 3}, 1_000_000); got != far || got.String() != "" {
		t.Errorf("it grows so slowly that no end is in sight: %+v, %q", got, got)
	}
	if got := slow.trend(level{at, 30, 600}, 1_000_000); got.String() != "0.5 more each second, and spool.max_bytes is reached in about 27h45m40s" {
		t.Errorf("it grows slowly: %q", got)
	}
	want("it drains", 93_500, 500_000, Trend{-100, 0, 935 * time.Second}, "100 fewer each second, none in about 15m35s")
	if len(b.levels) != backlogKept {
		t.Errorf("%d levels are kept", len(b.levels))
	}
}
