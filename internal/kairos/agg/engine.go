package agg

import (
	"context"
	"time"

	"varve/internal/query"
)

// An Engine computes the queries of KairosDB's language. Its sessions are those of a
// query.Engine, which other languages may share. Many goroutines may use it.
type Engine struct {
	*query.Engine
	saver   Saver // nil: save_as fails
	merging bool  // never fold, for tests
}

// New returns an Engine. saver stores the points of save_as; it may be nil.
func New(e *query.Engine, saver Saver) *Engine { return &Engine{Engine: e, saver: saver} }

// Start waits for a slot. The caller must close the Run.
func (e *Engine) Start(ctx context.Context, q Query) (*Run, error) {
	if q.Zone == nil {
		q.Zone = time.UTC
	}
	if len(q.Metrics) > 0 {
		q.Request.Metric = q.Metrics[0].Metric
	}
	s, err := e.Begin(ctx, q.Request)
	if err != nil {
		return nil, err
	}
	return &Run{Session: s, engine: e, query: q, tags: s.Lease()}, nil
}
