package write

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/collectors"
	"varve/internal/work"
)

// A Watch looks whether index rows that samples rely on are still there, and puts back
// what is missing. KairosDB nodes remove row keys, row times and names when a delete
// leaves nothing, and announce nothing. While one runs, each partition that got samples
// is read once more after the last of them, and at most once in index_refresh.
//
// A partition in which something is missing is forgotten first, so that samples that
// come from now on write their index rows themselves; then those of rows that have
// samples are written again. It is looked at again after the same time: a KairosDB node
// whose clock is ahead may have removed row keys under a timestamp that is still to
// come.
//
// When no KairosDB node runs any more, all partitions are looked at once more, and then
// nothing is known of any: what the last node has removed of rows that got no samples
// meanwhile is written again when they get some.
//
// The knowledge of this process is lost when it ends. Suppose that KairosDB removes a row
// key, that the last sample of the row is written after that, and that the process crashes
// less than index_refresh later: then only a repair finds the row.
type Watch struct {
	writer     *Writer
	nodes      func(context.Context) (bool, error) // whether a KairosDB node runs
	stop       context.CancelFunc
	ended      chan struct{} // closed when the watch has ended
	unregister func()
	seen       time.Time // when a KairosDB node ran; zero if what it may have removed is settled

	parts, missing, failures prometheus.Counter
}

var findMetricName = &cql.Statement{Name: "find_metric_name", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT column1 FROM string_index WHERE key = ? AND column1 = ?"}

// watchRate is how many partitions are read in a second.
const watchRate = 200

// watchLast bounds the last look, when the keyspace is closed.
const watchLast = 5 * time.Second

// NewWatch begins to look whether index rows that samples of w rely on are still there.
// nodes says whether a KairosDB node runs. Close must be called, before w is closed.
func NewWatch(w *Writer, r prometheus.Registerer, nodes func(context.Context) (bool, error)) (*Watch, error) {
	set := collectors.Named("varve_cassandra_watch_")
	watch := &Watch{
		writer: w, nodes: nodes, ended: make(chan struct{}),
		parts:    set.Counter("partitions_total", "Partitions of row keys that were read to see whether KairosDB nodes have deleted any that samples rely on."),
		missing:  set.Counter("missing_total", "Row keys of rows with samples that KairosDB nodes deleted and Varve wrote again."),
		failures: set.Counter("failures_total", "Partitions of row keys that could not be read or corrected; they are retried."),
	}
	set.CounterFunc("skipped_total",
		"Row keys that left the cache before Varve checked whether KairosDB nodes had deleted them; a larger write.index_cache keeps more, and varve repair finds what is lost.",
		func() float64 { return float64(w.known.missed()) })
	var err error
	if watch.unregister, err = set.Register(r); err != nil {
		return nil, fmt.Errorf("register metrics of the watch over index rows: %w", err)
	}
	var ctx context.Context
	ctx, watch.stop = context.WithCancel(context.Background())
	go func() {
		defer close(watch.ended)
		watch.run(ctx)
	}()
	return watch, nil
}

// Close looks once more, for some seconds at most, and ends the watch.
func (w *Watch) Close() {
	w.stop()
	<-w.ended
	w.unregister()
}

func (w *Watch) run(ctx context.Context) {
	interval := w.writer.cfg.IndexRefresh
	tick := time.NewTicker(min(interval/4, schema.HostLife/2)) // often enough to see a node that runs for a short time
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.Look(ctx, interval)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchLast)
			defer cancel()
			w.Look(last, 0)
			return
		}
	}
}

// Look looks at all partitions that are due: those that got samples and were not looked
// at for that long. It is called from time to time by itself.
func (w *Watch) Look(ctx context.Context, interval time.Duration) {
	if rows, _ := w.writer.known.size(); rows == 0 && w.seen.IsZero() {
		return
	}
	run, err := w.nodes(ctx)
	if run {
		w.seen = w.writer.now()
		w.writer.known.watchFor(true)
	}
	gone := err == nil && !run
	switch {
	case gone && w.seen.IsZero():
		w.writer.known.watchFor(false)
	case gone && w.writer.now().Sub(w.seen) >= interval:
		if w.partitions(ctx, w.writer.known.unwatched(w.writer.now(), 0)) {
			w.writer.known.watchFor(false)
			w.writer.known.forget(rowkey.Everything)
			w.seen = time.Time{}
		}
	default:
		w.partitions(ctx, w.writer.known.unwatched(w.writer.now(), interval))
	}
}

// partitions looks at some partitions and reports whether all could be put right.
func (w *Watch) partitions(ctx context.Context, due []rowkey.Partition) (done bool) {
	done = true
	pace := time.NewTicker(time.Second / watchRate)
	defer pace.Stop()
	for _, p := range due {
		err := work.Do("look for row keys", func() error { return w.partition(ctx, p) })
		if err != nil {
			done = false
		}
		if err != nil && ctx.Err() == nil {
			w.failures.Inc()
			w.writer.log.Warn("cannot check row keys; will retry", "metric", p.Metric, "row_time", p.TimeMS, "error", err)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return false
		}
	}
	return done
}

// partition checks one partition. Rows that it cannot check or correct remain to be
// checked.
func (w *Watch) partition(ctx context.Context, p rowkey.Partition) error {
	rows := w.writer.known.watch(p, w.writer.now())
	if len(rows) == 0 {
		return nil
	}
	w.parts.Inc()
	put, err := w.putBack(ctx, p, maps.Clone(rows))
	if err != nil || put {
		w.writer.known.watchAgain(p, rows, w.writer.now())
	}
	return err
}

// putBack writes those of some row keys again that are missing and whose rows have
// samples, and reports whether there were any.
func (w *Watch) putBack(ctx context.Context, p rowkey.Partition, missing map[rowkey.Key]int64) (put bool, err error) {
	listed, err := isListed(ctx, w.writer.index.ks, p)
	if err == nil && listed {
		err = rowkey.Each(ctx, w.writer.index.ks.Session, rowkey.ListRowKeys, p.Args(), func(k rowkey.Key) error {
			delete(missing, k)
			return nil
		})
	}
	if err != nil || len(missing) == 0 {
		return false, err
	}
	w.writer.known.forget(rowkey.Span{Metric: p.Metric, LowMS: p.TimeMS, HighMS: p.TimeMS})
	epoch := w.writer.known.now()
	var back []Row
	for k, expirySec := range missing {
		there, err := w.hasSamples(ctx, p, k)
		if err != nil {
			return false, err
		}
		if there {
			back = append(back, Row{Series: p.Series(k), RowTimeMS: p.TimeMS, NeedSec: w.writer.index.neededFor(expirySec)})
		}
	}
	if len(back) == 0 {
		return false, nil
	}
	if err := w.writer.index.write(ctx, epoch, w.writer.deletes.stamp(), back); err != nil {
		return false, err
	}
	w.missing.Add(float64(len(back)))
	w.writer.log.Info("row keys that KairosDB deleted are written again, because their rows have samples", "metric", p.Metric, "row_time", p.TimeMS, "row_keys", len(back))
	return true, nil
}

// isListed reports whether the row time of a partition and its metric's name are there.
func isListed(ctx context.Context, ks *schema.Keyspace, p rowkey.Partition) (bool, error) {
	listed, err := ks.Session.One(ctx, rowkey.FindRowTime, p.Args(), nil)
	if err != nil || !listed {
		return false, err
	}
	return ks.Session.One(ctx, findMetricName, []any{[]byte(schema.MetricNames), ks.Tables.NameColumn(p.Metric)}, nil)
}

func (w *Watch) hasSamples(ctx context.Context, p rowkey.Partition, k rowkey.Key) (bool, error) {
	key, err := p.DataKey(k)
	if err != nil {
		return false, nil // no such row can be in data_points
	}
	return rowkey.HasSamples(ctx, w.writer.index.ks.Session, key)
}
