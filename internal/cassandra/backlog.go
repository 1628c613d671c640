package cassandra

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/work"
)

const (
	backlogEvery = 5 * time.Second
	backlogKept  = 13 // levels of one minute
)

// A phase says why samples wait for Cassandra.
type phase int

const (
	gathering phase = iota // they gather for the next generation, as always
	queued                 // generations wait until Cassandra has taken those before them
	failing                // Cassandra does not accept samples
	refusing               // the spool accepts no samples, for example because it is full
)

// A backlog records how the number of samples that wait for Cassandra changes.
type backlog struct {
	mu     sync.Mutex
	levels []level // at most backlogKept, oldest first
}

// A level is the size of the backlog at a point in time.
type level struct {
	at             time.Time
	samples, bytes int64
	phase          phase
}

// level returns the present level.
func (s *Store) level() level {
	h := s.spool.Health()
	l := level{at: s.now(), samples: h.Samples, bytes: h.LogBytes + h.FileBytes}
	switch _, cause := s.awayFor(h); {
	case h.Err != nil:
		l.phase = refusing
	case cause != nil:
		l.phase = failing
	case h.Generations > 0:
		l.phase = queued
	}
	return l
}

// watch records the level at intervals, until ctx ends.
func (b *backlog) watch(ctx context.Context, look func() level) {
	for {
		b.note(look())
		if work.Pause(ctx, backlogEvery) != nil {
			return
		}
	}
}

func (b *backlog) note(l level) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.levels = append(b.levels, l); len(b.levels) > backlogKept {
		b.levels = append(b.levels[:0], b.levels[1:]...)
	}
}

// A Trend extrapolates the change of the backlog in the last minute. It is zero while samples only
// gather for the next generation: their number then rises and falls within each linger.
type Trend struct {
	SamplesPerSecond float64       // growth of the backlog; negative if it shrinks
	Full             time.Duration // until spool.max_bytes is reached, 0 if that is not foreseeable
	Drained          time.Duration // until the backlog is empty, 0 if that is not foreseeable
}

// trend compares the present level with the oldest recorded one of the same phase: what happened
// in an outage says nothing about the drain after it.
func (b *backlog) trend(now level, maxBytes int64) Trend {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := now
	for _, l := range slices.Backward(b.levels) {
		if l.phase != now.phase {
			break
		}
		first = l
	}
	seconds := now.at.Sub(first.at).Seconds()
	if seconds < 1 || now.phase == gathering {
		return Trend{}
	}
	t := Trend{SamplesPerSecond: float64(now.samples-first.samples) / seconds}
	if grown := float64(now.bytes-first.bytes) / seconds; grown > 0 && t.SamplesPerSecond > 0 {
		t.Full = inSight(float64(max(0, maxBytes-now.bytes)) / grown)
	}
	if t.SamplesPerSecond < 0 {
		t.Drained = inSight(float64(now.samples) / -t.SamplesPerSecond)
	}
	return t
}

// farthest is how far a trend is extrapolated.
const farthest = 90 * 24 * time.Hour

// inSight converts seconds to a duration, 0 if it exceeds farthest.
func inSight(seconds float64) time.Duration {
	if seconds > farthest.Seconds() {
		return 0
	}
	return time.Duration(max(1, math.Round(seconds))) * time.Second
}

func (t Trend) String() string {
	switch {
	case t.Drained > 0:
		return fmt.Sprintf("%s fewer each second, none in about %s", rateText(-t.SamplesPerSecond), aboutText(t.Drained))
	case t.Full > 0:
		return fmt.Sprintf("%s more each second, and spool.max_bytes is reached in about %s", rateText(t.SamplesPerSecond), aboutText(t.Full))
	}
	return ""
}

// rateText formats a rate, with a decimal place if it is small.
func rateText(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

// aboutText formats an estimated duration, without digits that no estimate has.
func aboutText(d time.Duration) string {
	switch {
	case d >= 72*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 10*time.Minute:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.String()
}

func (s *Store) trend() Trend { return s.backlog.trend(s.level(), int64(s.cfg.Spool.MaxBytes)) }
