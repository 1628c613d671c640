package cassandra

import (
	"context"
	"errors"
	"slices"

	"varve/internal/cassandra/layout"
	"varve/internal/store"
)

// Deletions lists the unfinished delete jobs of all nodes, recently cancelled ones, and the
// last jobs that ended in this process, newest first.
func (s *Store) Deletions(ctx context.Context) ([]layout.Job, error) {
	deleters, err := s.deleters(ctx)
	if err != nil {
		return nil, err
	}
	var all []layout.Job
	for _, d := range deleters {
		jobs, err := d.Jobs(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	slices.SortStableFunc(all, func(a, b layout.Job) int { return b.Started.Compare(a.Started) })
	return all, nil
}

// CancelDeletion stops a delete job, whichever node works on it. The returned job says whether
// it is cancelled, about to stop, or had finished already. If there is no such job, the error
// is store.ErrNotFound.
func (s *Store) CancelDeletion(ctx context.Context, id string) (job layout.Job, err error) {
	deleters, err := s.deleters(ctx)
	if err == nil {
		err = s.clock.check(ctx)
	}
	if err != nil {
		return job, err
	}
	for _, d := range deleters {
		if job, err = d.Cancel(ctx, id); !errors.Is(err, store.ErrNotFound) {
			break
		}
	}
	return job, err
}

// deleters returns the deleters of all open clusters, that of the written cluster first.
func (s *Store) deleters(ctx context.Context) ([]layout.Deleter, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	ks, err := s.written.open()
	if err != nil {
		return nil, err
	}
	deleters := []layout.Deleter{ks.Deleter()}
	for _, c := range s.read {
		if ks := c.keyspace(); ks != nil {
			deleters = append(deleters, ks.Deleter())
		}
	}
	return deleters, nil
}
