package write

import (
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
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/spool"
	"varve/internal/units"
)

// Config are the settings of what is written.
type Config struct {
	IndexCache   int      `yaml:"index_cache" doc:"Row keys whose index rows are known to exist, 1000 to 100000000. Each takes 60 to 160 bytes, or 700 in a metric with one series only, and long ones count as several. Index rows of other row keys are written again with their next sample."`
	KairosDBOnly bool     `yaml:"kairosdb_only" doc:"Refuses samples that make queries of KairosDB nodes fail: NaN, infinities, complex numbers and types that KairosDB does not know."`
	TagIndex     []string `yaml:"tag_index" doc:"rules for the rows of tag_indexed_row_keys, which KairosDB nodes need for the metrics in their tag_indexed_row_key_lookup_metrics: \"include\" or \"exclude\", then all, name=, prefix= or regex=, then for some tags only tags=a,b"`

	// Constants; tests and benchmarks change them by --tune.

	Parallel  int `tune:"parallel"`   // batches of samples on their way at once, 1 to 4096; statements in flight are limited as well
	BatchRows int `tune:"batch_rows"` // most samples of a batch, 1 to 5000
	// IndexRefresh is how often, 1s to 1h, Varve looks whether the index rows of rows that
	// got samples are still there. It looks while KairosDB nodes run, which tell nobody what
	// they delete.
	IndexRefresh time.Duration `tune:"index_refresh"`
}

// DefaultWriteConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Parallel:     64,
		BatchRows:    400, // an hour of samples every 10 s is one batch
		IndexCache:   1_000_000,
		IndexRefresh: 10 * time.Minute,
		KairosDBOnly: true,
	}
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	_, rules := ParseTagRules(c.TagIndex)
	return errors.Join(
		units.Range("parallel", c.Parallel, 1, 4096),
		units.Range("batch_rows", c.BatchRows, 1, 5000),
		units.Range("index_cache", c.IndexCache, 1000, 100_000_000),
		units.Range("index_refresh", c.IndexRefresh, time.Second, time.Hour),
		rules,
	)
}

const (
	// sliceSeries is how many series get their index rows at once: enough to
	// make long batches of those of one metric.
	sliceSeries = 8192

	// workSeries is how many series a worker takes at once, of one place: with
	// few samples each they make two batches.
	workSeries = 2 * rowkey.BatchPartitions

	// mostSingly is how many series that failed before are written one after the other, so that
	// what ends a connection, or keeps a node busy, does not fail the others again. More take
	// too long for that; those that are not at fault are soon written, and then they are few.
	mostSingly = 64

	// singlyPatience is how long an attempt waits, in all, for connections that are lost to them.
	singlyPatience = 5 * time.Second
)

// Source is what a Writer writes: samples by series, each time of a series
// once. *spool.Generation is one.
type Source interface {
	Series() iter.Seq[model.SeriesNumber]
	SeriesOf(id model.SeriesNumber) (model.Series, bool)
	Snapshot(id model.SeriesNumber, within model.TimeRange, run *head.Run) (bool, error)
}

// A Writer writes samples into the keyspace: it is the spool's sink.
//
// Samples go in batches, many of one series and row, or few of each of several
// whose rows the same nodes hold; index rows before them (see indexWriter).
// Everything is awaited; an error means that some of it may not be written, and
// the same samples are given again. Then only those series are written that the
// attempts before have left, see progress. A spool.PartialError says which series
// these are; all others count as written. Write timestamps of samples are their
// own, of when they were acknowledged; those of index rows are of now. A sample that
// Cassandra refuses for good is dropped alone, counted by reason and logged. One that
// has expired is written as a deletion, with its timestamp.
//
// # The rule of index rows
//
// A sample counts as written when its index rows are known to be there after it was
// written. A process knows of index rows if it wrote them, they live as long as the
// sample, and no process has announced since that it may remove them:
//
//	who removes   1 announce, at a quorum     2 delete samples     3 see which rows are
//	              empty     4 remove their index rows, under the announcement's timestamp
//	who writes    1 index rows that are not known, above the timestamps of all announced
//	              removals     2 samples     3 look for announcements, at a quorum; of
//	              what they are about nothing is known any more: back to 1
//
// Let a row get a sample while somebody removes its index rows. If the writer finds the
// announcement (3), it writes the index rows again, above the removal's timestamp. If
// it does not, the announcement was made after the writer had looked, and so after the
// sample was written: the row is not empty when the remover looks. Either way the row
// is found. No clock and no pause takes part in this, only that a quorum reads what a
// quorum has acknowledged. If write_consistency is less than a quorum, the remover asks
// all replicas whether a row is empty. If it is a quorum of one data center, the remover
// announces at a quorum of each data center, and looks at a quorum of each. So writers,
// which are far more frequent, need their own data center only.
//
// Tables that somebody empties by hand are noticed after the samples of each
// generation: see probe.
//
// Removers are deletes and repairs, of this process, which forgets at once, and of
// others. KairosDB nodes remove row keys and tell nobody: see [Watch]. Until its samples
// count as written they are answered from the spool.
type Writer struct {
	index   indexWriter
	known   *known
	deletes *announcements
	spec    rowtime.Spec
	cfg     Config
	batch   rowkey.BatchFunc
	place   func(cql.Entry) string
	wrote   func(key []byte) // tells caches of samples that a row has changed
	rules   atomic.Pointer[TagRules]
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics

	unregister func()

	lastWrite atomic.Int64 // when a batch was last written, Unix ms
	probed    time.Time    // when it was last looked whether index rows have vanished; of the pass that runs

	probeEvery time.Duration // probeEvery, unless a test counts statements

	mu       sync.Mutex
	refusals map[string]*refusal
	begun    map[Source]*progress // of sources that are not written yet: as many as the spool offers
}

// Options are what a Writer is given to work with.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock

	// Wrote is called with the key of each row that samples were written to.
	Wrote func(key []byte)

	// KeysChanged is called when row keys of a metric and row time came or went.
	KeysChanged func(metric string, rowTimeMS int64)
}

// New returns a Writer into ks. cfg must be valid.
func New(ks *schema.Keyspace, cfg Config, o Options) (*Writer, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
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
	w := &Writer{spec: ks.Spec, cfg: cfg, wrote: o.Wrote, log: o.Logger, now: o.Now, refusals: map[string]*refusal{}, begun: map[Source]*progress{}, probeEvery: probeEvery}
	w.rules.Store(rules)
	w.known = newKnown(cfg.IndexCache)
	w.deletes = newAnnouncements(ks, w.known, o.Now)
	w.index = indexWriter{
		ks:    ks,
		rules: w.rules.Load, now: o.Now, keysChanged: o.KeysChanged, known: w.known,
	}
	w.place = func(cql.Entry) string { return "" }
	if ks.Session != nil {
		w.batch, w.place = ks.Session.Batch, ks.Session.Place
	}
	w.metrics = newMetrics(w)
	w.index.metrics = w.metrics
	if w.unregister, err = w.metrics.Register(o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of the keyspace's writer: %w", err)
	}
	return w, nil
}

// Close takes the metrics back. Nothing is written any more.
func (w *Writer) Close() { w.unregister() }

// SetTagIndex replaces the rules of tag_indexed_row_keys. Rows that get samples
// get the missing index rows with their next ones.
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

// WriteSource writes all samples of src, as Write does. stampMS bounds their write
// timestamps, and is that of samples without one.
func (w *Writer) WriteSource(ctx context.Context, stampMS int64, src Source) error {
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

// Announce tells all nodes, this one first, that index rows of a span are about to be
// removed, and returns the write timestamp to remove them with: see the rule of index
// rows.
func (w *Writer) Announce(ctx context.Context, s rowkey.Span) (stampMS int64, err error) {
	return w.deletes.announce(ctx, s)
}

// goneLife is how long varve_row_state says of a row time without row keys
// that it changed, in seconds: longer than any cache of row keys lives.
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

// AddIndexRows writes the index rows of rows that may lack some, whatever is known of
// them.
func (w *Writer) AddIndexRows(ctx context.Context, stampMS int64, rows []Row) error {
	return w.index.apart().write(ctx, 0, stampMS, rows)
}

// TagIndexed yields what a row key may have in tag_indexed_row_keys, pairs and hashes: by
// the rules as they are, and of a metric with all tags, which is what most have. The hash
// of others is not known.
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

// begin begins an attempt to write src. It goes on where the one before ended.
func (w *Writer) begin(stampMS int64, src Source) *writePass {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.begun[src]
	again := before != nil
	if !again {
		before = &progress{
			owner: w, epoch: w.known.now(), parts: map[rowkey.Partition]struct{}{},
			done: roaring.New(), settled: roaring.New(), refused: roaring.New(), suspects: roaring.New(),
		}
		w.begun[src] = before
	}
	before.attempts++
	together := max(1, sliceSeries>>min(30, 4*before.attempts))
	suspects := before.suspects.GetCardinality()
	singly := suspects > 0 && suspects <= mostSingly
	if singly {
		together = 1
	}
	return &writePass{
		progress: before, w: w, src: src, stampMS: stampMS, nowMS: w.now().UnixMilli(), again: again,
		together: together, singly: singly, patience: singlyPatience,
		failed: map[string]int{}, left: roaring.New(),
	}
}

// connected reports whether any node answers.
func (w *Writer) connected() bool {
	return w.index.ks.Session == nil || w.index.ks.Session.State().Connected
}

// together yields parts of all, which is sorted by place: of one place each, and
// most at most. Those that are to be alone are.
func together(all []placed, most int) iter.Seq[[]placed] {
	return func(yield func([]placed) bool) {
		for from := 0; from < len(all); {
			to := from + 1
			for to < len(all) && to-from < most && all[to].place == all[from].place && !all[to].alone && !all[from].alone {
				to++
			}
			if !yield(all[from:to]) {
				return
			}
			from = to
		}
	}
}
