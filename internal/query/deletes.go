package query

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// leastDeletes is how many deletes run at once on a small machine. A delete waits for
// its log record to be written, and deletes that wait share one write.
const leastDeletes = 4

// deletes limits the deletes that clients request. They have slots of their own: a
// delete does not take turns, and over Cassandra it waits for the cluster, so a few
// deletes would block all queries.
type deletes struct {
	slots
	waiting atomic.Int64
	queued  prometheus.Gauge
	refused prometheus.Counter
}

func newDeletes(r prometheus.Registerer, m *metrics) *deletes {
	d := &deletes{
		slots: slots{free: max(leastDeletes, runtime.GOMAXPROCS(0))},
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "varve_query_deletes_waiting", Help: "Deletes that wait until others have ended.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "varve_query_deletes_refused_total", Help: "Deletes that were refused because too many waited, or others did not end within query.max_wait.",
		}),
	}
	d.fresh.refused = m.shed.WithLabelValues("delete")
	r.MustRegister(d.queued, d.refused)
	return d
}

// Delete waits until few enough deletes run, and calls f, which deletes. No limit on
// the time of queries ends f. began is false if f was not called. A delete that the store
// has recorded gives its slot to others, since from then on it only waits.
func (e *Engine) Delete(ctx context.Context, f func(context.Context) error) (began bool, err error) {
	if err := e.deletes.enter(ctx, e.config.Load()); err != nil {
		return false, err
	}
	leave := sync.OnceFunc(e.deletes.leave)
	defer leave()
	return true, f(store.WithRecorded(ctx, leave))
}

func (d *deletes) enter(ctx context.Context, config *Config) error {
	if d.try() {
		return nil
	}
	err := d.queue(ctx, queue{
		most: int64(config.MaxQueued), wait: config.MaxWait, waiting: &d.waiting, gauge: d.queued,
		full: func(n int64) error {
			return &store.LimitError{
				Busy: true, Limit: "waiting deletes", Max: int64(config.MaxQueued), Need: n,
				What: "deletes that wait until others have ended; nothing was deleted; send fewer at once",
			}
		},
		late: &store.LimitError{
			Busy: true, Limit: "query.max_wait", Max: config.MaxWait.Milliseconds(),
			What: "milliseconds that a delete waits until others have ended; nothing was deleted; send fewer at once",
		},
		early: config.congested("a delete waits until others have ended", "send fewer at once; nothing was deleted"),
	})
	if store.IsBusy(err) {
		d.refused.Inc()
	}
	return err
}
