package agg

import (
	"cmp"
	"context"
	"errors"
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

// errPanicked is the error of a query that a panic ended.
var errPanicked = errors.New("a bug in Varve ended the query")

// Do waits for a slot, and calls f with the Run of a query, which it closes.
func (e *Engine) Do(ctx context.Context, q Query, f func(*Run) error) error {
	run, err := e.Start(ctx, q)
	if err != nil {
		return err
	}
	defer run.Close(errPanicked) // does nothing after the Close below
	err = f(run)
	run.Close(err)
	return err
}

// Start waits for a slot. The caller must close the Run.
func (e *Engine) Start(ctx context.Context, q Query) (*Run, error) {
	q.Zone = cmp.Or(q.Zone, time.UTC)
	if len(q.Metrics) > 0 {
		q.Request.Metric = q.Metrics[0].Metric
	}
	s, err := e.Begin(ctx, q.Request)
	if err != nil {
		return nil, err
	}
	return &Run{Session: s, engine: e, query: q, tags: s.Lease()}, nil
}
