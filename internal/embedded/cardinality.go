package embedded

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"varve/internal/index"
)

// A Cardinality says how many series there are, what most of them belong to,
// and where new ones come from.
type Cardinality struct {
	index.Cardinality

	Started        time.Time // of the counts since the start
	CreatedStart   int64     // series that got their first sample since the start
	CreatedRecent  int64     // in the last RecentMinutes minutes
	RecentMinutes  int
	GrowthStart    []Growth // the metrics with the most of them, largest first
	GrowthRecent   []Growth
	MemoryBytes    int64  // see SeriesBytes
	UnusedSeries   int64  // created, but without a sample so far
	SeriesEverSeen uint32 // ids given out since the store was created
}

// Growth is the number of new series of a metric. It is exact while at most
// growthMetrics metrics get new series. Beyond that it is too low by at most
// 1/growthMetrics of all new series.
type Growth struct {
	Metric string
	Series int64
}

// Cardinality counts the series of a metric, or of all if metric is "", and
// lists the limit largest parts.
func (s *Store) Cardinality(metric string, limit int) Cardinality {
	c := Cardinality{Cardinality: s.index.Cardinality(metric, limit), RecentMinutes: growthMinutes}
	c.UnusedSeries, c.MemoryBytes = s.series.Unlogged(), s.SeriesBytes()
	c.SeriesEverSeen = uint32(s.series.NextID())
	s.growth.report(&c, s.now(), metric, limit)
	return c
}

// LargestMetrics lists the metrics with the most series.
func (s *Store) LargestMetrics(limit int) []Growth {
	var list []Growth
	for _, m := range s.index.TopMetrics(limit) {
		list = append(list, Growth{m.Metric, int64(m.Series)})
	}
	return list
}

// FastestMetrics lists the metrics that got the most new series in the last
// minutes.
func (s *Store) FastestMetrics(limit int) []Growth {
	var c Cardinality
	s.growth.report(&c, s.now(), "", limit)
	return c.GrowthRecent
}

const (
	// growthMinutes is how far back recent growth reaches: the current minute
	// and those before it.
	growthMinutes = 10

	// growthMetrics is the number of metrics whose growth is counted at a time.
	growthMetrics = 256
)

// growth counts new series by metric, since the start and by minute.
type growth struct {
	mu      sync.Mutex
	started time.Time
	total   sketch
	minutes [growthMinutes]sketch // by minute modulo growthMinutes
	minute  int64                 // since 1970, of the newest
}

// begin starts the counts.
func (g *growth) begin(now time.Time) { g.started, g.minute = now, now.Unix()/60 }

// add counts one series of a metric.
func (g *growth) add(now time.Time, metric string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advance(now)
	g.total.add(metric)
	g.minutes[g.minute%growthMinutes].add(metric)
}

// advance empties the minutes that have begun since. A clock that goes back
// changes nothing until it has caught up. g.mu must be held.
func (g *growth) advance(now time.Time) {
	minute := now.Unix() / 60
	for next := max(g.minute+1, minute-growthMinutes+1); next <= minute; next++ {
		g.minutes[next%growthMinutes] = sketch{}
	}
	g.minute = max(g.minute, minute)
}

// report fills in what c says of growth, of one metric if metric is not "".
func (g *growth) report(c *Cardinality, now time.Time, metric string, limit int) {
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
}

func largest(counts map[string]int64, metric string, limit int) []Growth {
	var list []Growth
	for name, n := range counts {
		if metric == "" || name == metric {
			list = append(list, Growth{name, n})
		}
	}
	slices.SortFunc(list, func(a, b Growth) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Metric, b.Metric))
	})
	return list[:min(limit, len(list))]
}

// A sketch counts series by metric in bounded memory, as Misra and Gries do it:
// when there is no place for a metric, all others lose one. Metrics with more
// than the growthMetrics-th part of all series are always there.
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
	if len(k.metrics) < growthMetrics {
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
