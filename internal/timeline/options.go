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

	// Own are the timelines that parts of this server write to, by name, with the layout
	// that each has for ever. So they take events of any time, also far ahead, without
	// timeline.rate_max, and do not count for timeline.timelines_max. All servers that share
	// timelines have the same.
	Own map[string]Layout

	// Lease reports whether this process is the one to look after timelines now: retention
	// and layouts. Nil: it is.
	Lease func() bool

	// TailPoll is how often arrivals by other processes are looked for. 0: a fifth of a
	// second; a shelf that is Alone is never asked without need.
	TailPoll time.Duration

	// Upkeep is the time between two rounds of looking after layouts, of which each tenth looks
	// after everything, but for the first one. 0: half a minute. Negative: none run by themselves; see
	// Engine.Upkeep.
	Upkeep time.Duration
}
