package query

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"varve/internal/principal"
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
	metrics *metrics
}

func newDeletes(m *metrics) *deletes {
	d := &deletes{slots: slots{free: max(leastDeletes, runtime.GOMAXPROCS(0))}, metrics: m}
	d.fresh.refused = m.shed.WithLabelValues("delete")
	return d
}

// Delete waits until few enough deletes run, and calls f, which deletes. The senders of deletes
// that wait take turns; client is the address of one. No limit on the time of queries ends f. began is false if f was not called. A delete that the store
// has recorded gives its slot to others, since from then on it only waits.
func (e *Engine) Delete(ctx context.Context, client string, f func(context.Context) error) (began bool, err error) {
	if err := e.deletes.enter(ctx, client, e.config.Load()); err != nil {
		return false, err
	}
	leave := sync.OnceFunc(e.deletes.leave)
	defer leave()
	return true, f(store.WithRecorded(ctx, leave))
}

func (d *deletes) enter(ctx context.Context, client string, config *Config) error {
	if d.try() {
		return nil
	}
	err := d.queue(ctx, queue{
		config: config, most: int64(config.MaxQueued), sender: principal.NetworkOf(client), waiting: &d.waiting, gauge: d.metrics.deletesWaiting,
		full: store.LimitError{Limit: "waiting deletes", What: "deletes that wait until others have ended; nothing was deleted; send fewer at once"},
		late: store.LimitError{Limit: "query.max_wait", Max: config.MaxWait.Milliseconds(), What: "milliseconds that a delete waits until others have ended; nothing was deleted; send fewer at once"},
		what: "a delete waits until others have ended", wayOut: "send fewer at once; nothing was deleted",
	})
	if store.IsBusy(err) {
		d.metrics.deletesRefused.Inc()
	}
	return err
}
