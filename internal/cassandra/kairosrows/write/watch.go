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

// A Watch checks whether index rows that samples rely on still exist, and restores missing
// ones. KairosDB nodes remove row keys, row times and names without announcement when a delete
// leaves no samples. While a KairosDB node runs, each partition that got samples is read once
// more after the last of them, at most once per index_refresh.
//
// If rows of a partition are missing, the partition is first forgotten, so that new samples
// write their index rows themselves. Then the index rows of rows with samples are written
// again. After another index_refresh the partition is checked again, because a KairosDB node
// whose clock is ahead may have removed row keys under a timestamp in the future.
//
// Once no KairosDB node runs any more, all partitions are checked once more, and then
// everything is forgotten, so that the next samples of all rows write their index rows.
//
// A process that ends checks until all is there, for at most watchLast. One that crashes less than
// index_refresh after it has written the last sample of a row leaves that row unchecked: if KairosDB
// had removed its row key, only a repair finds the row.
type Watch struct {
	writer     *Writer
	nodes      func(context.Context) (bool, error) // reports whether a KairosDB node runs
	stop       context.CancelFunc
	ended      chan struct{} // closed when the watch has ended
	unregister func()
	seen       time.Time // when a KairosDB node last ran; zero once everything it may have removed is restored or forgotten

	parts, missing, failures prometheus.Counter
}

var findMetricName = &cql.Statement{Name: "find_metric_name", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT column1 FROM string_index WHERE key = ? AND column1 = ?"}

// watchRate is how many partitions are read per second.
const watchRate = 200

// watchLast bounds the time of the last check, when the keyspace is closed.
const watchLast = 5 * time.Second

// watchPause is between two checks at the end.
const watchPause = 250 * time.Millisecond

// NewWatch starts a watch over the index rows that samples of w rely on. nodes reports whether
// a KairosDB node runs. The caller must close the watch before it closes w.
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

// Close checks a last time, for at most watchLast, and ends the watch.
func (w *Watch) Close() {
	w.stop()
	<-w.ended
	w.unregister()
}

func (w *Watch) run(ctx context.Context) {
	interval := w.writer.cfg.IndexRefresh
	tick := time.NewTicker(min(interval/4, schema.HostLife/2)) // often enough to notice a node that runs only briefly
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.Look(ctx, interval)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchLast)
			defer cancel()
			w.lookUntilSeen(last)
			return
		}
	}
}

// lookUntilSeen checks all partitions until all could be checked and nothing had to be written again: as
// long as the clock of a KairosDB node is ahead, its removals hide what is written.
func (w *Watch) lookUntilSeen(ctx context.Context) {
	for w.Look(ctx, 0) && work.Pause(ctx, watchPause) == nil {
	}
}

// Look checks all partitions that are due: those that got samples since their last check, which
// was at least interval ago. It reports whether some need another check, because index rows were written
// again or the check failed. The watch also calls it by itself at intervals.
func (w *Watch) Look(ctx context.Context, interval time.Duration) (again bool) {
	if rows, _ := w.writer.known.size(); rows == 0 && w.seen.IsZero() {
		return false
	}
	run, err := w.nodes(ctx)
	if run {
		w.seen = w.writer.now()
		w.writer.known.watchFor(true)
	}
	gone := err == nil && !run
	if gone && w.seen.IsZero() {
		w.writer.known.watchFor(false)
		return false
	}
	last := gone && w.writer.now().Sub(w.seen) >= interval
	if last {
		interval = 0
	}
	restored, done := w.partitions(ctx, interval)
	if last && done {
		w.writer.known.watchFor(false)
		w.writer.known.forget(rowkey.Everything)
		w.seen = time.Time{}
	}
	return restored || !done
}

// partitions checks the partitions that are due, and reports whether index rows were written again,
// and whether all could be checked and restored.
func (w *Watch) partitions(ctx context.Context, interval time.Duration) (restored, done bool) {
	done = true
	pace := time.NewTicker(time.Second / watchRate)
	defer pace.Stop()
	for p := range w.writer.known.due(w.writer.now(), interval) {
		err := work.Do("look for row keys", func() error {
			put, err := w.partition(ctx, p)
			restored = restored || put
			return err
		})
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
			return restored, false
		}
	}
	return restored, done
}

// partition checks one partition. If it fails, or had to write rows again, the partition is
// scheduled for another check.
func (w *Watch) partition(ctx context.Context, p rowkey.Partition) (put bool, err error) {
	rows := w.writer.known.watch(p, w.writer.now())
	if len(rows) == 0 {
		return false, nil
	}
	w.parts.Inc()
	put, err = w.putBack(ctx, p, maps.Clone(rows))
	if err != nil || put {
		w.writer.known.watchAgain(p, rows, w.writer.now())
	}
	return put, err
}

// putBack takes the known row keys of a partition, writes those again that are missing although
// their rows have samples, and reports whether there were any.
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

// isListed reports whether the row time of a partition and its metric's name exist.
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
		return false, nil // data_points cannot contain such a row
	}
	return rowkey.HasSamples(ctx, w.writer.index.ks.Session, key)
}
