package console

import (
	"bytes"
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
		p := &Progress{w: &out, terminal: tc.terminal, now: func() time.Time { return now }, began: now, shown: now}
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
			p.Update(0, step.done, step.total, step.what)
		}
		p.Clear()
		if got := out.String(); got != tc.want {
			t.Errorf("terminal %v:\n%q\nwant\n%q", tc.terminal, got, tc.want)
		}
		if got := p.Rate(1300); got != 9 {
			t.Errorf("%d per second", got)
		}
	}
}
