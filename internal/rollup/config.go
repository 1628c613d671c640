package rollup

import (
	"errors"
	"time"

	"varve/internal/units"
)

// Config are the settings of roll-ups.
type Config struct {
	MaxConcurrent int           `yaml:"max_concurrent" doc:"Most roll-up tasks that run at once. A backfill counts as one while it computes a batch, and lets waiting tasks run between batches."`
	LateHorizon   time.Duration `yaml:"late_horizon" doc:"Each run recomputes the buckets that ended up to this long before the last run, 1m to 31 days. Points that arrive late by more than half of this time are recorded, and the next run recomputes their buckets."`
	Participate   bool          `yaml:"participate" doc:"With store: cassandra, while KairosDB nodes use the keyspace: true lists this server among their hosts and runs the tasks that they assign to it; false leaves all tasks to the KairosDB nodes."`

	// Constants, which tests and benchmarks change with --tune.

	// MaxLateSpans bounds the time ranges that are recorded for late points of one
	// metric of a roll-up. Beyond it, the two nearest become one, with the buckets
	// between them.
	MaxLateSpans  int           `tune:"max_late_spans"`
	RetryInterval time.Duration `tune:"retry_interval"`  // until a failed run is tried again, if the task's own interval is longer
	BatchBuckets  int           `tune:"batch_buckets"`   // buckets of a batch, which is one query unless it hits a limit; the watermark is stored after each batch
	MaxTaskSize   units.Bytes   `tune:"max_task_size"`   // longest JSON text of a roll-up task
	MaxTasks      int           `tune:"max_tasks"`       // tasks that may exist; each queries the store at least once per interval
	MaxTaskMemory units.Bytes   `tune:"max_task_memory"` // memory for all tasks, as task.memoryOf estimates it; tasks of other programs may exceed it
	PollInterval  time.Duration `tune:"poll_interval"`   // between looks for tasks that other servers have changed; KairosDB's default
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		MaxTasks:      1000,
		MaxTaskSize:   256 * units.KiB,
		MaxTaskMemory: 64 * units.MiB,
		MaxConcurrent: 2,
		LateHorizon:   time.Hour,
		MaxLateSpans:  1000,
		RetryInterval: time.Minute,
		PollInterval:  10 * time.Second,
		BatchBuckets:  1440,
	}
}

// Bounds of LateHorizon. Storing a batch must take less than half of the lower bound,
// and every run recomputes a whole horizon.
const (
	minHorizon = time.Minute
	maxHorizon = 31 * 24 * time.Hour
)

// Validate reports all invalid values.
func (c Config) Validate() error {
	return errors.Join(
		units.Positive("max_tasks", c.MaxTasks),
		units.Positive("max_task_size", c.MaxTaskSize),
		units.Positive("max_task_memory", c.MaxTaskMemory),
		units.Positive("max_concurrent", c.MaxConcurrent),
		units.Positive("retry_interval", c.RetryInterval),
		units.Positive("poll_interval", c.PollInterval),
		units.Positive("batch_buckets", c.BatchBuckets),
		units.Positive("max_late_spans", c.MaxLateSpans),
		units.Range("late_horizon", c.LateHorizon, minHorizon, maxHorizon),
	)
}
