package timeline

import (
	"context"
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

	// Changeable returns why nothing may be changed now: the clock of this machine may not be set
	// yet. Once it has returned nil, it always does. Write timestamps never go back before that;
	// afterwards they do if the clock is more than two minutes behind them. Nil: everything always
	// may be changed, and write timestamps never go back.
	Changeable func(context.Context) error

	// Own has the timelines that this server itself writes to, by name, with their fixed
	// layouts. Since these layouts never change, the events may have any time, even far in
	// the future. timeline.rate_max and timeline.timelines_max do not apply. All servers
	// that share timelines must have the same Own.
	Own map[string]Layout

	// Lease reports whether this process is responsible for upkeep (retention and layouts)
	// now. Nil: always.
	Lease func() bool

	// Upkeep is the interval of upkeep rounds. Most rounds only adapt layouts; every tenth is
	// a full one, except the first tenth: see Engine.Upkeep. 0: 30 s. Negative: no rounds run
	// by themselves.
	Upkeep time.Duration
}
