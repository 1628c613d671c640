package timeline

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options are what an engine is opened with.
type Options struct {
	Config Config
	Log    *slog.Logger          // nil: nothing is logged
	Metric prometheus.Registerer // nil: no metrics
	Now    func() time.Time      // nil: time.Now

	// Lease reports whether this process is the one to look after timelines now: retention
	// and layouts. Nil: it is.
	Lease func() bool

	// TailPoll is how often arrivals by other processes are looked for. 0: a fifth of a
	// second; a shelf that is Alone is never asked without need.
	TailPoll time.Duration

	// Upkeep is the time between two rounds of looking after layouts, of which each tenth looks
	// after everything. 0: half a minute. Negative: none run by themselves; see
	// Engine.Upkeep.
	Upkeep time.Duration
}
