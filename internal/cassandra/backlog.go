package cassandra

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"varve/internal/spool"
)

const (
	backlogEvery = 5 * time.Second
	backlogKept  = 13 // a minute of them
)

// A backlog watches how what waits for Cassandra grows or shrinks.
type backlog struct {
	mu     sync.Mutex
	levels []level // at most backlogKept, oldest first
}

// A level is what waited at a time.
type level struct {
	at             time.Time
	samples, bytes int64
}

func levelOf(now time.Time, h spool.Health) level {
	return level{now, h.Samples, h.LogBytes + h.FileBytes}
}

// watch notes the level from time to time, until ctx ends.
func (b *backlog) watch(ctx context.Context, look func() level) {
	for {
		b.note(look())
		select {
		case <-time.After(backlogEvery):
		case <-ctx.Done():
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

// A Trend says where the backlog goes, as in the last minute.
type Trend struct {
	SamplesPerSecond float64       // more that wait, less than 0 if fewer do
	Full             time.Duration // until spool.max_bytes is reached, 0 if that is not in sight
	Drained          time.Duration // until nothing waits, 0 if that is not in sight
}

// trend compares the level of now with the oldest that is known.
func (b *backlog) trend(now level, maxBytes int64) Trend {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.levels) == 0 {
		return Trend{}
	}
	first := b.levels[0]
	seconds := now.at.Sub(first.at).Seconds()
	if seconds < 1 {
		return Trend{}
	}
	t := Trend{SamplesPerSecond: float64(now.samples-first.samples) / seconds}
	if grown := float64(now.bytes-first.bytes) / seconds; grown > 0 && t.SamplesPerSecond > 0 {
		t.Full = inSeconds(float64(max(0, maxBytes-now.bytes)) / grown)
	}
	if t.SamplesPerSecond < 0 {
		t.Drained = inSeconds(float64(now.samples) / -t.SamplesPerSecond)
	}
	return t
}

func inSeconds(n float64) time.Duration {
	return time.Duration(max(1, min(math.Round(n), 10*365*86400))) * time.Second
}

func (t Trend) String() string {
	switch {
	case t.Drained > 0:
		return fmt.Sprintf("%.0f fewer each second, none in about %v", -t.SamplesPerSecond, t.Drained)
	case t.Full > 0:
		return fmt.Sprintf("%.0f more each second, and spool.max_bytes is reached in about %v", t.SamplesPerSecond, t.Full)
	}
	return ""
}

// trend tells where what waits for Cassandra goes.
func (s *Store) trend() Trend {
	return s.backlog.trend(levelOf(s.now(), s.spool.Health()), int64(s.cfg.Spool.MaxBytes))
}
