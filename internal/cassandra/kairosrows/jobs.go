package kairosrows

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// Delete jobs are kept in service_index, so that any node goes on with one whose
// node is gone. Their write timestamp is kept too: whatever is written while a
// job waits is not touched, and doing a part twice does no harm.
const (
	jobService    = "_Varve"
	jobServiceKey = "Deletions"

	// jobReport is how often a job writes its progress down.
	jobReport = 10 * time.Second

	// jobSilence is how long a job may be silent before another node takes it.
	jobSilence = time.Minute

	// jobsKept is how many ended jobs are remembered, in this process.
	jobsKept = 100
)

// States of a Job.
const (
	JobRunning = "running"
	JobWaiting = "waiting" // for this or another node to go on with it
	JobDone    = "done"
	JobFailed  = "failed" // will be tried again
)

// A Job is a delete that is too large to be waited for.
type Job struct {
	ID       string    `json:"id"`
	Selector string    `json:"selector"` // for people
	StartMS  int64     `json:"start_ms"`
	EndMS    int64     `json:"end_ms"`
	StampMS  int64     `json:"stamp_ms"` // samples written later stay
	State    string    `json:"state"`
	Rows     int       `json:"rows"`    // when it began
	Done     int       `json:"done"`    // of these
	NextMS   int64     `json:"next_ms"` // row times before this are done
	Started  time.Time `json:"started"`
	Updated  time.Time `json:"updated"`
	Node     string    `json:"node"` // that works on it, or did last
	Error    string    `json:"error,omitempty"`

	Deletion savedDeletion `json:"deletion"`
}

// savedDeletion is a store.Deletion as it is kept.
type savedDeletion struct {
	Metric   string         `json:"metric"`
	Matchers []savedMatcher `json:"matchers,omitempty"`
}

type savedMatcher struct {
	Tag      string   `json:"tag"`
	Values   []string `json:"values,omitempty"`
	Patterns []string `json:"patterns,omitempty"`
}

func saveDeletion(del store.Deletion) savedDeletion {
	s := savedDeletion{Metric: del.Metric}
	for _, m := range del.Matchers {
		saved := savedMatcher{Tag: m.Tag, Values: m.Values}
		for _, p := range m.Patterns {
			saved.Patterns = append(saved.Patterns, p.String())
		}
		s.Matchers = append(s.Matchers, saved)
	}
	return s
}

func (j *Job) deletion() (store.Deletion, error) {
	del := store.Deletion{Metric: j.Deletion.Metric, Range: model.TimeRange{StartMS: j.StartMS, EndMS: j.EndMS}}
	for _, s := range j.Deletion.Matchers {
		m := model.Matcher{Tag: s.Tag, Values: s.Values}
		for _, text := range s.Patterns {
			p, err := model.NewPattern(text)
			if err != nil {
				return del, err
			}
			m.Patterns = append(m.Patterns, p)
		}
		del.Matchers = append(del.Matchers, m)
	}
	return del, nil
}

// jobs are the delete jobs of a Deleter.
type jobs struct {
	d    *Deleter
	node string

	ctx   context.Context // of all jobs at work
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	running map[string]*Job
	ended   []Job // oldest first
}

func (j *jobs) init(d *Deleter, node string) {
	j.d, j.node, j.running = d, node, map[string]*Job{}
	j.ctx, j.stop = context.WithCancelCause(context.Background())
}

func (j *jobs) close() {
	j.stop(store.ErrClosed)
	j.tasks.Wait()
}

// start makes a job of a delete and waits for it. If ctx ends first the job goes
// on.
func (j *jobs) start(ctx context.Context, del store.Deletion, stampMS int64, steps []rowTimeDelete, rows int) error {
	now := j.d.now().UTC()
	job := &Job{
		ID: fmt.Sprintf("%d-%08x", stampMS, rand.Uint32()), Selector: describe(del), StartMS: del.Range.StartMS, EndMS: del.Range.EndMS,
		StampMS: stampMS, State: JobRunning, Rows: rows, NextMS: del.Range.StartMS, Started: now, Updated: now, Node: j.node,
		Deletion: saveDeletion(del),
	}
	job.NextMS = steps[0].rowTimeMS
	if err := j.save(ctx, job); err != nil {
		return fmt.Errorf("delete from %s: note down the job: %w", del.Metric, err)
	}
	done := make(chan error, 1)
	j.begin(job, func(ctx context.Context) error {
		err := j.work(ctx, job, del, steps)
		done <- err
		return err
	})
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("delete from %s, job %s, which is tried again: %w", del.Metric, job.ID, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete from %s: it goes on as job %s: %w", del.Metric, job.ID, context.Cause(ctx))
	}
}

// begin runs f as the work of a job.
func (j *jobs) begin(job *Job, f func(context.Context) error) {
	j.mu.Lock()
	j.running[job.ID] = job
	j.mu.Unlock()
	j.d.metrics.running.Inc()
	j.tasks.Go(func() {
		defer j.d.metrics.running.Dec()
		j.end(job, f(j.ctx))
	})
}

// end notes how a job ended. One that was stopped by close stays as it is.
func (j *jobs) end(job *Job, err error) {
	closing := j.ctx.Err() != nil
	j.mu.Lock()
	job.Updated = j.d.now().UTC()
	job.State, job.Error = JobDone, ""
	switch {
	case closing && err != nil:
		job.State = JobWaiting
	case err != nil:
		job.State, job.Error = JobFailed, err.Error()
	}
	ended := *job
	delete(j.running, job.ID)
	j.ended = append(j.ended, ended)
	if len(j.ended) > jobsKept {
		j.ended = j.ended[1:]
	}
	j.mu.Unlock()
	if closing && err != nil {
		return // its progress is written down as of a moment ago
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), jobReport)
	defer cancel()
	if err != nil {
		j.d.metrics.jobs.WithLabelValues(JobFailed).Inc()
		j.d.log.Warn("a delete job failed and will be tried again", "job", job.ID, "selector", job.Selector, "error", err)
		_ = j.save(ctx, &ended) // it stays as it was, and is tried again all the same
		return
	}
	j.d.metrics.jobs.WithLabelValues(JobDone).Inc()
	j.d.log.Info("a delete job is done", "job", job.ID, "selector", job.Selector, "rows", job.Rows)
	if err := j.d.ks.Unset(ctx, jobService, jobServiceKey, job.ID); err != nil {
		j.d.log.Warn("a delete job that is done will be done again", "job", job.ID, "error", err)
	}
}

// work does what is left of a job.
func (j *jobs) work(ctx context.Context, job *Job, del store.Deletion, steps []rowTimeDelete) error {
	var mu sync.Mutex
	reported := j.d.now()
	return j.d.run(ctx, del, job.StampMS, steps, func(nextMS int64, rows int) {
		now := j.d.now()
		j.mu.Lock()
		job.NextMS, job.Updated = nextMS, now.UTC()
		job.Done += rows
		state := *job
		j.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		if now.Sub(reported) < jobReport {
			return
		}
		reported = now
		if err := j.save(ctx, &state); err != nil {
			j.d.log.Warn("the progress of a delete job is not written down", "job", job.ID, "error", err)
		}
	})
}

// save writes a job down. In a keyspace without service_index jobs end with the
// process.
func (j *jobs) save(ctx context.Context, job *Job) error {
	if !j.d.ks.Tables.ServiceIndex {
		return nil
	}
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return j.d.ks.Set(ctx, jobService, jobServiceKey, job.ID, string(text))
}

// saved reads the jobs that are written down.
func (j *jobs) saved(ctx context.Context) ([]Job, error) {
	var all []Job
	for id, err := range j.d.ks.Keys(ctx, jobService, jobServiceKey, "") {
		if err != nil {
			return nil, err
		}
		value, err := j.d.ks.Get(ctx, jobService, jobServiceKey, id)
		if err == store.ErrNotFound {
			continue // it was done meanwhile
		}
		if err != nil {
			return nil, err
		}
		job := Job{}
		if err := json.Unmarshal([]byte(value.Text), &job); err != nil || job.ID != id {
			j.d.log.Warn("a delete job can not be read and is left alone", "job", id, "error", err)
			continue
		}
		all = append(all, job)
	}
	return all, nil
}

// Jobs lists the delete jobs of all nodes that are not done, and the last ones
// that ended here, newest first.
func (d *Deleter) Jobs(ctx context.Context) ([]Job, error) {
	var saved []Job
	if d.ks.Tables.ServiceIndex {
		var err error
		if saved, err = d.jobs.saved(ctx); err != nil {
			return nil, err
		}
	}
	d.jobs.mu.Lock()
	defer d.jobs.mu.Unlock()
	known := map[string]bool{}
	var all []Job
	for _, job := range d.jobs.running {
		all, known[job.ID] = append(all, *job), true
	}
	for _, job := range slices.Backward(d.jobs.ended) {
		if !known[job.ID] && job.State == JobDone {
			all, known[job.ID] = append(all, job), true
		}
	}
	for _, job := range saved {
		if known[job.ID] {
			continue
		}
		if job.State == JobRunning && d.now().Sub(job.Updated) > jobSilence {
			job.State = JobWaiting
		}
		all = append(all, job)
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// Resume goes on with jobs that no node works on: those of this node from
// before it was started, and those of nodes that are silent for a minute. It
// returns when they have begun. Call it at the start and each minute.
func (d *Deleter) Resume(ctx context.Context) error {
	if !d.ks.Tables.ServiceIndex {
		return nil
	}
	saved, err := d.jobs.saved(ctx)
	if err != nil {
		return fmt.Errorf("look for delete jobs that were not finished: %w", err)
	}
	for i := range saved {
		job := &saved[i]
		d.jobs.mu.Lock()
		_, running := d.jobs.running[job.ID]
		d.jobs.mu.Unlock()
		silent := d.now().Sub(job.Updated) > jobSilence
		mine := job.Node == d.jobs.node && job.State != JobFailed
		if running || !silent && !mine || d.jobs.ctx.Err() != nil {
			continue
		}
		if err := d.resume(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// resume begins to go on with a job.
func (d *Deleter) resume(ctx context.Context, job *Job) error {
	del, err := job.deletion()
	if err != nil {
		d.log.Warn("a delete job can not be read and is left alone", "job", job.ID, "error", err)
		return nil
	}
	job.Node, job.State, job.Updated = d.jobs.node, JobRunning, d.now().UTC()
	if err := d.jobs.save(ctx, job); err != nil {
		return err
	}
	d.log.Info("a delete job goes on", "job", job.ID, "selector", job.Selector, "rows", job.Rows, "done", job.Done)
	d.jobs.begin(job, func(ctx context.Context) error {
		d.writer.forget()
		steps, err := d.plan(ctx, del)
		if err != nil {
			return err
		}
		steps = slices.DeleteFunc(steps, func(s rowTimeDelete) bool { return s.rowTimeMS < job.NextMS })
		return d.jobs.work(ctx, job, del, steps)
	})
	return nil
}
