// Package console shows the progress of a long command.
package console

import (
	"fmt"
	"io"
	"os"
	"time"
)

// A Progress shows the progress of a command. On a terminal it updates a line in
// place; elsewhere it prints a line every lineEvery.
type Progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time
	began    time.Time
	shown    time.Time // of the last output
	width    int       // of the line on the terminal
}

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
	barWidth  = 24
)

// NewProgress returns a Progress that begins now, by the given clock.
func NewProgress(w io.Writer, now func() time.Time) *Progress {
	p := &Progress{w: w, now: now, began: now(), shown: now()}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Restart begins another part of the work, with a forecast of its own.
func (p *Progress) Restart() { p.began = p.now() }

// Update shows what, if the last output is long enough ago. done and total are in any
// unit, the same for both; before is the part of done that an earlier run did, which the
// forecast excludes. A total of 0 is unknown.
func (p *Progress) Update(before, done, total int64, what string) {
	now := p.now()
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
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

// Clear erases the line on the terminal, so that other output can follow.
func (p *Progress) Clear() {
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.w, "\r%*s\r", p.width, "")
		p.width = 0
	}
}

// Rate returns n per second since the beginning.
func (p *Progress) Rate(n int64) int64 {
	return int64(float64(n) / max(p.now().Sub(p.began).Seconds(), 1e-3))
}

// Elapsed returns the time since the beginning.
func (p *Progress) Elapsed() time.Duration { return p.now().Sub(p.began).Round(time.Millisecond) }
