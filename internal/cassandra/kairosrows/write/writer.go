package write

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/rowtime"
	"varve/internal/spool"
	"varve/internal/units"
)

// Config holds the settings of a Writer.
type Config struct {
	IndexCache   int      `yaml:"index_cache" default:"1000000" want:"1000 to 100000000" doc:"Most row keys that a server remembers as indexed, 1000 to 100000000. Each takes 60 to 160 bytes, or 700 in a metric with only one series; a long row key counts as several. The index rows of other row keys are written again with their next sample."`
	KairosDBOnly bool     `yaml:"kairosdb_only" default:"true" doc:"Refuses samples that make queries of KairosDB nodes fail: NaN, infinities, complex numbers and types that KairosDB does not know."`
	TagIndex     []string `yaml:"tag_index" doc:"rules for the rows of tag_indexed_row_keys, which KairosDB nodes need for the metrics in their tag_indexed_row_key_lookup_metrics: \"include\" or \"exclude\", then all, name=, prefix= or regex=, then optionally tags=a,b to name only these tags"`

	// Constants; tests and benchmarks change them by --tune.

	Parallel  int `tune:"parallel" default:"64" want:"1 to 4096"`    // batches of samples on their way at once; statements in flight are limited as well
	BatchRows int `tune:"batch_rows" default:"400" want:"1 to 5000"` // most samples of a batch
	// IndexRefresh is how often Varve checks whether the index rows of rows that got
	// samples still exist. It does so while KairosDB nodes run, because they do not announce
	// what they delete.
	IndexRefresh time.Duration `tune:"index_refresh" default:"10m" want:"1s to 1h"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	_, rules := ParseTagRules(c.TagIndex)
	return errors.Join(units.Bounds("", c), rules)
}

const (
	// sliceSeries is how many series get their index rows at a time: enough for large batches
	// of rows of one metric.
	sliceSeries = 8192

	// workSeries is how many series of one replica set a worker gets at a time. If each has few
	// samples, they fill two batches.
	workSeries = 2 * rowkey.BatchPartitions

	// maxOneByOne is up to how many series that failed before are written one after the other,
	// so that a series that ends a connection, or keeps a node busy, does not make the others
	// fail again. Writing more one by one would take too long. They become few after some
	// attempts, because those not at fault get written.
	maxOneByOne = 64

	// maxReconnect is the total time that an attempt waits for connections that such series
	// have ended.
	maxReconnect = 5 * time.Second
)

// A Source is what a Writer writes: samples by series, with at most one sample of a series for
// each time. *spool.Generation implements it.
type Source interface {
	Series() iter.Seq[model.SeriesNumber]
	SeriesOf(id model.SeriesNumber) (model.Series, bool)
	Snapshot(id model.SeriesNumber, within model.TimeRange, run *head.Run) (bool, error)
}

// A Writer writes samples into the keyspace: it is the spool's sink.
//
// Samples are written in batches: many of one series and row, or few of each of several rows
// with the same replicas. Their index rows are written before them, see indexWriter. All
// writes are awaited. After an error the spool offers the same samples again; then only the series
// that earlier attempts have left are written, see progress. A spool.PartialError says which these
// are. A sample that Cassandra refuses permanently is dropped alone, counted by reason and logged.
// An expired sample is written as a deletion, with its timestamp.
//
// # The rule of index rows
//
// A sample counts as written when its index rows are known to exist after it was written. A
// process knows of index rows if it wrote them, they live as long as the sample, and no process
// has announced since that it may remove them:
//
//	who removes   1 announce, at a quorum     2 delete samples     3 see which rows are
//	              empty     4 remove their index rows, under the announcement's timestamp
//	who writes    1 index rows that are not known, above the timestamps of all announced
//	              removals     2 samples     3 look for announcements, at a quorum; index
//	              rows that they concern no longer count as known: back to 1
//
// Suppose that a row gets a sample while another process removes its index rows. If the writer
// finds the announcement (3), it writes the index rows again, above the removal's timestamp. If
// it does not, the announcement was made after the writer had looked, and so after the sample
// was written, so the remover finds that the row is not empty. Either way the row can be found.
// This depends on no clock and no pause, only on the fact that a quorum reads what a quorum has
// acknowledged. The remover announces and checks at a quorum of each data center, and asks all
// replicas whether a row is empty if write_consistency is less than a quorum. So writers, which are
// far more frequent, only need their own data center.
//
// Two kinds of removals are not announced: KairosDB nodes remove row keys, see [Watch], and people may
// empty tables, see probe.
type Writer struct {
	index      indexWriter
	known      *known
	deletes    *announcements
	spec       rowtime.Spec
	cfg        Config
	batch      rowkey.BatchFunc
	replicaSet func(cql.Entry) string
	wrote      func(key []byte) // invalidates cached samples of a row that has changed
	rules      atomic.Pointer[TagRules]
	log        *slog.Logger
	now        func() time.Time
	metrics    *metrics
	batchers   sync.Pool // of empty *batcher

	unregister func()

	lastWrite atomic.Int64     // when a batch was last written, Unix ms
	writing   atomic.Int64     // sources that are being written
	idle      *notify.Notifier // announces that no source is being written any more
	probed    time.Time        // time of the last probe; only the running pass uses it
	restored  time.Time        // when a probe last made the writer forget everything; likewise

	probeEvery time.Duration // probeEvery, except in tests that count statements

	mu       sync.Mutex
	refusals map[string]*layout.Refusal
	begun    map[Source]*progress // progress of sources that are not completely written, as many as the spool offers at a time
}

// Options are the dependencies of a Writer.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil = time.Now

	// Wrote is called with the key of each row to which samples were written.
	Wrote func(key []byte)

	// KeysChanged is called when row keys of a metric and row time were added or removed.
	KeysChanged func(metric string, rowTimeMS int64)
}

// New returns a Writer into ks. cfg must be valid.
func New(ks *schema.Keyspace, cfg Config, o Options) (*Writer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Wrote == nil {
		o.Wrote = func([]byte) {}
	}
	if o.KeysChanged == nil {
		o.KeysChanged = func(string, int64) {}
	}
	rules, err := ParseTagRules(cfg.TagIndex)
	if err != nil {
		return nil, err
	}
	w := &Writer{spec: ks.Spec, cfg: cfg, wrote: o.Wrote, log: o.Logger, now: o.Now, refusals: map[string]*layout.Refusal{}, begun: map[Source]*progress{}, probeEvery: probeEvery, idle: notify.New()}
	w.batchers.New = func() any { return newBatcher(cfg.BatchRows) }
	w.rules.Store(rules)
	w.known = newKnown(cfg.IndexCache)
	w.deletes = newAnnouncements(ks, w.known, o.Now)
	w.index = indexWriter{
		ks:    ks,
		rules: w.rules.Load, now: o.Now, keysChanged: o.KeysChanged, known: w.known,
	}
	w.replicaSet = func(cql.Entry) string { return "" }
	if ks.Session != nil {
		w.batch, w.replicaSet = ks.Session.Batch, ks.Session.ReplicaSet
	}
	w.metrics = newMetrics(w)
	w.index.metrics = w.metrics
	if w.unregister, err = w.metrics.Register(o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of the keyspace's writer: %w", err)
	}
	return w, nil
}

// Close unregisters the metrics. The Writer must not be used afterwards.
func (w *Writer) Close() { w.unregister() }

// SetTagIndex replaces the rules of tag_indexed_row_keys. Missing index rows are written with
// the next samples of their rows.
func (w *Writer) SetTagIndex(lines []string) error {
	rules, err := ParseTagRules(lines)
	if err != nil {
		return err
	}
	w.rules.Store(rules)
	w.known.forget(rowkey.Everything)
	return nil
}

// Write implements spool.Sink.
func (w *Writer) Write(ctx context.Context, g *spool.Generation) error {
	return w.WriteSource(ctx, g.StampMS(), g)
}

// WriteSource writes all samples of src, as Write does. stampMS is the upper bound of their
// write timestamps, and the timestamp of samples without one.
func (w *Writer) WriteSource(ctx context.Context, stampMS int64, src Source) error {
	w.writing.Add(1)
	defer func() {
		if w.writing.Add(-1) == 0 {
			w.idle.Notify()
		}
	}()
	if err := w.deletes.begin(ctx); err != nil {
		return err
	}
	pass := w.begin(stampMS, src)
	if err := pass.samples(ctx); err != nil {
		return err
	}
	if err := pass.settleWritten(ctx); err != nil {
		return err
	}
	if err := pass.leftBy(); err != nil {
		left := pass.unwritten(src.Series())
		return &spool.PartialError{Left: int64(left.GetCardinality()), Written: pass.wrote.Load(), Err: err, Series: left}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.begun, src)
	return nil
}

// WroteWithin reports whether samples were written within a time before now. After the clock was
// set back further than that, it is false until the next ones are written.
func (w *Writer) WroteWithin(d time.Duration) bool {
	last := w.lastWrite.Load()
	return last > 0 && w.now().Sub(time.UnixMilli(last)).Abs() < d
}

// Writing reports whether samples are being written.
func (w *Writer) Writing() bool { return w.writing.Load() > 0 }

// AwaitIdle waits until no samples are being written, or until ctx ends.
func (w *Writer) AwaitIdle(ctx context.Context) error {
	return w.idle.Wait(ctx, func() bool { return !w.Writing() })
}

// Announce tells all nodes, this one first, that index rows of a span are about to be
// removed, and returns the write timestamp to remove them with: see the rule of index
// rows.
func (w *Writer) Announce(ctx context.Context, s rowkey.Span) (stampMS int64, err error) {
	return w.deletes.announce(ctx, s)
}

// goneLife is how long, in seconds, varve_row_state records that a row time without row keys
// has changed: longer than any cache of row keys lives.
const goneLife = 86400

// Removed tells other nodes that row keys of a partition were removed under a write
// timestamp. state is the one before the removal; left says whether the partition has other row keys.
func (w *Writer) Removed(ctx context.Context, p rowkey.Partition, state rowkey.State, stampMS int64, left bool) error {
	ttl := goneLife
	if left {
		ttl = w.index.ttl(state.LivesUntil())
	}
	_, err := w.index.moveChanged(ctx, p, max(state.ChangedMS, stampMS), ttl, false)
	return err
}

// AddIndexRows writes all index rows of rows that may lack some, without regard to known ones.
func (w *Writer) AddIndexRows(ctx context.Context, stampMS int64, rows []Row) error {
	return w.index.fresh().write(ctx, 0, stampMS, rows)
}

// TagIndexed yields the pairs and hashes that a row key may have in tag_indexed_row_keys: by
// the present rules, and with all tags, as in most metrics. Hashes that result from other rules
// are unknown.
func (w *Writer) TagIndexed(metric string, tags model.Tags) iter.Seq2[string, int32] {
	return func(yield func(pair string, hash int32) bool) {
		rows := []tagIndexRow{newTagIndexRow(tags, func(string) bool { return true })}
		if row := w.rules.Load().row(metric, tags); row.hash != rows[0].hash {
			rows = append(rows, row)
		}
		for _, row := range rows {
			for _, pair := range row.pairs {
				if !yield(pair, row.hash) {
					return
				}
			}
		}
	}
}

// begin begins an attempt to write src, which continues where the previous attempt ended.
func (w *Writer) begin(stampMS int64, src Source) *writePass {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.begun[src]
	if before == nil {
		before = &progress{
			epoch: w.known.now(), parts: map[rowkey.Partition]struct{}{},
			settled: roaring.New(),
		}
		w.begun[src] = before
	}
	before.attempts++
	together := max(1, sliceSeries>>min(30, 4*before.attempts))
	suspects := before.suspects.count()
	oneByOne := suspects > 0 && suspects <= maxOneByOne
	if oneByOne {
		together = 1
	}
	return &writePass{
		progress: before, w: w, src: src, stampMS: stampMS, nowMS: w.now().UnixMilli(),
		together: together, oneByOne: oneByOne, reconnectFor: maxReconnect,
		failed: map[string]int{},
	}
}

// connected reports whether any node is connected.
func (w *Writer) connected() bool {
	return w.index.ks.Session == nil || w.index.ks.Session.State().Connected
}

// together splits all, which is sorted by replica set, into parts of one replica set each and
// at most most series. Series that must be alone get parts of their own.
func together(all []pendingSeries, most int) iter.Seq[[]pendingSeries] {
	return func(yield func([]pendingSeries) bool) {
		for from := 0; from < len(all); {
			to := from + 1
			for to < len(all) && to-from < most && all[to].replicas == all[from].replicas && !all[to].alone && !all[from].alone {
				to++
			}
			if !yield(all[from:to]) {
				return
			}
			from = to
		}
	}
}
