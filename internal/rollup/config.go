package rollup

import (
	"errors"
	"fmt"
	"time"

	"varve/internal/units"
)

// Config are the settings of roll-ups.
type Config struct {
	MaxTasks      int           `yaml:"max_tasks" doc:"Most roll-up tasks that may exist."`
	MaxTaskSize   units.Bytes   `yaml:"max_task_size" doc:"Largest JSON text of a roll-up task."`
	MaxConcurrent int           `yaml:"max_concurrent" doc:"Most roll-up tasks that run at once. A backfill takes such a place for each batch, and gives it to tasks that wait before the next one."`
	LateHorizon   time.Duration `yaml:"late_horizon" doc:"Every run computes again the buckets that ended up to this long before the last run; from 1m to 31 days. Points that arrive later than half of it are noted, and their buckets computed by the next run."`
	MaxLateSpans  int           `yaml:"max_late_spans" doc:"Most stretches of time that are noted for late points of one metric of a roll-up; at more the nearest two become one, with the buckets between them."`
	RetryInterval time.Duration `yaml:"retry_interval" doc:"Time after which a failed run is tried again, if the task's own interval is longer."`
	PollInterval  time.Duration `yaml:"poll_interval" doc:"How often the store is asked for tasks that others have changed."`
	Participate   bool          `yaml:"participate" doc:"With the store cassandra, while KairosDB nodes use the keyspace too: true lists this server among their hosts and runs the tasks that they assign to it, false leaves all tasks to them."`
	BatchBuckets  int           `yaml:"batch_buckets" doc:"Most buckets that one query of a roll-up computes; progress is recorded after each."`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		MaxTasks:      1000,
		MaxTaskSize:   256 * units.KiB,
		MaxConcurrent: 2,
		LateHorizon:   time.Hour,
		MaxLateSpans:  1000,
		RetryInterval: time.Minute,
		PollInterval:  10 * time.Second,
		BatchBuckets:  1440,
	}
}

// Bounds of LateHorizon. Storing a batch must take less than half of the lower
// one, and every run computes all of the upper one.
const (
	minHorizon = time.Minute
	maxHorizon = 31 * 24 * time.Hour
)

// Validate reports all values that make no sense.
func (c Config) Validate() error {
	errs := []error{
		units.Positive("max_tasks", c.MaxTasks),
		units.Positive("max_task_size", c.MaxTaskSize),
		units.Positive("max_concurrent", c.MaxConcurrent),
		units.Positive("retry_interval", c.RetryInterval),
		units.Positive("poll_interval", c.PollInterval),
		units.Positive("batch_buckets", c.BatchBuckets),
		units.Positive("max_late_spans", c.MaxLateSpans),
	}
	if c.LateHorizon < minHorizon || c.LateHorizon > maxHorizon {
		errs = append(errs, fmt.Errorf("late_horizon: is %s, must be from %s to %s", c.LateHorizon, minHorizon, maxHorizon))
	}
	return errors.Join(errs...)
}
