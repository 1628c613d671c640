package rollup

import (
	"time"

	"varve/internal/units"
)

// Config are the settings of roll-ups.
type Config struct {
	MaxConcurrent int `yaml:"max_concurrent" default:"2" want:"positive" doc:"Most roll-up tasks that run at once. A backfill counts as one while it computes a batch, and lets waiting tasks run between batches."`
	// Storing a batch must take less than half of the smallest LateHorizon. Every run recomputes a whole
	// LateHorizon.
	LateHorizon time.Duration `yaml:"late_horizon" default:"1h" want:"1m to 744h" doc:"Each run recomputes the buckets that ended up to this long before the last run, 1m to 31 days. Points that arrive late by more than half of this time are recorded, and the next run recomputes their buckets."`
	Participate bool          `yaml:"participate" doc:"With store: cassandra, while KairosDB nodes use the keyspace: true lists this server among their hosts and runs the tasks that they assign to it; false leaves all tasks to the KairosDB nodes."`

	// Constants, which tests and benchmarks change with --tune.

	// MaxLateSpans bounds the time ranges that are recorded for late points of one
	// metric of a roll-up. Beyond it, the two nearest become one, with the buckets
	// between them.
	MaxLateSpans  int           `tune:"max_late_spans" default:"1000" want:"positive"`
	RetryInterval time.Duration `tune:"retry_interval" default:"1m" want:"positive"`     // after which a failed run is retried, unless the task's own interval is shorter
	BatchBuckets  int           `tune:"batch_buckets" default:"1440" want:"positive"`    // buckets of a batch, which is one query unless it hits a limit; the watermark is stored after each batch
	MaxTaskSize   units.Bytes   `tune:"max_task_size" default:"256KiB" want:"positive"`  // longest JSON text of a roll-up task
	MaxTasks      int           `tune:"max_tasks" default:"1000" want:"positive"`        // tasks that may exist; each queries the store at least once per interval
	MaxTaskMemory units.Bytes   `tune:"max_task_memory" default:"64MiB" want:"positive"` // memory for all tasks, as task.memoryOf estimates it; tasks of other programs may exceed it
	PollInterval  time.Duration `tune:"poll_interval" default:"10s" want:"positive"`     // between checks for tasks that other servers have changed; KairosDB's default
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config { return units.Defaults[Config]() }

// Validate reports all invalid values.
func (c Config) Validate() error {
	return units.Bounds("", c)
}
