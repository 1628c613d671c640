package read

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/collectors"
	"varve/internal/model"
	"varve/internal/store"
)

// A Reader finds series and reads rows of a keyspace. It has the caches that requests share:
// row keys and finished rows. Its methods may be called by many goroutines at once.
type Reader struct {
	config   Config
	ks       *schema.Keyspace
	now      func() time.Time
	chunks   *chunkCache
	postings *postingsCache
	widest   int64 // see widestFor
	legacy   legacyTable
	flights  flights
	givenUp  givenUp

	uncovered     func(rowkey.Partition)
	kairosDB      func(context.Context) (bool, error)
	ordered       bool // Cassandra sorts tags, so that row keys can be looked up by them
	badLegacyKeys prometheus.Counter
	answered      *prometheus.CounterVec
	unregister    func()
}

// Options are the dependencies of a Reader. All may be zero.
type Options struct {
	Registerer prometheus.Registerer
	Now        func() time.Time // nil = time.Now

	// Uncovered is called with partitions for which a lookup would have used the inverted index
	// if that had all of their row keys.
	Uncovered func(rowkey.Partition)

	// KairosDB reports whether KairosDB nodes may write into the keyspace. It is called once by
	// each Look that reads finished rows. nil means that none may.
	KairosDB func(context.Context) (bool, error)
}

// New returns a Reader of ks. config must be valid. The caller must call Close.
func New(ks *schema.Keyspace, config Config, o Options) (*Reader, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Uncovered == nil {
		o.Uncovered = func(rowkey.Partition) {}
	}
	if o.KairosDB == nil {
		o.KairosDB = func(context.Context) (bool, error) { return false, nil }
	}
	set := collectors.Named("varve_cassandra_")
	r := &Reader{
		uncovered: o.Uncovered, kairosDB: o.KairosDB,
		config: config, ks: ks, now: o.Now,
		chunks:        newChunkCache(int64(config.ChunkCacheBytes), config.ChunkCacheAge, o.Now, set),
		postings:      newPostingsCache(int64(config.PostingsCacheBytes), o.Now, set),
		widest:        widestFor(int64(config.PostingsCacheBytes)),
		badLegacyKeys: set.Counter("bad_legacy_keys_total", "Rows of row_key_index that hold no row key and were skipped."),
		answered: set.CounterVec("lookups_total",
			"Partitions of row keys that lookups needed, by how they were answered: cached, indexed (by the inverted index), scanned (some pages of them), full (read whole), shared (read whole by a concurrent lookup); uncovered also counts those that the inverted index could not answer because it may lack row keys that KairosDB wrote.", "how"),
	}
	r.ordered = rowkey.KeepsMapsInOrder(ks.Session.State().Version)
	var err error
	if r.unregister, err = set.Register(o.Registerer); err != nil {
		return nil, fmt.Errorf("register metrics of the keyspace's reader: %w", err)
	}
	return r, nil
}

// Close unregisters the metrics.
func (r *Reader) Close() { r.unregister() }

// RowChanged must be called with the key of a row of data_points after this process has written
// or deleted samples there.
func (r *Reader) RowChanged(key []byte) {
	if r.chunks.maxBytes > 0 {
		r.chunks.forget(string(key))
	}
}

// RowKeysChanged must be called after this process has added or removed row keys of a metric
// and row time. Other processes see such changes in varve_row_state.
func (r *Reader) RowKeysChanged(metric string, rowTimeMS int64) {
	r.postings.forget(rowkey.Partition{Metric: metric, TimeMS: rowTimeMS})
}

// Metrics returns the names of all metrics, in no particular order.
func (r *Reader) Metrics(ctx context.Context) ([]string, error) {
	return r.Look().metricNames(ctx, store.NamesQuery{Kind: store.MetricNames})
}

// RowTimes returns all row times of a metric, ascending, with their states.
func (r *Reader) RowTimes(ctx context.Context, metric string) ([]rowkey.RowTime, error) {
	low, high := r.ks.Spec.RowRange(model.AllTime)
	return r.Look().readStates(ctx, rowkey.Span{Metric: metric, LowMS: low, HighMS: high})
}

// finished reports whether a row will probably get no more samples.
func (r *Reader) finished(row Row) bool {
	return row.TimeMS+r.ks.Spec.Width < r.now().Add(-r.config.FinishedAfter).UnixMilli()
}
