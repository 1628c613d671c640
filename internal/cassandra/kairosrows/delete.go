package kairosrows

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/store"
)

// Values of DeleteConfig.KairosDBNodes.
const (
	NodesAuto = "auto"
	NodesYes  = "yes"
	NodesNo   = "no"
)

// DeleteConfig are the settings of deletes and repairs.
type DeleteConfig struct {
	KairosDBNodes string        `yaml:"kairosdb_nodes" doc:"whether KairosDB nodes write into the keyspace: \"yes\", \"no\", or \"auto\", which looks for one in the list of hosts that they keep"`
	Horizon       time.Duration `yaml:"horizon" doc:"time after the end of a row in which KairosDB nodes may still write to it; while they do, a delete leaves its index rows, since KairosDB does not write them again"`
	Parallel      int           `yaml:"parallel" doc:"rows that a delete or a repair works on at once, 1 to 1024"`
	JobRows       int           `yaml:"job_rows" doc:"rows from which on a delete is a job: it goes on when the client has left, and after a restart, 1 to 100000000"`
}

// DefaultDeleteConfig returns the defaults.
func DefaultDeleteConfig() DeleteConfig {
	return DeleteConfig{KairosDBNodes: NodesAuto, Horizon: 24 * time.Hour, Parallel: 32, JobRows: 10_000}
}

// Validate reports all settings that are out of range.
func (c DeleteConfig) Validate() error {
	var errs []error
	if !slices.Contains([]string{NodesAuto, NodesYes, NodesNo}, c.KairosDBNodes) {
		errs = append(errs, fmt.Errorf("kairosdb_nodes: %q: want %s, %s or %s", c.KairosDBNodes, NodesAuto, NodesYes, NodesNo))
	}
	if c.Horizon < 0 {
		errs = append(errs, fmt.Errorf("horizon: %v: want 0 or more", c.Horizon))
	}
	if c.Parallel < 1 || c.Parallel > 1024 {
		errs = append(errs, fmt.Errorf("parallel: %d: want 1 to 1024", c.Parallel))
	}
	if c.JobRows < 1 || c.JobRows > 100_000_000 {
		errs = append(errs, fmt.Errorf("job_rows: %d: want 1 to 100000000", c.JobRows))
	}
	return errors.Join(errs...)
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
// see Writer.
type Deleter struct {
	ks      *Keyspace
	cfg     DeleteConfig
	writer  *Writer
	begin   func() lookup // one for the deletions of a request
	forget  func(key []byte)
	log     *slog.Logger
	now     func() time.Time
	metrics *deleteMetrics
	step    int // rows of one row time that are deleted before their index rows are
	jobs    jobs
	watch   *watch

	cluster    string
	servicesOf func() (*Keyspace, error) // nil: ks
	unregister func()

	mu      sync.Mutex
	nodes   bool // KairosDB nodes run
	nodesAt time.Time
}

// lookup is Look.Lookup.
type lookup func(context.Context, store.Selection) ([]SeriesRows, error)

// DeleterOptions are what a Deleter is given to work with.
type DeleterOptions struct {
	Registerer prometheus.Registerer
	Logger     *slog.Logger
	Now        func() time.Time // nil: the clock

	// Node names this process in jobs, among all that work on the keyspace.
	Node string

	// Cluster is the name of the cluster, empty for the one that is written to.
	Cluster string

	// Services returns the keyspace whose service_index lists the KairosDB nodes
	// and keeps delete jobs. nil: that of the Deleter.
	Services func() (*Keyspace, error)

	// Look begins to look for rows: see Reader.Look.
	Look func() *Look

	// Deleted is called with the key of each row of which samples were removed.
	Deleted func(key []byte)
}

// NewDeleter returns a Deleter. cfg must be valid. Close must be called.
func NewDeleter(ks *Keyspace, w *Writer, cfg DeleteConfig, o DeleterOptions) (*Deleter, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Deleted == nil {
		o.Deleted = func([]byte) {}
	}
	begin := func() lookup {
		look := o.Look()
		look.lag = 0 // else series would stay that KairosDB nodes have added a moment ago
		return look.Lookup
	}
	d := &Deleter{ks: ks, cfg: cfg, writer: w, begin: begin, forget: o.Deleted, log: o.Logger, now: o.Now, metrics: newDeleteMetrics(), step: deleteStep,
		cluster: o.Cluster, servicesOf: o.Services}
	d.jobs.init(d, o.Node)
	var err error
	d.watch = newWatch(d)
	if d.unregister, err = register(o.Registerer, append(d.metrics.collectors(), d.watch.collectors()...)); err != nil {
		d.jobs.close()
		return nil, fmt.Errorf("register metrics of deletes: %w", err)
	}
	d.watch.start()
	return d, nil
}

// Delete removes the samples that the deletions name and that were written with
// a timestamp up to stampMS, one deletion after the other. The index is read once
// for all of them. From job_rows rows on a deletion is a job: if ctx ends before
// it is done, the error says that it goes on.
func (d *Deleter) Delete(ctx context.Context, stampMS int64, deletions ...store.Deletion) error {
	find := d.begin() // what a deletion removes may be found again by the next: it is gone then as well
	for _, del := range deletions {
		if err := d.delete(ctx, find, stampMS, del); err != nil {
			return err
		}
	}
	return nil
}

func (d *Deleter) delete(ctx context.Context, find lookup, stampMS int64, del store.Deletion) error {
	if del.Metric == "" {
		return &store.InputError{Reason: "delete: the metric name is empty"}
	}
	if del.Range.StartMS > del.Range.EndMS {
		return nil
	}
	steps, err := d.plan(ctx, find, del)
	if err != nil {
		return fmt.Errorf("delete from %s: %w", del.Metric, err)
	}
	rows := 0
	for _, s := range steps {
		rows += len(s.rows)
	}
	if rows < d.cfg.JobRows {
		if err := d.run(ctx, del, stampMS, steps, func(int64, int) error { return nil }); err != nil {
			return fmt.Errorf("delete from %s: %w", del.Metric, err)
		}
		return nil
	}
	return d.jobs.start(ctx, del, stampMS, steps, rows)
}

// Close stops jobs; they go on when the keyspace is opened again.
func (d *Deleter) Close() {
	d.watch.close()
	d.jobs.close()
	d.unregister()
}
