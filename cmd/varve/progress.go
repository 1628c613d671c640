package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"varve/internal/units"
)

// A progress tells a person how far a long command has come: on a terminal a
// line that is written over, elsewhere a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	told     time.Time
	width    int // of the line on the terminal
}

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
	barWidth  = 24
)

func newProgress(w io.Writer) *progress {
	p := &progress{w: w, now: time.Now, began: time.Now(), told: time.Now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// update says what is done, if it is time to. done of total is in any unit;
// before is what an earlier run had done. A total of 0 is unknown.
func (p *progress) update(before, done, total int64, what string) {
	now := p.now()
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	if now.Sub(p.told) < every {
		return
	}
	p.told = now
	text := what
	if total > 0 {
		share := min(float64(done)/float64(total), 1)
		text = fmt.Sprintf("%3.0f%%  %s", 100*share, what)
		if gone := done - before; gone > 0 && done < total {
			left := time.Duration(float64(now.Sub(p.began)) * float64(total-done) / float64(gone))
			text += "  " + left.Round(time.Second).String() + " left"
		}
		if p.terminal {
			full := int(share * barWidth)
			text = fmt.Sprintf("[%-*s] %s", barWidth, bar[:full], text)
		}
	}
	if !p.terminal {
		fmt.Fprintln(p.w, text)
		return
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, text)
	p.width = len(text)
}

const bar = "########################"

// clear takes the line off the terminal, before other output.
func (p *progress) clear() {
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}

// rate is n per second since the beginning.
func (p *progress) rate(n int64) int64 {
	return int64(float64(n) / max(p.now().Sub(p.began).Seconds(), 1e-3))
}

// size renders bytes for people.
func size(n int64) string {
	switch {
	case n >= int64(10*units.GiB):
		return fmt.Sprintf("%.1f GiB", float64(n)/float64(units.GiB))
	case n >= int64(10*units.MiB):
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

// count says how many of something there are. one is its name in the singular.
func count[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
