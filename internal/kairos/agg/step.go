package agg

import (
	"time"

	"varve/internal/model"
	"varve/internal/query"
)

// A Step transforms the points of a group. Steps are immutable: one Step serves all
// groups of a query, and Apply keeps the state per group.
type Step interface {
	// Accepts reports whether the step works on groups of a type. A step that does not
	// is skipped silently for such groups, as in KairosDB.
	Accepts(groupType string) bool

	// Yields is the group type after the step.
	Yields(groupType string) string

	// Apply returns the transformed stream of one group.
	Apply(env *Env, in Stream) Stream
}

// An Env describes to a step the group it works on.
type Env struct {
	Range  model.TimeRange   // of the query
	Zone   *time.Location    // of the query
	NowMS  int64             // when the query began
	Metric string            // the metric read
	Labels []Label           // of the group
	Tags   []query.TagValues // of the group; empty if the query excludes tags and saves nothing

	run     *Run
	grouped map[string]bool // tags named by any tag group-by, even an ignored one
	lease   *query.Lease    // memory of the group
	first   bool            // the step is the first one, so that Point.Whole is what it has requested
}

// zone returns the zone of an aggregator: its own, else the query's.
func (e *Env) zone(own *time.Location) *time.Location {
	if own != nil {
		return own
	}
	return e.Zone
}

// numeric is embedded by steps that turn numbers into numbers.
type numeric struct{}

func (numeric) Accepts(groupType string) bool { return groupType == TypeNumber }
func (numeric) Yields(groupType string) string {
	return groupType
}

// anyType is embedded by steps that accept and keep every type.
type anyType struct{}

func (anyType) Accepts(string) bool            { return true }
func (anyType) Yields(groupType string) string { return groupType }

// errNull refuses null points, which only `gaps` makes, in numeric steps.
var errNull = &query.ComputeError{Reason: "a point without a value reached an aggregator of numbers: no such aggregator can be chained after gaps"}

func notNull(p *Point) error {
	if p.Kind == model.Null {
		return errNull
	}
	return nil
}
