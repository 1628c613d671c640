package rollup

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/store"
)

// alone runs f while nothing else works on a task; a run of it is ended.
func (s *Scheduler) alone(ctx context.Context, id string, f func() error) error {
	s.mu.Lock()
	j := s.mu.jobs[id]
	if j != nil && j.cancel != nil {
		j.cancel()
	}
	s.mu.Unlock()
	if j == nil {
		return f()
	}
	select {
	case j.busy <- struct{}{}:
		defer func() { <-j.busy }()
		return f()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errNoTask means that there is no task of an id.
var errNoTask = errors.New("no such roll-up task")

// change waits until nothing else changes or loads tasks.
func (s *Scheduler) change(ctx context.Context) (release func(), err error) {
	select {
	case s.changing <- struct{}{}:
		return func() { <-s.changing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// put stores a task. Without replace, it must be new or there must be room.
func (s *Scheduler) put(ctx context.Context, t *task, replace bool) error {
	release, err := s.change(ctx)
	if err != nil {
		return err
	}
	defer release()
	_, there, err := s.catalogue.get(ctx, configKey, t.id)
	if err != nil {
		return err
	}
	if replace && !there {
		return errNoTask
	}
	if n := s.count(); !there && n >= s.config.MaxTasks {
		return &store.LimitError{Limit: "roll-up tasks", Max: int64(s.config.MaxTasks), Need: int64(n) + 1, What: "store a roll-up task"}
	}
	if err := checkLoops(t, readersOf(append(s.beside(t.id), t))); err != nil {
		return err
	}
	err = s.alone(ctx, t.id, func() error {
		if !there && s.shared != nil {
			if err := s.shared.found(ctx, t.id); err != nil {
				return err
			}
		}
		return s.catalogue.set(ctx, configKey, t.id, t.json)
	})
	if err != nil {
		return err
	}
	s.schedule(t, t.next(s.now()))
	return s.watch(ctx, t)
}

// beside returns all known tasks except one.
func (s *Scheduler) beside(id string) (tasks []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.mu.jobs {
		if j.task.id != id {
			tasks = append(tasks, j.task)
		}
	}
	return tasks
}

// remove deletes a task.
func (s *Scheduler) remove(ctx context.Context, id string) error {
	release, err := s.change(ctx)
	if err != nil {
		return err
	}
	defer release()
	_, there, err := s.catalogue.get(ctx, configKey, id)
	if err != nil {
		return err
	}
	if !there {
		return errNoTask
	}
	err = s.alone(ctx, id, func() error { return s.catalogue.remove(ctx, id) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.mu.jobs[id]; j != nil {
		s.dropLocked(id, j)
	}
	return nil
}

// maxBackfills is how many backfills run or wait at once.
const maxBackfills = 8

// errBackfills means that too many backfills are under way.
var errBackfills = fmt.Errorf("%d backfills already run or wait, the maximum; wait until one is done", maxBackfills)

// fill runs a backfill of a task.
func (s *Scheduler) fill(ctx context.Context, id string, startMS, endMS int64) error {
	text, there, err := s.catalogue.get(ctx, configKey, id)
	if err != nil {
		return err
	}
	if !there {
		return errNoTask
	}
	t, err := parseTask(s.parser, []byte(text), id, nil)
	if err != nil {
		return fmt.Errorf("stored roll-up task %s cannot be run; replace it: %w", id, err)
	}
	select {
	case s.fills <- struct{}{}:
		defer func() { <-s.fills }()
	default:
		return errBackfills
	}
	return s.backfill(ctx, t, startMS, endMS)
}
