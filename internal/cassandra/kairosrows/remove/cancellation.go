package remove

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"varve/internal/cassandra/layout"
	"varve/internal/store"
	"varve/internal/work"
)

// A delete job is cancelled by a separate key in service_index, which nodes that work on the
// job never write. Whatever happens to the job's own record, no node continues it while that
// key exists. A node that works on the job checks for the key, and stops at a point where the
// index is consistent with the rows: see deletePass.rowTime.
const (
	cancelServiceKey = "CancelledDeletions"

	// cancelLook is how often a node checks whether another one has cancelled the job it works on.
	cancelLook = time.Second / 2

	// cancelWait is how long Cancel waits for a node to stop.
	cancelWait = 10 * time.Second

	// cancelledKept is how long a cancelled job is listed.
	cancelledKept = 7 * 24 * time.Hour

	// orphanKept is how long a cancellation whose job no longer exists is kept.
	orphanKept = 24 * time.Hour
)

var errCancelled = errors.New("the job was cancelled")

// Cancel stops a delete job permanently, on whichever node it runs. Samples that the job has
// deleted stay deleted. The resulting state is layout.JobCancelled, or layout.JobCancelling if
// the node that works on it has not stopped within cancelWait, or layout.JobDone if it finished
// first. If there is no such job, Cancel returns store.ErrNotFound.
func (d *Deleter) Cancel(ctx context.Context, id string) (layout.Job, error) {
	j := &d.jobs
	j.mu.Lock()
	r := j.running[id]
	j.mu.Unlock()
	if r == nil {
		if job, err := j.ofOthers(ctx, id); err != nil || job.State == layout.JobDone || job.State == layout.JobCancelled {
			return job, err
		}
	}
	// Before anything stops, since otherwise the job would continue after a restart.
	if err := j.set(ctx, cancelServiceKey, id, j.node); err != nil {
		return layout.Job{}, fmt.Errorf("cancel delete job %s: nothing was done: %w", id, err)
	}
	if r == nil {
		return j.awaitCancelled(ctx, id)
	}
	r.cancel()
	wait := time.NewTimer(j.wait)
	defer wait.Stop()
	select {
	case <-r.ended:
	case <-wait.C:
	case <-ctx.Done():
	}
	return j.hereAfterCancel(ctx, r)
}

// hereAfterCancel returns a job of this process after its cancellation.
func (j *jobs) hereAfterCancel(ctx context.Context, r *runningJob) (layout.Job, error) {
	j.mu.Lock()
	job := *r.job
	_, running := j.running[job.ID]
	j.mu.Unlock()
	switch {
	case running:
		job.State = layout.JobCancelling
	case job.State == layout.JobDone:
		return job, j.unset(ctx, cancelServiceKey, job.ID)
	default:
		job.SetCancelled() // it may have failed at the same moment
	}
	return job, nil
}

// ofOthers returns a job that this process does not work on.
func (j *jobs) ofOthers(ctx context.Context, id string) (layout.Job, error) {
	job, err := j.read(ctx, id)
	if !errors.Is(err, store.ErrNotFound) {
		return job, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ended := range j.ended {
		if ended.ID == id && (ended.State == layout.JobDone || ended.State == layout.JobCancelled) {
			return ended, nil
		}
	}
	return job, err
}

// awaitCancelled waits until a cancelled job has stopped on another node, and records the
// cancellation if no node works on the job.
func (j *jobs) awaitCancelled(ctx context.Context, id string) (layout.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, j.wait)
	defer cancel()
	for {
		job, err := j.read(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound): // it has finished meanwhile
			return layout.Job{ID: id, State: layout.JobDone}, j.unset(context.WithoutCancel(ctx), cancelServiceKey, id)
		case err != nil:
			return layout.Job{ID: id, State: layout.JobCancelling}, nil // the cancellation is stored
		case job.State == layout.JobCancelled:
			return job, nil
		case j.idle(&job):
			if err := j.settleCancelled(ctx, &job); err != nil {
				j.d.log.Warn("cannot record yet that a delete job is cancelled; will retry", "job", id, "error", err)
				return j.asListed(job, true), nil // the cancellation is stored
			}
			return job, nil
		}
		if work.Pause(ctx, j.wait/20) != nil {
			return j.asListed(job, true), nil
		}
	}
}

// settleCancelled withdraws a cancelled job that no node works on, and records the outcome. It removes
// the job once it is old.
func (j *jobs) settleCancelled(ctx context.Context, job *layout.Job) error {
	switch {
	case job.State != layout.JobCancelled:
		if err := j.d.withdraw(ctx, job); err != nil {
			return err
		}
		job.SetCancelled()
		job.Updated = j.d.now().UTC()
		return j.save(ctx, job)
	case j.d.now().Sub(job.Updated) < cancelledKept:
		return nil
	}
	if err := j.unset(ctx, jobServiceKey, job.ID); err != nil {
		return err
	}
	return j.unset(ctx, cancelServiceKey, job.ID)
}

// lookForCancel cancels a job that runs here if another node has cancelled it. If the check fails, the
// next one will tell.
func (j *jobs) lookForCancel(ctx context.Context, r *runningJob, id string) {
	if _, err := j.get(ctx, cancelServiceKey, id); err == nil {
		r.cancel()
	}
}

// watched runs f, and calls lookForCancel meanwhile.
func (j *jobs) watched(ctx context.Context, r *runningJob, f func(context.Context, *runningJob) error) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer stop()
	j.mu.Lock()
	id := r.job.ID
	j.mu.Unlock()
	watcher.Go(func() {
		_ = work.Do("look whether a delete job was cancelled", func() error {
			for r.cancelled.Err() == nil && watching.Err() == nil {
				j.lookForCancel(watching, r, id)
				_ = work.Pause(watching, j.look)
			}
			return nil
		})
	})
	return f(ctx, r)
}

// written reads the cancellations, and then all stored jobs. It removes cancellations whose
// jobs have long been gone.
func (j *jobs) written(ctx context.Context) (cancelled map[string]bool, saved []layout.Job, err error) {
	cancelled = map[string]bool{}
	for id, err := range j.keys(ctx, cancelServiceKey) {
		if err != nil {
			return nil, nil, err
		}
		cancelled[id] = true
	}
	if saved, err = j.saved(ctx); err != nil {
		return nil, nil, err
	}
	orphans := maps.Clone(cancelled)
	for i := range saved {
		delete(orphans, saved[i].ID)
	}
	for id := range orphans {
		value, err := j.get(ctx, cancelServiceKey, id)
		if err == nil && j.d.now().Sub(value.Modified) > orphanKept {
			err = j.unset(ctx, cancelServiceKey, id)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
	}
	return cancelled, saved, nil
}
