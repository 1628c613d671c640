package remove

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"varve/internal/cassandra/layout"
	"varve/internal/clip"
	"varve/internal/cluster"
	"varve/internal/store"
	"varve/internal/work"
)

// Delete jobs are stored in service_index, so that any node can continue a job whose node has
// died; one node works on a job at a time, see jobs.lease. The stored job includes its write
// timestamp, so samples written while it waits are not affected, and repeating a part of it
// does no harm.
const (
	jobServiceKey = "Deletions"

	// jobReport is how often a job stores its progress.
	jobReport = 10 * time.Second

	// jobSilence is how long a job may store no progress before another node takes it over.
	jobSilence = time.Minute

	// jobsAtOnce is how many jobs this process works on at once; others wait. jobsMost is how
	// many it has in all: a client that starts further ones is refused.
	jobsAtOnce = 8
	jobsMost   = 1000

	// jobsBytes is how much memory the deletions of these jobs may take: a request may have 100,000
	// values of tags. Every job also stores them with its progress.
	jobsBytes = 64 << 20

	// jobsKept is how many ended jobs this process remembers, with their deletions if these take at
	// most endedBytes.
	jobsKept   = 100
	endedBytes = 64 << 10

	// selectorBytes is how long the selector of a job is in lists and in the log.
	selectorBytes = 1024
)

// jobs are the delete jobs of a Deleter.
type jobs struct {
	d    *Deleter
	node string
	wait time.Duration // how long Cancel waits for a job to stop
	look time.Duration // cancelLook, except in tests
	most int           // jobsBytes, except in tests

	leaseLife time.Duration
	leases    *cluster.Leases

	places chan struct{} // taken by jobs that this process works on

	ctx   context.Context // of all running jobs
	stop  context.CancelCauseFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	running map[string]*runningJob
	entered int          // jobs that are about to begin
	bytes   int          // memory of the deletions of both
	ended   []layout.Job // oldest first
}

// A runningJob is a job that this process works on.
type runningJob struct {
	job       *layout.Job        // jobs.mu must be held
	bytes     int                // memory of its deletion
	lease     *cluster.Lease     // nil without leases
	cancelled context.Context    // ends when the job is cancelled; see Deleter.run for how soon it stops
	cancel    context.CancelFunc // cancels the job
	ended     chan struct{}      // closed when it has stopped
	err       error              // why it stopped; set before ended is closed
}

func (j *jobs) init(d *Deleter, node string) {
	j.d, j.node, j.wait, j.look, j.most, j.leaseLife, j.running = d, node, cancelWait, cancelLook, jobsBytes, jobLease, map[string]*runningJob{}
	j.leases, j.places = j.newLeases(), make(chan struct{}, jobsAtOnce)
	j.ctx, j.stop = context.WithCancelCause(context.Background())
}

func (j *jobs) close() {
	j.stop(store.ErrClosed)
	j.tasks.Wait()
}

// start runs a delete as a job and waits for it. If ctx ends first, the job continues.
func (j *jobs) start(ctx context.Context, del store.Deletion, stampMS int64, plan *deletePlan) error {
	now := j.d.now().UTC()
	job := &layout.Job{
		ID: fmt.Sprintf("%d-%08x", stampMS, rand.Uint32()), Selector: clip.Text(describe(del), selectorBytes), StartMS: del.Range.StartMS, EndMS: del.Range.EndMS,
		Cluster: j.d.cluster, StampMS: stampMS, State: layout.JobRunning, Rows: plan.rows, NextMS: plan.steps[0].rowTimeMS, Started: now, Updated: now, Node: j.node,
		Deletion: layout.SaveDeletion(del),
	}
	memory := del.Memory()
	if n, ok := j.enter(memory); !ok {
		// Other metrics of the same request may have been deleted before.
		return fmt.Errorf("delete from %s: %w", del.Metric,
			&store.UnavailableError{Reason: fmt.Sprintf("this server has %d delete jobs that are not done; wait until some are, see GET /admin/deletes, and repeat the delete", n)})
	}
	r, err := j.record(ctx, job, memory, func(ctx context.Context, r *runningJob) error {
		return j.work(ctx, r, del, plan.steps)
	})
	j.leave(memory)
	if err != nil {
		return fmt.Errorf("delete from %s: %w", del.Metric, err)
	}
	store.Recorded(ctx)
	select {
	case <-r.ended:
		err := r.err
		if errors.Is(err, errCancelled) {
			return &store.InputError{Reason: fmt.Sprintf("delete from %s: job %s was cancelled; what it had deleted stays deleted; GET /admin/deletes says how much", del.Metric, job.ID)}
		}
		if err != nil {
			return fmt.Errorf("delete from %s: job %s failed and will be retried: %w", del.Metric, job.ID, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("delete from %s: it continues as job %s: %w", del.Metric, job.ID, context.Cause(ctx))
	}
}

// enter makes room for a job, whose deletion takes this memory, before it begins; the caller must call
// leave once it has begun, or cannot. If there is no room, enter says how many jobs there are.
func (j *jobs) enter(memory int) (n int, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n = len(j.running) + j.entered; n >= jobsMost || n > 0 && j.bytes+memory > j.most {
		return n, false
	}
	j.entered++
	j.bytes += memory
	return n, true
}

func (j *jobs) leave(memory int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entered--
	j.bytes -= memory
}

// record stores a new job and begins it.
func (j *jobs) record(ctx context.Context, job *layout.Job, memory int, f func(context.Context, *runningJob) error) (*runningJob, error) {
	lease, err := j.lease(ctx, job.ID, false)
	if err != nil {
		return nil, fmt.Errorf("get the lease of the job: %w", err)
	}
	if err := j.save(ctx, job); err != nil {
		return nil, fmt.Errorf("record the job: %w", err)
	}
	return j.begin(job, memory, lease, f), nil
}

// begin runs f as the work of a job, whose deletion takes this memory, under its lease.
func (j *jobs) begin(job *layout.Job, memory int, lease *cluster.Lease, f func(context.Context, *runningJob) error) *runningJob {
	r := &runningJob{job: job, bytes: memory, lease: lease, ended: make(chan struct{})}
	r.cancelled, r.cancel = context.WithCancel(context.Background())
	j.mu.Lock()
	j.running[job.ID] = r
	j.bytes += r.bytes
	j.mu.Unlock()
	j.d.metrics.running.Inc()
	j.tasks.Go(func() {
		defer close(r.ended)
		defer j.d.metrics.running.Dec()
		defer r.cancel()
		err := underLease(j.ctx, lease, func(ctx context.Context) error {
			r.err = lostOr(ctx, work.Do("work on a delete job", func() error { return j.inTurn(ctx, r, f) }))
			j.end(r)
			return nil
		})
		if err != nil {
			j.d.log.Info("the lease of a delete job could not be released; it will expire", "job", job.ID, "error", err)
		}
	})
	return r
}

// inTurn runs f once this process works on few enough other jobs. Until then it records at
// intervals that the job is not abandoned, and only then checks whether it was cancelled: a
// thousand jobs may wait.
func (j *jobs) inTurn(ctx context.Context, r *runningJob, f func(context.Context, *runningJob) error) error {
	report := time.NewTicker(jobReport)
	defer report.Stop()
	for {
		select {
		case j.places <- struct{}{}:
			defer func() { <-j.places }()
			return j.watched(ctx, r, f)
		case <-r.cancelled.Done():
			return errCancelled
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-report.C:
		}
		j.mu.Lock()
		r.job.Updated = j.d.now().UTC()
		state := *r.job
		j.mu.Unlock()
		j.lookForCancel(ctx, r, state.ID)
		if r.lease != nil && r.lease.Check() != nil {
			return errLost
		}
		if err := j.save(ctx, &state); err != nil {
			j.d.log.Warn("could not record that a delete job is waiting", "job", state.ID, "error", err)
		}
	}
}

// end records how a job ended. The record of a job that was stopped by close, or whose lease is
// lost, remains unchanged.
func (j *jobs) end(r *runningJob) {
	job, err := r.job, r.err
	closing := j.ctx.Err() != nil
	cancelled := errors.Is(err, errCancelled)
	j.mu.Lock()
	job.Updated = j.d.now().UTC()
	job.State, job.Error = layout.JobDone, ""
	switch {
	case cancelled:
		job.SetCancelled()
	case closing && err != nil || errors.Is(err, errLost):
		job.State = layout.JobWaiting
	case err != nil:
		job.State, job.Error = layout.JobFailed, err.Error()
	default:
		job.Done = job.Rows // including rows done in the last seconds before an interruption
	}
	ended := *job
	delete(j.running, job.ID)
	j.bytes -= r.bytes
	listed := ended
	if r.bytes > endedBytes {
		listed.Deletion = layout.SavedDeletion{Metric: job.Deletion.Metric} // its selector is left
	}
	j.ended = append(j.ended, listed)
	if len(j.ended) > jobsKept {
		j.ended = j.ended[1:]
	}
	j.mu.Unlock()
	if errors.Is(err, errLost) {
		j.d.log.Warn("a delete job has lost its lease; this node or another one will continue it", "job", job.ID, "selector", job.Selector)
	}
	if ended.State == layout.JobWaiting {
		return // its last stored progress is recent
	}
	j.d.metrics.jobs.WithLabelValues(ended.State).Inc()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.ctx), jobReport)
	defer cancel()
	switch ended.State {
	case layout.JobCancelled:
		j.d.log.Info("a delete job was cancelled", "job", job.ID, "selector", job.Selector, "rows", job.Rows, "done", job.Done)
		if j.d.withdraw(ctx, &ended) == nil {
			_ = j.save(ctx, &ended)
		} // on failure, the cancellation itself is stored already, and Resume repeats this
	case layout.JobFailed:
		j.d.log.Warn("a delete job failed; will retry", "job", job.ID, "selector", job.Selector, "error", err)
		_ = j.save(ctx, &ended) // even if this fails, the job is retried
	default:
		j.d.log.Info("delete job finished", "job", job.ID, "selector", job.Selector, "rows", job.Rows)
		if err := j.unset(ctx, jobServiceKey, job.ID); err != nil {
			j.d.log.Warn("delete job finished but not recorded; a node will repeat it (harmless)", "job", job.ID, "error", err)
		}
	}
}

// work performs the rest of a job, until it is cancelled.
func (j *jobs) work(ctx context.Context, r *runningJob, del store.Deletion, steps []rowTimeDelete) error {
	reported := j.d.now()
	return j.d.run(ctx, del, r.job.StampMS, restingPace(j.d.cfg.Parallel), r.cancelled, steps, func(nextMS int64, rows int) error {
		now := j.d.now()
		j.mu.Lock()
		r.job.NextMS, r.job.Updated = nextMS, now.UTC()
		r.job.Done += rows
		state := *r.job
		j.mu.Unlock()
		if r.cancelled.Err() != nil && state.Done < state.Rows {
			return errCancelled
		}
		if now.Sub(reported) < jobReport {
			return nil
		}
		reported = now
		if r.lease != nil && r.lease.Check() != nil {
			return errLost // another node may have stored its progress
		}
		if err := j.save(ctx, &state); err != nil {
			j.d.log.Warn("the progress of a delete job could not be recorded", "job", state.ID, "error", err)
		}
		return nil
	})
}

// save stores a job.
func (j *jobs) save(ctx context.Context, job *layout.Job) error {
	text, err := textOf(job)
	if err != nil {
		return err
	}
	return j.set(ctx, jobServiceKey, job.ID, text)
}

// saved reads the stored jobs.
func (j *jobs) saved(ctx context.Context) ([]layout.Job, error) {
	var all []layout.Job
	for id, err := range j.keys(ctx, jobServiceKey) {
		if err != nil {
			return nil, err
		}
		job, err := j.read(ctx, id)
		switch {
		case err == store.ErrNotFound:
			continue // it has finished meanwhile
		case errors.Is(err, errJobText):
			j.d.log.Warn("a delete job cannot be read; ignoring it", "job", id, "error", err)
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, job)
	}
	return all, nil
}

var errJobText = errors.New("it is not the record of a delete job")

// read reads a stored job.
func (j *jobs) read(ctx context.Context, id string) (job layout.Job, err error) {
	value, err := j.get(ctx, jobServiceKey, id)
	if err != nil {
		return job, err
	}
	if err := json.Unmarshal([]byte(value.Text), &job); err != nil || job.ID != id {
		return job, errors.Join(errJobText, err)
	}
	return job, nil
}

// Jobs lists the unfinished delete jobs of all nodes, recently cancelled ones, and the last
// jobs that ended in this process, newest first.
func (d *Deleter) Jobs(ctx context.Context) ([]layout.Job, error) {
	cancelled, saved, err := d.jobs.written(ctx)
	if err != nil {
		return nil, err
	}
	d.jobs.mu.Lock()
	defer d.jobs.mu.Unlock()
	known := map[string]bool{}
	var all []layout.Job
	for _, r := range d.jobs.running {
		job := *r.job
		if r.cancelled.Err() != nil || cancelled[job.ID] {
			job.State = layout.JobCancelling
		}
		all, known[job.ID] = append(all, job), true
	}
	for _, job := range slices.Backward(d.jobs.ended) {
		if !known[job.ID] && (job.State == layout.JobDone || job.State == layout.JobCancelled) {
			all, known[job.ID] = append(all, job), true
		}
	}
	for _, job := range saved {
		if !known[job.ID] {
			all = append(all, d.jobs.asListed(job, cancelled[job.ID]))
		}
	}
	slices.SortFunc(all, func(a, b layout.Job) int { return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// asListed returns a job of another process as it is shown to people.
func (j *jobs) asListed(job layout.Job, cancelled bool) layout.Job {
	idle := j.idle(&job)
	switch {
	case job.State == layout.JobCancelled:
	case cancelled && idle:
		job.SetCancelled() // no node has recorded that yet
	case cancelled:
		job.State = layout.JobCancelling
	case job.State == layout.JobRunning && idle:
		job.State = layout.JobWaiting
	}
	return job
}

// idle reports whether no node works on a stored job, as far as can be determined.
func (j *jobs) idle(job *layout.Job) bool {
	return job.State != layout.JobRunning || j.silent(job)
}

// silent reports whether a job's node has stored no progress for jobSilence. A time far in the
// future comes from a wrong clock, and is not waited for.
func (j *jobs) silent(job *layout.Job) bool {
	return j.d.now().Sub(job.Updated).Abs() > jobSilence
}

// free reports whether this node may continue a job according to its record: the job's node is
// silent, or was this node before a restart.
func (j *jobs) free(job *layout.Job) bool {
	return j.silent(job) || job.Node == j.node && job.State != layout.JobFailed
}

// Resume continues jobs that no node works on: those of this node from before its start, and
// those of nodes that have been silent for jobSilence. It returns when they have begun. It must
// be called at the start and every minute: jobs for which this process has no room wait for a later
// call, or for another node.
func (d *Deleter) Resume(ctx context.Context) error {
	cancelled, saved, err := d.jobs.written(ctx)
	if err != nil {
		return fmt.Errorf("look for unfinished delete jobs: %w", err)
	}
	var others []*layout.Job // cancelled ones: the record of a delete cannot be withdrawn while a data centre is down
	for i := range saved {
		job := &saved[i]
		d.jobs.mu.Lock()
		_, running := d.jobs.running[job.ID]
		d.jobs.mu.Unlock()
		switch {
		case running || !d.jobs.free(job) || d.jobs.ctx.Err() != nil:
		case cancelled[job.ID] || job.State == layout.JobCancelled:
			others = append(others, job)
		default:
			if err := d.resume(ctx, job); err != nil {
				return err
			}
		}
	}
	for _, job := range others {
		if err := d.jobs.settleCancelled(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// resume continues a job, unless another node works on it.
func (d *Deleter) resume(ctx context.Context, job *layout.Job) error {
	lease, err := d.jobs.lease(ctx, job.ID, job.Node == d.jobs.node)
	if errors.As(err, new(*cluster.HeldError)) || errors.Is(err, cluster.ErrChanged) {
		d.log.Debug("another node works on a delete job", "job", job.ID, "because", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get the lease of delete job %s: %w", job.ID, err)
	}
	begun, err := d.resumeUnder(ctx, lease, job.ID)
	if !begun && lease != nil {
		err = errors.Join(err, lease.Release(ctx))
	}
	return err
}

// resumeUnder resumes a job whose lease this process has, and reports whether it did. The
// previous holder of the lease may have ended the job in the meantime, or there is no room for it.
func (d *Deleter) resumeUnder(ctx context.Context, lease *cluster.Lease, id string) (begun bool, err error) {
	read, err := d.jobs.read(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !d.jobs.free(&read) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	job := &read
	del, err := job.Means()
	if err != nil {
		d.log.Warn("a delete job cannot be read; ignoring it", "job", job.ID, "error", err)
		return false, nil
	}
	memory := del.Memory()
	if _, ok := d.jobs.enter(memory); !ok {
		return false, nil
	}
	defer d.jobs.leave(memory)
	job.Node, job.State, job.Updated = d.jobs.node, layout.JobRunning, d.now().UTC()
	if err := d.jobs.save(ctx, job); err != nil {
		return false, err
	}
	d.log.Info("a delete job continues", "job", job.ID, "selector", job.Selector, "rows", job.Rows, "done", job.Done)
	d.jobs.begin(job, memory, lease, func(ctx context.Context, r *runningJob) error {
		del := del
		del.Range.StartMS = max(del.Range.StartMS, job.NextMS) // earlier row times are done
		plans, err := d.plan(ctx, []store.Deletion{del})
		if err != nil {
			return err
		}
		d.jobs.count(job, plans[0].rows)
		return d.jobs.work(ctx, r, del, plans[0].steps)
	})
	return true, nil
}

// count corrects how many rows of a resumed job are done: all except those that are left. The
// progress of the last seconds before an interruption was not stored.
func (j *jobs) count(job *layout.Job, left int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	job.Done = max(job.Done, job.Rows-left)
}
