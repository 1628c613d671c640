// Package growth counts which metrics get new series, since the start and in the last minutes, and
// finds the metrics with the most series, in bounded memory.
package growth

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// recentMinutes is how far back recent growth reaches: the current minute
	// and those before it.
	recentMinutes = 10

	// maxMetrics is the number of metrics whose growth is counted at a time.
	maxMetrics = 256
)

// A Report says where new series came from.
type Report struct {
	Started       time.Time // of the counts since the start
	CreatedStart  int64     // series that got their first sample since the start
	CreatedRecent int64     // in the last RecentMinutes minutes
	RecentMinutes int
	GrowthStart   []Metric // the metrics with the most of them, largest first
	GrowthRecent  []Metric
}

// A Metric is one with a number of its series. The number is exact while at most maxMetrics metrics
// are counted. Beyond that it is too low by at most 1/maxMetrics of all counted series.
type Metric struct {
	Metric string `json:"metric"`
	Series int64  `json:"series"`
}

// Counts counts new series by metric, since the start and by minute. All methods but Begin may
// be called by many goroutines at once.
type Counts struct {
	mu      sync.Mutex
	started time.Time
	total   sketch
	minutes [recentMinutes]sketch // by minute modulo recentMinutes
	minute  int64                 // since 1970, of the newest
}

// Begin starts the counts. It is called before the others.
func (g *Counts) Begin(now time.Time) { g.started, g.minute = now, now.Unix()/60 }

// Add counts one series of a metric.
func (g *Counts) Add(now time.Time, metric string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now)
	g.total.add(metric)
	g.minutes[g.minute%recentMinutes].add(metric)
}

// advance empties the minutes that have begun since. A clock that goes back
// changes nothing until it has caught up. g.mu must be held.
func (g *Counts) advance(now time.Time) {
	minute := now.Unix() / 60
	for next := max(g.minute+1, minute-recentMinutes+1); next <= minute; next++ {
		g.minutes[next%recentMinutes] = sketch{}
	}
	g.minute = max(g.minute, minute)
}

// Report says what was counted: of one metric, or of all if metric is "", with the limit
// largest.
func (g *Counts) Report(now time.Time, metric string, limit int) Report {
	c := Report{RecentMinutes: recentMinutes}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now)
	recent := make(map[string]int64)
	for i := range g.minutes {
		c.CreatedRecent += g.minutes[i].series
		for name, n := range g.minutes[i].metrics {
			recent[name] += n
		}
	}
	c.Started, c.CreatedStart = g.started, g.total.series
	c.GrowthStart, c.GrowthRecent = largest(g.total.metrics, metric, limit), largest(recent, metric, limit)
	if metric != "" {
		c.CreatedStart, c.CreatedRecent = g.total.metrics[metric], recent[metric]
	}
	return c
}

// Largest lists the metrics with the most series. metrics yields the metric of each series.
func Largest(metrics iter.Seq[string], limit int) []Metric {
	var k sketch
	for metric := range metrics {
		k.add(metric)
	}
	return largest(k.metrics, "", limit)
}

func largest(counts map[string]int64, metric string, limit int) []Metric {
	var list []Metric
	for name, n := range counts {
		if metric == "" || name == metric {
			list = append(list, Metric{name, n})
		}
	}
	slices.SortFunc(list, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Metric, b.Metric))
	})
	return list[:min(limit, len(list))]
}

// A sketch counts series by metric in bounded memory, as Misra and Gries do it:
// when there is no place for a metric, all others lose one. Metrics with more
// than the maxMetrics-th part of all series are always there.
type sketch struct {
	series  int64
	metrics map[string]int64
}

func (k *sketch) add(metric string) {
	k.series++
	if k.metrics == nil {
		k.metrics = make(map[string]int64)
	}
	if n, ok := k.metrics[metric]; ok {
		k.metrics[metric] = n + 1
		return
	}
	if len(k.metrics) < maxMetrics {
		k.metrics[strings.Clone(metric)] = 1
		return
	}
	for name, n := range k.metrics {
		if n == 1 {
			delete(k.metrics, name)
		} else {
			k.metrics[name] = n - 1
		}
	}
}
