package kairosrows

import (
	"context"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/work"
)

// A watch looks whether index rows that samples rely on are still there, and puts back
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
// What this process knows ends with it. A row key that KairosDB removes, whose last
// sample was written after that and less than index_refresh before a crash, is found
// by repair only.
type watch struct {
	deleter *Deleter
	stop    context.CancelFunc
	tasks   chan struct{} // closed when the watch has ended
	seen    time.Time     // when a KairosDB node ran; zero if what it may have removed is settled

	parts, missing, failures prometheus.Counter
}

var findMetricName = &cql.Statement{Name: "find_metric_name", Level: cql.Quorum, PageSize: 2,
	Text: "SELECT column1 FROM string_index WHERE key = ? AND column1 = ?"}

// watchRate is how many partitions are read in a second.
const watchRate = 200

// watchLast bounds the last look, when the keyspace is closed.
const watchLast = 5 * time.Second

func newWatch(d *Deleter) *watch {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "varve_kairosrows_watch_" + name, Help: help})
	}
	return &watch{
		deleter:  d,
		parts:    counter("partitions_total", "Partitions of row keys that were read to see whether KairosDB nodes have deleted any that samples rely on."),
		missing:  counter("missing_total", "Row keys of rows with samples that KairosDB nodes had deleted, and that were written again."),
		failures: counter("failures_total", "Partitions of row keys that could not be read, or not be put right, and are read again."),
	}
}

func (w *watch) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.parts, w.missing, w.failures,
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "varve_kairosrows_watch_skipped_total",
			Help: "Row keys that left the cache before it was seen whether KairosDB nodes had deleted them; a larger write.index_cache keeps more, and varve repair finds what is lost."},
			func() float64 { return float64(w.deleter.writer.known.missed()) })}
}

func (w *watch) start() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.tasks = cancel, make(chan struct{})
	go func() {
		defer close(w.tasks)
		w.run(ctx)
	}()
}

func (w *watch) close() {
	w.stop()
	<-w.tasks
}

func (w *watch) run(ctx context.Context) {
	interval := w.deleter.writer.cfg.IndexRefresh
	tick := time.NewTicker(min(interval/4, schema.HostLife/2)) // often enough to see a node that runs for a short time
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(ctx, interval)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), watchLast)
			defer cancel()
			w.look(last, 0)
			return
		}
	}
}

// look looks at all partitions that are due.
func (w *watch) look(ctx context.Context, interval time.Duration) {
	d := w.deleter
	if rows, _ := d.writer.known.size(); rows == 0 && w.seen.IsZero() {
		return
	}
	run, err := d.kairosDBRuns(ctx)
	if run {
		w.seen = d.now()
		d.writer.known.watchFor(true)
	}
	gone := err == nil && !run
	switch {
	case gone && w.seen.IsZero():
		d.writer.known.watchFor(false)
	case gone && d.now().Sub(w.seen) >= interval:
		if w.partitions(ctx, d.writer.known.unwatched(d.now(), 0)) {
			d.writer.known.watchFor(false)
			d.writer.known.forget(everything)
			w.seen = time.Time{}
		}
	default:
		w.partitions(ctx, d.writer.known.unwatched(d.now(), interval))
	}
}

// partitions looks at some partitions and reports whether all could be put right.
func (w *watch) partitions(ctx context.Context, due []partKey) (done bool) {
	d := w.deleter
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
			d.log.Warn("row keys could not be looked for; they are looked for again", "metric", p.metric, "row_time", p.timeMS, "error", err)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
			return false
		}
	}
	return done
}

// partition looks at one partition. What it cannot look at, or put right, stays to be
// looked at.
func (w *watch) partition(ctx context.Context, p partKey) error {
	d := w.deleter
	rows := d.writer.known.watch(p, d.now())
	if len(rows) == 0 {
		return nil
	}
	w.parts.Inc()
	put, err := w.putBack(ctx, p, maps.Clone(rows))
	if err != nil || put {
		d.writer.known.watchAgain(p, rows, d.now())
	}
	return err
}

// putBack writes those of some row keys again that are missing and whose rows have
// samples, and reports whether there were any.
func (w *watch) putBack(ctx context.Context, p partKey, missing map[rowKey]int64) (put bool, err error) {
	d := w.deleter
	listed, err := d.isListed(ctx, p)
	if err == nil && listed {
		err = d.eachRowKey(ctx, p, func(k rowKey) { delete(missing, k) })
	}
	if err != nil || len(missing) == 0 {
		return false, err
	}
	d.writer.known.forget(span{p.metric, p.timeMS, p.timeMS})
	epoch := d.writer.known.now()
	var back []pendingRow
	for k, expirySec := range missing {
		there, err := d.rowHasSamples(ctx, p, k)
		if err != nil {
			return false, err
		}
		if there {
			back = append(back, pendingRow{series: model.Series{Metric: p.metric, Type: k.typ, Tags: k.tags}, rowTimeMS: p.timeMS, needSec: d.writer.index.neededFor(expirySec)})
		}
	}
	if len(back) == 0 {
		return false, nil
	}
	if err := d.writer.index.write(ctx, epoch, d.writer.deletes.stamp(), back); err != nil {
		return false, err
	}
	w.missing.Add(float64(len(back)))
	d.log.Info("row keys that KairosDB had deleted are written again, since their rows have samples", "metric", p.metric, "row_time", p.timeMS, "row_keys", len(back))
	return true, nil
}

// isListed reports whether the row time of a partition and its metric's name are there.
func (d *Deleter) isListed(ctx context.Context, p partKey) (bool, error) {
	listed, err := d.ks.Session.One(ctx, findRowTime, []any{p.metric, schema.DataPoints, p.timeMS}, nil)
	if err != nil || !listed {
		return false, err
	}
	return d.ks.Session.One(ctx, findMetricName, []any{[]byte(schema.MetricNames), d.writer.index.nameColumn(p.metric)}, nil)
}

// eachRowKey reads the row keys of a partition, at a quorum.
func (d *Deleter) eachRowKey(ctx context.Context, p partKey, f func(rowKey)) error {
	return eachKey(ctx, d.ks.Session, listRowKeys, []any{p.metric, schema.DataPoints, p.timeMS}, func(k rowKey) error {
		f(k)
		return nil
	})
}

func (d *Deleter) rowHasSamples(ctx context.Context, p partKey, k rowKey) (bool, error) {
	key, err := rowtime.Key{Metric: p.metric, RowTimeMS: p.timeMS, Type: k.typ, Tags: k.tags}.Append(nil)
	if err != nil {
		return false, nil // no such row can be in data_points
	}
	return d.hasSamples(ctx, key)
}
