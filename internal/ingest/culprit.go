package ingest

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"varve/internal/growth"
)

const (
	// seriesWarnPercent is the share of max_series from which the log warns.
	seriesWarnPercent = 80

	// culpritsNamed is how many metrics an error or a warning names.
	culpritsNamed = 3

	// culpritsKept is how long the names are reused: a million points per second may be refused,
	// and their metrics are the same.
	culpritsKept = 5 * time.Second

	// seriesWarnEvery is the minimum time between two warnings.
	seriesWarnEvery = time.Minute
)

// culprits tells who uses up the limits of series.
type culprits struct {
	largest, fastest culpritText
	log              *slog.Logger

	mu     sync.Mutex
	warned time.Time
}

// A culpritText is a list of culprits in words, refreshed now and then.
type culpritText struct {
	ask  func(limit int) []growth.Metric // may be nil
	what string

	mu   sync.Mutex
	at   time.Time
	text string
}

// get returns words that follow those of an error, "" if nothing is known.
func (c *culpritText) get(now time.Time) string {
	if c.ask == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.at); c.text != "" && age >= 0 && age < culpritsKept {
		return c.text
	}
	var list []string
	for _, m := range c.ask(culpritsNamed) {
		list = append(list, fmt.Sprintf("%s (%d)", Brief(m.Metric), m.Series))
	}
	c.at, c.text = now, ""
	if len(list) > 0 {
		c.text = "; " + c.what + " " + strings.Join(list, ", ") + "; see /admin/cardinality"
	}
	return c.text
}

// warnOfGrowth logs, now and then, that a limit of series is nearly reached.
func (p *Pipeline) warnOfGrowth() {
	limits, count, bytes := p.series.Load(), p.appender.SeriesCount(), p.appender.SeriesBytes()
	switch {
	case nearly(int64(count), int64(limits.maxSeries)):
		p.culprits.warn(p.now(), fmt.Sprintf("the store holds %d series, ingest.max_series is %d", count, limits.maxSeries))
	case nearly(bytes, limits.maxMemory):
		p.culprits.warn(p.now(), fmt.Sprintf("the names of all series take %d bytes, ingest.max_series_memory is %d", bytes, limits.maxMemory))
	}
}

func nearly(have, most int64) bool { return float64(have) >= float64(most)*seriesWarnPercent/100 }

// warn logs a text, unless it has done so lately.
func (c *culprits) warn(now time.Time, text string) {
	c.mu.Lock()
	due := now.Sub(c.warned) >= seriesWarnEvery || now.Before(c.warned)
	if due {
		c.warned = now
	}
	c.mu.Unlock()
	if due {
		c.log.Warn(text + "; beyond that new series are refused" + c.largest.get(now))
	}
}
