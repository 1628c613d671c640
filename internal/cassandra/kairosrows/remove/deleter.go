package remove

import (
	"cmp"
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
	"varve/internal/work"
)

// Values of Config.KairosDBNodes.
const (
	NodesAuto = "auto"
	NodesYes  = "yes"
	NodesNo   = "no"
)

// Config holds the settings of deletes and repairs.
type Config struct {
	KairosDBNodes string `yaml:"kairosdb_nodes" default:"auto" doc:"whether KairosDB nodes write into the keyspace: \"yes\", \"no\", or \"auto\", which looks for a node in KairosDB's list of hosts"`

	// Constants; tests and benchmarks change them by --tune.

	Parallel int `tune:"parallel" default:"32" want:"1 to 1024"` // maximum number of rows that a delete or repair processes concurrently
	// JobRows is the number of rows from which a delete becomes a job. A job
	// continues after its client has disconnected, and after a restart.
	JobRows int `tune:"job_rows" default:"10000" want:"1 to 100000000"`
	// Horizon is how long after the end of a row KairosDB nodes may still write to it. Until
	// then, a delete keeps the row's index rows, since KairosDB does not write them again. A
	// day is enough for late points; rows are three weeks long.
	Horizon time.Duration `tune:"horizon" default:"24h" want:"not negative"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all settings that are out of range.
func (c Config) Validate() error {
	return errors.Join(
		units.Bounds("", c),
		units.Check(slices.Contains([]string{NodesAuto, NodesYes, NodesNo}, c.KairosDBNodes),
			"kairosdb_nodes", fmt.Sprintf("%s, %s or %s", NodesAuto, NodesYes, NodesNo), strconv.Quote(c.KairosDBNodes)),
	)
}

// A Deleter removes samples, and the index rows of rows that have none left.
//
// If a row lies completely in the range, its partition is deleted, otherwise a range of
// columns: exactly the samples whose time, as queries return it, lies in the range. In
// keyspaces with the unit seconds, KairosDB truncates the start to a second; Varve does not.
// All deletes have the write timestamp that the caller passes, so later writes are not
// affected.
//
// After its samples are deleted, each row is probed for remaining samples. If there are none,
// its index rows are removed from row_keys, tag_indexed_row_keys, varve_row_index and
// row_key_index; from row_key_time_index and varve_row_state too if the row time has no row key
// left; and from string_index if the metric has none left.
//
// A KairosDB node remembers which index rows it wrote and does not write them again. While one
// runs, index rows of rows that may still get samples, because they end less than Horizon ago,
// are therefore kept; otherwise the node's next samples would not be found. A later delete or
// Repair removes them. Varve nodes write index rows again: see write.Writer.
type Deleter struct {
	ks      *schema.Keyspace
	cfg     Config
	writer  *write.Writer
	forget  func(key []byte)
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	step    int // rows deleted between two reports of progress
	portion int // rows of one row time in memory at once, whose samples are deleted before their index rows
	jobs    jobs

	afterCancel func(context.Context) // waits until a cancelled delete must end: for cancelTime, or until the context ends

	cluster    string
	services   func() (*schema.Keyspace, error) // the keyspace whose service_index has the KairosDB nodes and delete jobs
	unregister func()

	mu      sync.Mutex
	nodes   bool // KairosDB nodes run
	nodesAt time.Time
}

// Options are the dependencies of a Deleter.
type Options struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil = time.Now

	// Node identifies this server in jobs, among all that use the keyspace.
	Node string

	// Cluster is the name of the cluster; empty for the cluster that is written to.
	Cluster string

	// Services returns the keyspace whose service_index has the list of KairosDB nodes and the
	// delete jobs. nil means the Deleter's own keyspace.
	Services func() (*schema.Keyspace, error)

	// Deleted is called with the key of each row from which samples were deleted.
	Deleted func(key []byte)
}

// New returns a Deleter. cfg must be valid. The caller must call Close.
func New(ks *schema.Keyspace, w *write.Writer, cfg Config, o Options) (*Deleter, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Services == nil {
		o.Services = func() (*schema.Keyspace, error) { return ks, nil }
	}
	if o.Deleted == nil {
		o.Deleted = func([]byte) {}
	}
	d := &Deleter{ks: ks, cfg: cfg, writer: w, forget: o.Deleted, log: o.Logger, now: o.Now, metrics: newMetrics(), step: deleteStep, portion: deletePortion,
		cluster: o.Cluster, services: o.Services}
	d.afterCancel = func(ctx context.Context) { _ = work.Pause(ctx, cancelTime) }
	d.jobs.init(d, o.Node)
	var err error
	if d.unregister, err = d.metrics.Register(o.Registerer); err != nil {
		d.jobs.close()
		return nil, fmt.Errorf("register metrics of deletes: %w", err)
	}
	return d, nil
}

// Delete removes the samples that the deletions select and that were written with a timestamp
// up to stampMS, one deletion after the other. Row keys of a metric are read once for all
// deletions. A deletion of JobRows rows or more is a job: if ctx ends first, the job continues,
// and the error says so.
func (d *Deleter) Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	deletions = slices.DeleteFunc(slices.Clone(deletions), func(del store.Deletion) bool {
		return del.Range.StartMS > del.Range.EndMS || rowkey.Impossible(del.Matchers)
	})
	if slices.ContainsFunc(deletions, func(del store.Deletion) bool { return del.Metric == "" }) {
		return &store.InputError{Reason: "delete: the metric name is empty"}
	}
	for i := range deletions {
		del := &deletions[i]
		del.Matchers = slices.Clone(del.Matchers)
		for k := range del.Matchers {
			m := &del.Matchers[k]
			m.Values = slices.Sorted(slices.Values(m.Values)) // a filter of them is made for each row time
		}
	}
	groups := groupedByMetric(deletions)
	for at, some := range groups {
		plans, err := d.plan(ctx, some)
		if err != nil {
			return fmt.Errorf("delete from %s: %w", some[0].Metric, err)
		}
		for i, del := range some {
			ctx := ctx
			if at < len(groups)-1 || i < len(some)-1 {
				ctx = store.WithRecorded(ctx, nil) // the deletions after it are not recorded
			}
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
	if err := d.run(ctx, del, stampMS, restingPace(d.cfg.Parallel), context.Background(), plan.steps, nil); err != nil {
		return fmt.Errorf("delete from %s: it was not completed: some points may be deleted; repeat the delete: %w", del.Metric, err)
	}
	return nil
}

// Close stops jobs; they continue when the keyspace is opened again.
func (d *Deleter) Close() {
	d.jobs.close()
	d.unregister()
}
