package cassandra

import (
	"context"

	"varve/internal/cassandra/kairosrows"
)

// SetTagIndex replaces the rules of tag_indexed_row_keys.
func (s *Store) SetTagIndex(lines []string) error {
	l, err := s.layout()
	if err != nil {
		return err
	}
	return l.writer.SetTagIndex(lines)
}

// Deletions lists the delete jobs of all nodes that are not done, and the last
// ones that were done here, newest first.
func (s *Store) Deletions(ctx context.Context) ([]kairosrows.Job, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	l, err := s.layout()
	if err != nil {
		return nil, err
	}
	return l.deleter.Jobs(ctx)
}

// CancelDeletion stops a delete job, whichever node works on it. The job that it
// returns says whether it is cancelled, about to stop, or was done already; one
// that is not known is store.ErrNotFound.
func (s *Store) CancelDeletion(ctx context.Context, id string) (kairosrows.Job, error) {
	if err := s.check(ctx); err != nil {
		return kairosrows.Job{}, err
	}
	l, err := s.layout()
	if err != nil {
		return kairosrows.Job{}, err
	}
	return l.deleter.Cancel(ctx, id)
}
