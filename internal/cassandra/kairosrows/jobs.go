package kairosrows

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/work"
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

	JobCancelling = "cancelling" // by an operator; the node that works on it has yet to stop
	JobCancelled  = "cancelled"  // no node goes on with it; what was deleted stays so
)

// A Job is a delete that is too large to be waited for.
type Job struct {
	ID       string    `json:"id"`
	Selector string    `json:"selector"`          // for people
	Cluster  string    `json:"cluster,omitempty"` // as DeleterOptions has it
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
	Note     string    `json:"note,omitempty"` // of a job that was cancelled: what became of it

	Deletion savedDeletion `json:"deletion"`
}

// savedDeletion is a store.Deletion as it is kept.
type savedDeletion struct {
	Metric   string         `json:"metric"`
	Matchers []savedMatcher `json:"matchers,omitempty"`
	Only     *savedSeries   `json:"only,omitempty"`
}

// savedSeries is the one series of a metric that a deletion means.
type savedSeries struct {
	Tags map[string]string `json:"tags"`
	Type model.Type        `json:"type"`
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
	if del.Only != nil {
		s.Only = &savedSeries{Tags: maps.Collect(del.Only.Tags.All()), Type: del.Only.Type}
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
	if s := j.Deletion.Only; s != nil {
		var tags []model.Tag
		for name, value := range s.Tags {
			tags = append(tags, model.Tag{Name: name, Value: value})
		}
		sorted, err := model.NewTags(tags...)
		if err != nil {
			return del, err
		}
		del.Only = &model.Series{Metric: del.Metric, Tags: sorted, Type: s.Type}
	}
	return del, nil
}

// jobs are the delete jobs of a Deleter.
type jobs struct {
	d    *Deleter
	node string
	wait time.Duration // of Cancel, for a job to stop

	ctx   context.Context // of all jobs at work
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	running map[string]*runningJob
	ended   []Job // oldest first
}

// A runningJob is one that this process works on.
type runningJob struct {
	job       *Job          // jobs.mu must be held
	cancelled atomic.Bool   // it is to stop
	ended     chan struct{} // closed when it has
}

func (j *jobs) init(d *Deleter, node string) {
	j.d, j.node, j.wait, j.running = d, node, cancelWait, map[string]*runningJob{}
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
		Cluster: j.d.cluster, StampMS: stampMS, State: JobRunning, Rows: rows, NextMS: del.Range.StartMS, Started: now, Updated: now, Node: j.node,
		Deletion: saveDeletion(del),
	}
	job.NextMS = steps[0].rowTimeMS
	if err := j.save(ctx, job); err != nil {
		return fmt.Errorf("delete from %s: note down the job: %w", del.Metric, err)
	}
	done := make(chan error, 1)
	j.begin(job, func(ctx context.Context, r *runningJob) error {
		err := j.work(ctx, r, del, steps)
		done <- err
		return err
	})
	select {
	case err := <-done:
		if errors.Is(err, errCancelled) {
			return &store.InputError{Reason: fmt.Sprintf("delete from %s: job %s was cancelled; what it had deleted stays deleted, GET /admin/deletes says how much", del.Metric, job.ID)}
		}
		if err != nil {
			return fmt.Errorf("delete from %s, job %s, which is tried again: %w", del.Metric, job.ID, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete from %s: it goes on as job %s: %w", del.Metric, job.ID, context.Cause(ctx))
	}
}

// begin runs f as the work of a job.
func (j *jobs) begin(job *Job, f func(context.Context, *runningJob) error) {
	r := &runningJob{job: job, ended: make(chan struct{})}
	j.mu.Lock()
	j.running[job.ID] = r
	j.mu.Unlock()
	j.d.metrics.running.Inc()
	j.tasks.Go(func() {
		defer close(r.ended)
		defer j.d.metrics.running.Dec()
		j.end(job, work.Do("work on a delete job", func() error { return f(j.ctx, r) }))
	})
}

// end notes how a job ended. One that was stopped by close stays as it is.
func (j *jobs) end(job *Job, err error) {
	closing := j.ctx.Err() != nil
	cancelled := errors.Is(err, errCancelled)
	j.mu.Lock()
	job.Updated = j.d.now().UTC()
	job.State, job.Error = JobDone, ""
	switch {
	case cancelled:
		job.setCancelled()
	case closing && err != nil:
		job.State = JobWaiting
	case err != nil:
		job.State, job.Error = JobFailed, err.Error()
	default:
		job.Done = job.Rows // also those of the last seconds before an interruption
	}
	ended := *job
	delete(j.running, job.ID)
	j.ended = append(j.ended, ended)
	if len(j.ended) > jobsKept {
		j.ended = j.ended[1:]
	}
	j.mu.Unlock()
	if ended.State == JobWaiting {
		return // its progress is written down as of a moment ago
	}
	j.d.metrics.jobs.WithLabelValues(ended.State).Inc()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), jobReport)
	defer cancel()
	switch ended.State {
	case JobCancelled:
		j.d.log.Info("a delete job was cancelled", "job", job.ID, "selector", job.Selector, "rows", job.Rows, "done", job.Done)
		_ = j.save(ctx, &ended) // the cancellation itself is written down
	case JobFailed:
		j.d.log.Warn("a delete job failed and will be tried again", "job", job.ID, "selector", job.Selector, "error", err)
		_ = j.save(ctx, &ended) // it stays as it was, and is tried again all the same
	default:
		j.d.log.Info("a delete job is done", "job", job.ID, "selector", job.Selector, "rows", job.Rows)
		if err := j.unset(ctx, jobServiceKey, job.ID); err != nil {
			j.d.log.Warn("a delete job that is done will be done again", "job", job.ID, "error", err)
		}
	}
}

// work does what is left of a job, until it is cancelled.
func (j *jobs) work(ctx context.Context, r *runningJob, del store.Deletion, steps []rowTimeDelete) error {
	reported, looked := j.d.now(), time.Time{}
	return j.d.run(ctx, del, r.job.StampMS, steps, func(nextMS int64, rows int) error {
		now := j.d.now()
		j.mu.Lock()
		r.job.NextMS, r.job.Updated = nextMS, now.UTC()
		r.job.Done += rows
		state := *r.job
		j.mu.Unlock()
		if now.Sub(looked) >= cancelLook {
			looked = now
			j.lookForCancel(ctx, r, state.ID)
		}
		if r.cancelled.Load() && state.Done < state.Rows {
			return errCancelled
		}
		if now.Sub(reported) < jobReport {
			return nil
		}
		reported = now
		if err := j.save(ctx, &state); err != nil {
			j.d.log.Warn("the progress of a delete job is not written down", "job", state.ID, "error", err)
		}
		return nil
	})
}

// save writes a job down.
func (j *jobs) save(ctx context.Context, job *Job) error {
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	return j.set(ctx, jobServiceKey, job.ID, string(text))
}

// saved reads the jobs that are written down.
func (j *jobs) saved(ctx context.Context) ([]Job, error) {
	var all []Job
	for id, err := range j.keys(ctx, jobServiceKey) {
		if err != nil {
			return nil, err
		}
		job, err := j.read(ctx, id)
		switch {
		case err == store.ErrNotFound:
			continue // it was done meanwhile
		case errors.Is(err, errJobText):
			j.d.log.Warn("a delete job cannot be read and is left alone", "job", id, "error", err)
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, job)
	}
	return all, nil
}

var errJobText = errors.New("it is not what is written down of a delete job")

// read reads a job that is written down.
func (j *jobs) read(ctx context.Context, id string) (job Job, err error) {
	value, err := j.get(ctx, jobServiceKey, id)
	if err != nil {
		return job, err
	}
	if err := json.Unmarshal([]byte(value.Text), &job); err != nil || job.ID != id {
		return job, errors.Join(errJobText, err)
	}
	return job, nil
}

// Jobs lists the delete jobs of all nodes that are not done, those that were
// cancelled in the last days, and the last ones that were done here, newest
// first.
func (d *Deleter) Jobs(ctx context.Context) ([]Job, error) {
	cancelled, saved, err := d.jobs.written(ctx)
	if err != nil {
		return nil, err
	}
	d.jobs.mu.Lock()
	defer d.jobs.mu.Unlock()
	known := map[string]bool{}
	var all []Job
	for _, r := range d.jobs.running {
		job := *r.job
		if r.cancelled.Load() || cancelled[job.ID] {
			job.State = JobCancelling
		}
		all, known[job.ID] = append(all, job), true
	}
	for _, job := range slices.Backward(d.jobs.ended) {
		if !known[job.ID] && (job.State == JobDone || job.State == JobCancelled) {
			all, known[job.ID] = append(all, job), true
		}
	}
	for _, job := range saved {
		if !known[job.ID] {
			all = append(all, d.jobs.asListed(job, cancelled[job.ID]))
		}
	}
	slices.SortFunc(all, func(a, b Job) int { return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// asListed is a job that this process does not work on, for people.
func (j *jobs) asListed(job Job, cancelled bool) Job {
	idle := j.idle(&job)
	switch {
	case job.State == JobCancelled:
	case cancelled && idle:
		job.setCancelled() // though nobody has written that down yet
	case cancelled:
		job.State = JobCancelling
	case job.State == JobRunning && idle:
		job.State = JobWaiting
	}
	return job
}

// idle reports whether no node works on a job that is written down, as far as
// one can tell.
func (j *jobs) idle(job *Job) bool {
	return job.State != JobRunning || j.d.now().Sub(job.Updated) > jobSilence
}

// Resume goes on with jobs that no node works on: those of this node from
// before it was started, and those of nodes that are silent for a minute. It
// returns when they have begun. Call it at the start and each minute.
func (d *Deleter) Resume(ctx context.Context) error {
	cancelled, saved, err := d.jobs.written(ctx)
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
		if cancelled[job.ID] || job.State == JobCancelled {
			err = d.jobs.settleCancelled(ctx, job)
		} else {
			err = d.resume(ctx, job)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// resume begins to go on with a job.
func (d *Deleter) resume(ctx context.Context, job *Job) error {
	del, err := job.deletion()
	if err != nil {
		d.log.Warn("a delete job cannot be read and is left alone", "job", job.ID, "error", err)
		return nil
	}
	job.Node, job.State, job.Updated = d.jobs.node, JobRunning, d.now().UTC()
	if err := d.jobs.save(ctx, job); err != nil {
		return err
	}
	d.log.Info("a delete job goes on", "job", job.ID, "selector", job.Selector, "rows", job.Rows, "done", job.Done)
	d.jobs.begin(job, func(ctx context.Context, r *runningJob) error {
		steps, err := d.plan(ctx, d.begin(), del)
		if err != nil {
			return err
		}
		steps = slices.DeleteFunc(steps, func(s rowTimeDelete) bool { return s.rowTimeMS < job.NextMS })
		d.jobs.count(job, steps)
		return d.jobs.work(ctx, r, del, steps)
	})
	return nil
}

// count notes how many rows of a job that goes on are done: all but those that are
// left. The last seconds before an interruption are not written down.
func (j *jobs) count(job *Job, steps []rowTimeDelete) {
	left := 0
	for _, s := range steps {
		left += len(s.rows)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	job.Done = max(job.Done, job.Rows-left)
}
