package remove

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/kairosrows/write"
	"varve/internal/store"
	"varve/internal/units"
)

// Values of Config.KairosDBNodes.
const (
	NodesAuto = "auto"
	NodesYes  = "yes"
	NodesNo   = "no"
)

// Config are the settings of deletes and repairs.
type Config struct {
	KairosDBNodes string `yaml:"kairosdb_nodes" doc:"whether KairosDB nodes write into the keyspace: \"yes\", \"no\", or \"auto\", which looks for one in the list of hosts that they keep"`

	// Constants; tests and benchmarks change them by --tune.

	Parallel int `tune:"parallel"` // most rows that a delete works on at once, and those of a repair, 1 to 1024
	// JobRows is from how many rows on a delete is a job, 1 to 100000000. A job goes on when
	// the client has left, and after a restart.
	JobRows int `tune:"job_rows"`
	// Horizon is how long after the end of a row KairosDB nodes may still write to it. Until
	// then, a delete leaves its index rows, since KairosDB does not write them again. A day
	// is enough for points that are late, and rows are three weeks long.
	Horizon time.Duration `tune:"horizon"`
}

// DefaultDeleteConfig returns the defaults.
func DefaultConfig() Config {
	return Config{KairosDBNodes: NodesAuto, Horizon: 24 * time.Hour, Parallel: 32, JobRows: 10_000}
}

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	return errors.Join(
		units.Check(slices.Contains([]string{NodesAuto, NodesYes, NodesNo}, c.KairosDBNodes),
			"kairosdb_nodes", fmt.Sprintf("%s, %s or %s", NodesAuto, NodesYes, NodesNo), strconv.Quote(c.KairosDBNodes)),
		units.NotNegative("horizon", c.Horizon),
		units.Range("parallel", c.Parallel, 1, 1024),
		units.Range("job_rows", c.JobRows, 1, 100_000_000),
	)
}

// A Deleter removes samples, and the index rows of rows that have none left.
//
// # What is removed
//
// Of a row that lies in the range wholly, the partition; else one range of
// columns: exactly the samples whose time, as it is read, lies in the range.
// KairosDB cuts the start off to a second in keyspaces of seconds; this does
// not. All deletes carry the write timestamp that the caller gives: what is
// written later is not touched.
//
// After each row it is probed whether it has samples left. If not, its index
// rows are removed, with the same timestamp: row_keys, tag_indexed_row_keys,
// varve_row_index, row_key_index; row_key_time_index and varve_row_state when no
// row key is left at that row time; string_index when the metric has none left.
//
// # KairosDB nodes
//
// A KairosDB node remembers which index rows it wrote and does not write them
// again. If one runs, index rows of rows that may still get samples, whose end
// is less than Horizon ago, are therefore left: else samples that it writes next
// would not be found. They are removed by a later delete or by Repair.
//
// This process' own Writer, and those of other Varve nodes, write index rows again:
// see write.Writer.
type Deleter struct {
	ks      *schema.Keyspace
	cfg     Config
	writer  *write.Writer
	forget  func(key []byte)
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	step    int // rows that are deleted between two reports of progress
	portion int // rows of one row time that are in memory at once, and deleted before their index rows are
	jobs    jobs

	cluster    string
	servicesOf func() (*schema.Keyspace, error) // nil: ks
	unregister func()

	mu      sync.Mutex
	nodes   bool // KairosDB nodes run
	nodesAt time.Time
}

// Options are what a Deleter is given to work with.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock

	// Node names this process in jobs, among all that work on the keyspace.
	Node string

	// Cluster is the name of the cluster, empty for the one that is written to.
	Cluster string

	// Services returns the keyspace whose service_index lists the KairosDB nodes
	// and keeps delete jobs. nil: that of the Deleter.
	Services func() (*schema.Keyspace, error)

	// Deleted is called with the key of each row of which samples were removed.
	Deleted func(key []byte)
}

// New returns a Deleter. cfg must be valid. Close must be called.
func New(ks *schema.Keyspace, w *write.Writer, cfg Config, o Options) (*Deleter, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Deleted == nil {
		o.Deleted = func([]byte) {}
	}
	d := &Deleter{ks: ks, cfg: cfg, writer: w, forget: o.Deleted, log: o.Logger, now: o.Now, metrics: newMetrics(), step: deleteStep, portion: deletePortion,
		cluster: o.Cluster, servicesOf: o.Services}
	d.jobs.init(d, o.Node)
	var err error
	if d.unregister, err = d.metrics.Register(o.Registerer); err != nil {
		d.jobs.close()
		return nil, fmt.Errorf("register metrics of deletes: %w", err)
	}
	return d, nil
}

// Delete removes the samples that the deletions name and that were written with
// a timestamp up to stampMS, one deletion after the other. Row keys of a metric are read
// once for all of them. From job_rows rows on a deletion is a job: if ctx ends before it
// is done, the error says that it goes on.
func (d *Deleter) Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	deletions = slices.DeleteFunc(slices.Clone(deletions), func(del store.Deletion) bool {
		return del.Range.StartMS > del.Range.EndMS || rowkey.Impossible(del.Matchers)
	})
	if slices.ContainsFunc(deletions, func(del store.Deletion) bool { return del.Metric == "" }) {
		return &store.InputError{Reason: "delete: the metric name is empty"}
	}
	for _, some := range groupedByMetric(deletions) {
		plans, err := d.plan(ctx, some)
		if err != nil {
			return fmt.Errorf("delete from %s: %w", some[0].Metric, err)
		}
		for i, del := range some {
			if err := d.delete(ctx, stampMS, del, plans[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Deleter) delete(ctx context.Context, stampMS int64, del store.Deletion, plan *deletePlan) error {
	if plan.rows >= d.cfg.JobRows {
		return d.jobs.start(ctx, del, stampMS, plan)
	}
	if err := d.run(ctx, del, stampMS, plan.steps, func(int64, int) error { return nil }); err != nil {
		return fmt.Errorf("delete from %s: %w", del.Metric, err)
	}
	return nil
}

// Close stops jobs; they go on when the keyspace is opened again.
func (d *Deleter) Close() {
	d.jobs.close()
	d.unregister()
}
