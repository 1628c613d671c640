package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	const total = 100 << 20
	for _, tc := range []struct {
		terminal bool
		want     string
	}{
		{true, "\r[                        ]   0%  a\r[############            ]  50%  b  10s left\r[########################] 100%  c          \rd                                 \r \r"},
		{false, " 50%  b  10s left\n100%  c\nd\n"},
	} {
		var out bytes.Buffer
		now := time.Unix(0, 0)
		p := &progress{w: &out, terminal: tc.terminal, now: func() time.Time { return now }, began: now, told: now}
		for _, step := range []struct {
			after       time.Duration
			done, total int64
			what        string
		}{
			{time.Second, 0, total, "a"},
			{9 * time.Second, total / 2, total, "b"},
			{10 * time.Millisecond, total / 2, total, "too soon"},
			{time.Minute, total, total, "c"},
			{time.Minute, 5, 0, "d"}, // of unknown length
		} {
			now = now.Add(step.after)
			p.update(0, step.done, step.total, step.what)
		}
		p.clear()
		if got := out.String(); got != tc.want {
			t.Errorf("terminal %v:\n%q\nwant\n%q", tc.terminal, got, tc.want)
		}
		if got := p.rate(1300); got != 9 {
			t.Errorf("%d per second", got)
		}
	}
}

// The bar of an export moves within a metric, since one may hold all points.
func TestExportProgress(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var out strings.Builder
	e := &exportJob{total: 1, progress: &progress{w: &out, now: func() time.Time { return now }, began: now, told: now}}
	tell := func() string {
		out.Reset()
		now = now.Add(20 * time.Second)
		e.tell(0)
		return out.String()
	}
	if got := tell(); strings.Contains(got, "%") {
		t.Errorf("%q of a metric of unknown size", got)
	}
	e.series(250_000, 1_000_000)
	if got := tell(); !strings.HasPrefix(got, " 25%") || !strings.Contains(got, "2m0s left") {
		t.Errorf("%q", got)
	}
	e.total, e.done, e.share = 4, 1, 0.5
	if got := tell(); !strings.HasPrefix(got, " 38%  1 of 4 metrics") {
		t.Errorf("%q", got)
	}
}

func TestCount(t *testing.T) {
	if got := count(0, "line") + ", " + count(1, "line") + ", " + count(int64(2), "line"); got != "0 lines, 1 line, 2 lines" {
		t.Error(got)
	}
}
