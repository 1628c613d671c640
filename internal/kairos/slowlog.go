package kairos

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/clip"
	"varve/internal/kairos/agg"
)

// A SlowQuery is a query that took at least Config.SlowQuery.
type SlowQuery struct {
	Time    time.Time `json:"time"` // when it began
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
)

// A slowLog keeps the latest slow queries and logs each. It is safe for many
// goroutines.
type slowLog struct {
	threshold atomic.Int64 // a time.Duration; 0 = off
	keep      int
	count     prometheus.Counter

	mu     sync.Mutex
	latest []SlowQuery // ring
	next   int
}

func newSlowLog(c Config) *slowLog {
	l := &slowLog{
		keep: c.SlowQueriesKept,
		count: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_kairos_slow_queries_total", Help: "Queries that took at least kairos.slow_query.",
		}),
	}
	l.threshold.Store(int64(c.SlowQuery))
	return l
}

// SetSlowQuery changes how long a query takes that is slow.
func (a *API) SetSlowQuery(d time.Duration) { a.slow.threshold.Store(int64(d)) }

// note records a query that began at a time and has ended now, if it was slow.
func (l *slowLog) note(log *slog.Logger, q *agg.Query, began time.Time, took time.Duration, stats agg.Stats, bytes int64, err error) {
	if threshold := time.Duration(l.threshold.Load()); threshold <= 0 || took < threshold {
		return
	}
	l.count.Inc()
	s := SlowQuery{
		Time: began.UTC(), Client: q.Client, TookMS: milliseconds(took), WaitMS: milliseconds(stats.Wait),
		IndexMS: milliseconds(stats.Index), Series: stats.Series, Samples: stats.Samples, Bytes: bytes,
		Metrics: []string{}, Query: clip.Text(q.Text, maxSlowText),
	}
	if err != nil {
		s.Error = err.Error()
	}
	for i := range q.Metrics[:min(len(q.Metrics), maxSlowMetrics)] {
		s.Metrics = append(s.Metrics, clipName(q.Metrics[i].Metric))
	}
	if log != nil {
		log.Warn("slow query", "took", took, "wait", stats.Wait, "index", stats.Index, "client", q.Client,
			"metrics", s.Metrics, "series", s.Series, "samples", s.Samples, "bytes", s.Bytes, "error", s.Error, "query", s.Query)
	}
	l.add(s)
}

func (l *slowLog) add(s SlowQuery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.latest) < l.keep:
		l.latest = append(l.latest, s)
	case l.keep > 0:
		l.latest[l.next] = s
		l.next = (l.next + 1) % l.keep
	}
}

// list returns what is kept, latest first.
func (l *slowLog) list() []SlowQuery {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]SlowQuery, 0, len(l.latest))
	for i := range l.latest {
		all = append(all, l.latest[(l.next+len(l.latest)-1-i)%len(l.latest)])
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// getSlow sends one query after the other: all together may have a megabyte.
func (a *API) getSlow(w http.ResponseWriter, r *http.Request) {
	dropBody(r)
	out := newAnswer(w, r, flushSize)
	if err := encodeSlow(out, time.Duration(a.slow.threshold.Load()), a.slow.list()); err != nil {
		a.abandon(out, r, err)
	}
}

func encodeSlow(out *answer, threshold time.Duration, list []SlowQuery) error {
	out.buf = append(out.buf, `{"queries":[`...)
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = append(out.buf, text...)
		if err := out.advance(); err != nil {
			return err
		}
	}
	out.buf = append(out.buf, `],"threshold_ms":`...)
	out.buf = strconv.AppendFloat(out.buf, milliseconds(threshold), 'f', -1, 64)
	out.buf = append(out.buf, '}')
	return out.finish()
}
