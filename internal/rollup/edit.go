package rollup

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"varve/internal/failure"
	"varve/internal/store"
	"varve/internal/work"
)

// alone runs f while nothing else works on a task. text is the task's new text, "" if f
// deletes the task. alone ends a run of the task, and backfills of any other text.
func (s *Scheduler) alone(ctx context.Context, id, text string, f func() error) error {
	s.mu.Lock()
	j := s.mu.jobs[id]
	if j != nil {
		j.endLocked(text)
	}
	s.mu.Unlock()
	if j == nil {
		return f()
	}
	for _, place := range []chan struct{}{j.busy, j.computing} {
		release, err := work.Take(ctx, place)
		if err != nil {
			return err
		}
		defer release()
	}
	return f()
}

// endLocked ends the run of a task, and its backfills of any text but the new one. A backfill that has
// not read the text yet ends too, since it may be about to read the former one.
// Scheduler.mu must be held.
func (j *job) endLocked(text string) {
	if j.cancel != nil {
		j.cancel()
	}
	for f := range j.fills {
		if text == "" || f.text != text {
			f.end(errTaskChanged)
		}
	}
}

// errNoTask means that no task has the id.
var errNoTask = errors.New("no such roll-up task")

// change waits until no other call changes or loads tasks.
func (s *Scheduler) change(ctx context.Context) (release func(), err error) {
	return work.Take(ctx, s.changing)
}

// put stores a task. With replace, the task must exist. A new task must not exceed
// MaxTasks.
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
	former := s.index.set(t.id, t)
	stored := false
	defer func() {
		if !stored {
			s.index.set(t.id, former)
		}
	}()
	if err := s.index.checkMemory(t, former, int64(s.config.MaxTaskMemory)); err != nil {
		return err
	}
	if err := s.index.checkReaders(t, former); err != nil {
		return err
	}
	if err := s.index.checkLoops(t); err != nil {
		return err
	}
	err = s.alone(ctx, t.id, t.json, func() error {
		if !there && s.shared != nil {
			if err := s.shared.found(ctx, t.id); err != nil {
				return err
			}
		}
		if now := s.now().UnixMilli(); !there {
			if err := s.catalogue.setJSON(ctx, watermarkKey, t.id, watermarks{storedAt: {UntilMS: now, RunMS: now}}); err != nil {
				return err
			}
		}
		if err := s.catalogue.set(ctx, configKey, t.id, t.json); err != nil {
			return err
		}
		s.schedule(t, t.next(s.now())) // before alone returns, while nothing else works on the task: schedule ends backfills that began meanwhile
		stored = true
		return nil
	})
	if err != nil {
		return err
	}
	return s.watch(ctx, t)
}

// known returns a task, nil if it is not known.
func (s *Scheduler) known(id string) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.mu.jobs[id]; j != nil {
		return j.task
	}
	return nil
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
	return s.alone(ctx, id, "", func() error {
		if err := s.catalogue.remove(ctx, id); err != nil {
			return err
		}
		s.drop(id)
		return nil
	})
}

// maxBackfills bounds the backfills that run or wait at once.
const maxBackfills = 8

// errBackfills means that maxBackfills are running or waiting.
var errBackfills = failure.Later(0, fmt.Sprintf("%d backfills already run or wait, the maximum; wait until one is done", maxBackfills))

// errTaskChanged ends a backfill. Otherwise it could store results of the old query
// after those of the new one, or after the task was deleted.
var errTaskChanged = failure.New(http.StatusConflict, "the task was changed or deleted during the backfill; the results of later buckets are not stored")

// A filling is a backfill of a scheduled task. Scheduler.mu guards it.
type filling struct {
	text string // the task's text, "" until it is read
	end  context.CancelCauseFunc
}

// beginFill registers a backfill, so that a change of its task ends it. j is nil if the
// task is not scheduled.
func (s *Scheduler) beginFill(ctx context.Context, id string) (_ context.Context, f *filling, j *job) {
	ctx, end := context.WithCancelCause(ctx)
	f = &filling{end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j = s.mu.jobs[id]; j != nil {
		j.fills[f] = struct{}{}
	}
	return ctx, f, j
}

func (s *Scheduler) endFill(f *filling, j *job) {
	f.end(nil)
	if j == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(j.fills, f)
}

// fill runs a backfill of a task.
func (s *Scheduler) fill(ctx context.Context, id string, startMS, endMS int64) error {
	ctx, f, j := s.beginFill(ctx, id)
	defer s.endFill(f, j)
	err := s.fillFor(ctx, f, j, id, startMS, endMS)
	if err != nil && context.Cause(ctx) == errTaskChanged {
		return errTaskChanged
	}
	return err
}

func (s *Scheduler) fillFor(ctx context.Context, f *filling, j *job, id string, startMS, endMS int64) error {
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
	s.mu.Lock()
	f.text = t.json
	s.mu.Unlock()
	select {
	case s.fills <- struct{}{}:
		defer func() { <-s.fills }()
	default:
		return errBackfills
	}
	return s.backfill(ctx, t, j, startMS, endMS)
}
