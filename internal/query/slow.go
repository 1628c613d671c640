package query

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/clip"
	"varve/internal/units"
)

// A SlowQuery is a query that took long, as the list of slow queries shows it.
type SlowQuery struct {
	Time    time.Time `json:"time"` // when it was asked
	Client  string    `json:"client"`
	TookMS  float64   `json:"took_ms"` // waiting included
	WaitMS  float64   `json:"wait_ms"`
	IndexMS float64   `json:"index_ms"`
	Series  int64     `json:"series"`
	Samples int64     `json:"samples"`
	Bytes   int64     `json:"bytes"` // of the answer, before compression
	Error   string    `json:"error,omitempty"`
	Metrics []string  `json:"metrics"`
	Query   string    `json:"query"` // cut at maxSlowText bytes
}

const (
	maxSlowText    = 4096
	maxSlowMetrics = 20
	maxSlowMetric  = 256 // bytes of the name of a metric
	slowKept       = 100 // latest slow queries
)

// A SlowLog keeps the latest slow queries of an Engine, whatever their language, and logs each.
// It is safe for many goroutines.
type SlowLog struct {
	threshold atomic.Int64 // a time.Duration; 0 = off
	count     prometheus.Counter

	mu     sync.Mutex
	latest []SlowQuery // latest first
}

// Slow returns the log of slow queries.
func (e *Engine) Slow() *SlowLog { return &e.slow }

// Threshold is the duration from which on a query is slow.
func (l *SlowLog) Threshold() time.Duration { return time.Duration(l.threshold.Load()) }

// A Done is a query that has ended.
type Done struct {
	Request Request
	Path    string          // of the API, shown before the text of the request; may be empty
	Began   time.Time       // when it was asked
	Metrics func() []string // of the request, called if the query was slow; may be nil
	Stats   Stats
	Bytes   int64 // of the answer
	Err     error // nil if it succeeded
}

// Note records a query that has ended now, if it was slow. log may be nil.
func (l *SlowLog) Note(log *slog.Logger, d Done) {
	took := time.Since(d.Began)
	if threshold := l.Threshold(); threshold <= 0 || took < threshold {
		return
	}
	l.count.Inc()
	s := SlowQuery{
		Time: d.Began.UTC(), Client: d.Request.Client, TookMS: units.Milliseconds(took), WaitMS: units.Milliseconds(d.Stats.Wait),
		IndexMS: units.Milliseconds(d.Stats.Index), Series: d.Stats.Series, Samples: d.Stats.Samples, Bytes: d.Bytes,
		Metrics: []string{}, Query: clip.Text(d.Request.Text, maxSlowText),
	}
	if d.Path != "" {
		s.Query = clip.Text(d.Path+" "+s.Query, maxSlowText)
	}
	if d.Err != nil {
		s.Error = clip.Text(d.Err.Error(), maxSlowText)
	}
	if d.Metrics != nil {
		names := d.Metrics()
		for _, name := range names[:min(len(names), maxSlowMetrics)] {
			s.Metrics = append(s.Metrics, clip.Text(name, maxSlowMetric))
		}
	}
	if log != nil {
		log.Warn("slow query", "took", took, "wait", d.Stats.Wait, "index", d.Stats.Index, "client", s.Client,
			"metrics", s.Metrics, "series", s.Series, "samples", s.Samples, "bytes", s.Bytes, "error", s.Error, "query", s.Query)
	}
	l.add(s)
}

func (l *SlowLog) add(s SlowQuery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = slices.Insert(l.latest[:min(len(l.latest), slowKept-1)], 0, s)
}

// List returns what is kept, latest first.
func (l *SlowLog) List() []SlowQuery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]SlowQuery{}, l.latest...)
}
