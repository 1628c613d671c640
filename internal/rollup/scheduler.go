package rollup

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/notify"
	"varve/internal/store"
	"varve/internal/work"
)

// A Store is the part of a store that roll-ups use besides queries and ingest.
type Store interface {
	store.Appender
	store.Viewer
	store.Deleter
	store.KeyValues
}

// Options are what a Scheduler is built from.
type Options struct {
	Store      Store
	Engine     *agg.Engine
	Pipeline   *ingest.Pipeline // results go in here
	Parser     Parser
	Config     Config // must be valid
	Registerer prometheus.Registerer
	Logger     *slog.Logger     // nil: nothing is logged
	Now        func() time.Time // nil: time.Now
	Host       string           // name of this machine, shown in the status

	// Node identifies this node among those that share the store, the same after a
	// restart. Empty: no others share it, and all tasks run here. With Node, Flush
	// returns when all points of the given metrics that were stored before are visible
	// to the other nodes.
	Node  string
	Flush func(ctx context.Context, metrics ...string) error

	// Lease acquires the lease of a name. It returns an error that wraps ErrHeld if another
	// node has it, and nil without an error if leases are not possible in this store. It is
	// used only with Node. A nil Lease means that nodes do not exclude each other.
	Lease func(ctx context.Context, name string, life time.Duration) (Lease, error)

	// NotesDir is a directory of this node for notes of late points. It is used only
	// with Node and a store that is a downsample.Journal. Empty: the notes are in the
	// store.
	NotesFS  vfs.FS
	NotesDir string
}

// A Scheduler stores and runs roll-up tasks. Many goroutines may call its methods at
// once, except Run, which may be called once.
type Scheduler struct {
	store     Store
	engine    *agg.Engine
	pipeline  *ingest.Pipeline
	protocol  *ingest.Protocol
	parser    Parser
	config    Config
	now       func() time.Time
	host      string
	log       *slog.Logger
	metrics   *metrics
	catalogue catalogue
	late      *lateNotes
	shared    *assignments // nil: all tasks run here
	unread    trouble      // reading tasks from the store
	unshared  trouble      // sharing tasks with other nodes
	flush     func(context.Context, ...string) error
	lease     func(context.Context, string, time.Duration) (Lease, error) // nil: no leases
	places    chan struct{}                                               // taken by runs, and by backfills for each batch
	fills     chan struct{}                                               // taken by backfills
	wake      chan struct{}                                               // signals that the schedule has changed
	changing  chan struct{}                                               // taken while a task is checked against the others and stored
	index     *index                                                      // of the tasks in jobs; only the owner of changing may use it

	mu struct {
		sync.Mutex
		jobs   map[string]*job // by task id
		loaded time.Time       // modification time of the tasks in jobs
	}
}

// A job is a scheduled task.
type job struct {
	busy chan struct{} // taken by whatever works on the task, one at a time

	// computing is taken by a run, and by a backfill for each batch. Without it, one
	// of them could read a bucket before a late point arrives, and store its result
	// after the other has stored a result that includes the point.
	computing chan struct{}

	failed, skipped, unsure, unhanded trouble // runs, turns, assignments, handovers

	// Scheduler.mu guards these.
	task   *task
	due    time.Time
	cancel context.CancelFunc // ends the active run; nil if there is none
	own    bool               // the task runs on this node
	fills  map[*filling]struct{}

	loops, overlaps bool // logged: the task reads its own results; it shares series with another one
}

// New makes a Scheduler. It runs no task before Run.
func New(o Options) *Scheduler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Scheduler{
		store: o.Store, engine: o.Engine, pipeline: o.Pipeline, parser: o.Parser, config: o.Config,
		protocol: o.Pipeline.Protocol("rollup"),
		now:      o.Now, host: o.Host, log: o.Logger,
		catalogue: catalogue{o.Store},
		places:    make(chan struct{}, o.Config.MaxConcurrent),
		fills:     make(chan struct{}, maxBackfills),
		wake:      make(chan struct{}, 1),
		changing:  make(chan struct{}, 1),
		index:     newIndex(),
	}
	s.mu.jobs = map[string]*job{}
	node := ""
	if o.Node != "" {
		s.shared = &assignments{
			values: o.Store, node: nodePrefix + o.Node, host: o.Host, participate: o.Config.Participate,
			now: o.Now, log: o.Logger, since: map[string]time.Time{},
		}
		node, s.flush, s.lease = s.shared.node, o.Flush, o.Lease
	}
	s.late = newLateNotes(o.Store, o.Pipeline, node, o.Config, o.Now)
	if node != "" && o.NotesDir != "" && s.late.HasJournal() {
		s.openNotes(o.NotesFS, o.NotesDir)
	}
	s.pipeline.Observe(s.late)
	s.metrics = newMetrics(o.Registerer, s)
	return s
}

// openNotes records late points in a directory. If the directory cannot be used, they
// are recorded in the store.
func (s *Scheduler) openNotes(fs vfs.FS, dir string) {
	err := s.late.OpenBook(fs, dir, func(text []byte, id string) (downsample.Task, error) {
		t, err := parseTask(s.parser, text, id, nil)
		if err != nil {
			return downsample.Task{}, err
		}
		return t.targets(), nil
	})
	if err != nil {
		s.log.Error("late points of roll-ups cannot be recorded on disk; they are recorded in the store", "error", err)
	}
}

// Run runs tasks when they are due until ctx ends. It returns after all runs have
// ended.
func (s *Scheduler) Run(ctx context.Context) {
	var beats <-chan time.Time
	if s.shared != nil {
		defer s.shared.resign() // after all runs have ended
		ticker := time.NewTicker(beatEvery)
		defer ticker.Stop()
		beats = ticker.C
	}
	var runs sync.WaitGroup
	defer runs.Wait()
	poll := time.NewTicker(s.config.PollInterval)
	defer poll.Stop()
	s.Load(ctx)
	if s.shared != nil {
		s.beat(ctx)
	}
	for ctx.Err() == nil {
		s.dispatch(ctx, &runs)
		due := time.NewTimer(s.untilNext())
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-due.C:
		case <-poll.C:
			s.Load(ctx)
		case <-beats:
			s.beat(ctx)
		}
		due.Stop()
	}
}

// untilNext is the time until the next task is due, at most an hour.
func (s *Scheduler) untilNext() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := time.Hour
	for _, j := range s.mu.jobs {
		next = min(next, j.due.Sub(s.now()))
	}
	return max(next, time.Millisecond)
}

// beat shares tasks with other nodes, and ends the runs of tasks that this node no
// longer owns.
func (s *Scheduler) beat(ctx context.Context) {
	err := work.Do("share roll-up tasks", func() error { return s.shared.beat(ctx, s.ids()) })
	s.patiently(ctx, &s.unshared, err, "cannot share roll-up tasks with other nodes; after half a minute, this node runs no task")
	for _, id := range s.ids() {
		s.own(ctx, id, s.shared.owns(id))
	}
}

// own records whether a task runs here.
func (s *Scheduler) own(ctx context.Context, id string, own bool) {
	s.mu.Lock()
	j := s.mu.jobs[id]
	if j == nil || j.own == own {
		s.mu.Unlock()
		return
	}
	t := j.task
	j.own = own
	if !own && j.cancel != nil {
		j.cancel()
	}
	s.mu.Unlock()
	if !own {
		s.log.Info("this node no longer runs the roll-up task", "id", id, "name", t.name)
		return
	}
	s.log.Info("this node now runs the roll-up task", "id", id, "name", t.name)
	var due time.Time
	err := work.Do("read when a roll-up task ran", func() (err error) {
		due, err = s.firstDue(ctx, t)
		return err
	})
	if err != nil {
		due = s.now() // the run meets the same error and reports it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.task == t {
		j.due = due
		s.nudge()
	}
}

func (s *Scheduler) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.mu.jobs))
}

// dispatch starts the runs of all tasks that are due.
func (s *Scheduler) dispatch(ctx context.Context, runs *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, j := range s.mu.jobs {
		if j.due.After(j.task.next(now)) { // the clock was set back, here or on the node that ran the task last
			s.log.Info("the clock was set back; running the roll-up task at once", "id", j.task.id, "name", j.task.name)
			j.due = now
		}
		if j.due.After(now) {
			continue
		}
		j.due = j.task.after(j.due, now)
		select {
		case j.busy <- struct{}{}:
		default:
			s.metrics.runs.WithLabelValues(runSkipped).Inc()
			if n, tell := j.skipped.again(now); tell {
				s.log.Warn("roll-up task is due while its previous run is active; skipping this run", "id", j.task.id, "name", j.task.name, "skipped", n)
			}
			continue
		}
		t := j.task
		execute := s.execute
		if s.shared != nil && !j.own {
			execute = s.handOver
		}
		own, cancel := context.WithCancel(ctx)
		j.cancel = cancel
		runs.Go(func() {
			defer s.release(j)
			defer cancel()
			execute(own, j, t)
		})
	}
}

// release ends the work on a task, and frees j.busy.
func (s *Scheduler) release(j *job) {
	s.mu.Lock()
	j.cancel = nil
	s.mu.Unlock()
	<-j.busy
}

// execute runs a task and counts the outcome.
func (s *Scheduler) execute(ctx context.Context, j *job, t *task) {
	began := false
	defer func() {
		if !began {
			s.metrics.runs.WithLabelValues(runCancelled).Inc()
		}
	}()
	release, err := work.Take(ctx, j.computing)
	if err != nil {
		return
	}
	defer release()
	err = work.Do("get the lease of a roll-up task", func() error {
		return s.underLease(ctx, t.id, true, func(ctx context.Context, held func() bool) error {
			began = true
			s.executeAlone(ctx, j, t, held)
			return context.Cause(ctx)
		})
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("the run of a roll-up task has lost its lease; will retry", "id", t.id, "name", t.name, "error", err)
		s.reschedule(j, t, true)
	}
}

// executeAlone is the part of execute during which no other node computes results of the
// task, as long as held reports true.
func (s *Scheduler) executeAlone(ctx context.Context, j *job, t *task, held func() bool) {
	if err := s.enter(ctx); err != nil {
		s.metrics.runs.WithLabelValues(runCancelled).Inc()
		return
	}
	defer s.leave()
	if own, err := s.confirm(ctx, t); !own {
		s.metrics.runs.WithLabelValues(runCancelled).Inc()
		if err != nil && ctx.Err() == nil {
			s.warn(&j.unsure, "roll-up task does not run: cannot find out whether another node runs it, or has changed it", t, err)
			s.reschedule(j, t, true)
		}
		return
	}
	j.unsure.over()
	began := s.now()
	err := work.Do("run a roll-up task", func() error {
		return s.run(ctx, t, held, func(failed bool) time.Time { return s.reschedule(j, t, failed) })
	})
	s.metrics.seconds.Observe(s.now().Sub(began).Seconds())
	switch {
	case ctx.Err() != nil:
		s.metrics.runs.WithLabelValues(runCancelled).Inc()
	case err != nil:
		s.reschedule(j, t, true) // a second time, since storing the status may have failed
		s.metrics.runs.WithLabelValues(runFailed).Inc()
		s.warn(&j.failed, "roll-up task failed; will retry (see its status)", t, err)
	default:
		s.metrics.runs.WithLabelValues(runOK).Inc()
		j.skipped.over()
		if n := j.failed.over(); n > 0 {
			s.log.Info("roll-up task runs again; computing the buckets that it missed", "id", t.id, "name", t.name, "failures", n)
		}
		s.log.Debug("roll-up task ran", "id", t.id, "name", t.name, "after", s.now().Sub(began))
	}
}

// confirm checks in the store whether this process still owns a task, and whether another process
// has changed or deleted the task. This process reads changes only now and then, and a run of the
// former text would replace results that a backfill computed from the new text. The next reload
// reads a changed task.
func (s *Scheduler) confirm(ctx context.Context, t *task) (own bool, err error) {
	if s.shared == nil {
		return true, nil
	}
	err = work.Do("find out who runs a roll-up task", func() (err error) {
		if own, err = s.shared.confirm(ctx, t.id); err != nil || !own {
			return err
		}
		own, err = s.unchanged(ctx, t)
		return err
	})
	return own && err == nil, err
}

// unchanged reports whether a task is stored as this process knows it.
func (s *Scheduler) unchanged(ctx context.Context, t *task) (bool, error) {
	text, there, err := s.catalogue.get(ctx, configKey, t.id)
	if err != nil || !there || text == t.json {
		return there, err
	}
	stored, err := parseTask(s.parser, []byte(text), t.id, nil) // KairosDB stores other white space
	return err == nil && stored.json == t.json, nil
}

// handOver is what a node does when a task of another node is due: it hands its notes
// of late points over.
func (s *Scheduler) handOver(ctx context.Context, j *job, t *task) {
	err := work.Do("hand over late points", func() error { return s.late.handOver(ctx, t, s.flush) })
	if err == nil {
		j.unhanded.over()
		return
	}
	if ctx.Err() != nil {
		return
	}
	s.warn(&j.unhanded, "cannot hand late points over to the node that runs the roll-up task; keeping them", t, err)
	s.reschedule(j, t, true)
}

// enter takes one of the places for runs.
func (s *Scheduler) enter(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		s.metrics.active.Inc()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Scheduler) leave() {
	s.metrics.active.Dec()
	<-s.places
}

// reschedule moves the next run of a failed task to RetryInterval from now if that is
// earlier. It returns when the task runs next.
func (s *Scheduler) reschedule(j *job, t *task, failed bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again := s.now().Add(s.config.RetryInterval); failed && again.Before(j.due) && j.task == t {
		j.due = again
		s.nudge()
	}
	return j.due
}

// nudge wakes Run, so that it reads the schedule again.
func (s *Scheduler) nudge() { notify.Wake(s.wake) }

// after is the first time after now on the schedule of t that contains due.
func (t *task) after(due, now time.Time) time.Time {
	if next := t.next(due); next.After(now) {
		return next
	}
	return t.next(now) // runs were missed
}

// next is one execution interval after from, by the calendar.
func (t *task) next(from time.Time) time.Time {
	next := time.UnixMilli(agg.Later(from.UnixMilli(), t.interval.Value, t.interval.Unit, time.UTC))
	if soonest := from.Add(minInterval); next.Before(soonest) {
		return soonest
	}
	return next
}

// Load loads the stored tasks, or what has changed since the last time. Before the first Load or
// Run, late points are recorded only by the hour, or not at all, so call Load before points
// arrive.
func (s *Scheduler) Load(ctx context.Context) {
	err := work.Do("read roll-up tasks", func() error { return s.loadChanges(ctx) })
	s.patiently(ctx, &s.unread, err, "roll-up tasks cannot be read; known tasks continue")
}

func (s *Scheduler) loadChanges(ctx context.Context) error {
	modified, err := s.catalogue.modified(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := modified.Equal(s.mu.loaded)
	s.mu.Unlock()
	if !same {
		if err := s.load(ctx, modified); err != nil {
			return err
		}
	}
	return s.late.AllRead(ctx)
}

// load loads the stored tasks. No task may be put or removed meanwhile: load has not
// read a new task and would drop it, and would bring back a removed one.
func (s *Scheduler) load(ctx context.Context, modified time.Time) error {
	release, err := s.change(ctx)
	if err != nil {
		return err
	}
	defer release()
	ids, texts, err := s.catalogue.tasks(ctx)
	if err != nil {
		return err
	}
	invalid := 0
	stored := map[string]bool{}
	for i, id := range ids {
		stored[id] = true
		if known := s.known(id); known != nil && known.json == texts[i] && s.late.Watches(id) {
			continue // unchanged
		}
		t, err := parseTask(s.parser, []byte(texts[i]), id, nil)
		if err != nil {
			invalid++
			s.log.Warn("stored roll-up task cannot be run; replace it", "id", id, "error", errorText(err))
			continue
		}
		due, err := s.firstDue(ctx, t)
		if err != nil {
			return err
		}
		if err := s.watch(ctx, t); err != nil {
			return err
		}
		s.schedule(t, due)
	}
	s.late.ForgetOthers(stored)
	s.metrics.invalid.Set(float64(invalid))
	s.warnOfFlows()
	for _, id := range s.ids() {
		if !stored[id] {
			s.drop(id)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.loaded = modified
	return nil
}

// firstDue is when a task found in the store is due: one interval after its last run, or after it was
// stored if it has never run. If only KairosDB knows when the task was stored, it is due
// one interval after now.
func (s *Scheduler) firstDue(ctx context.Context, t *task) (time.Time, error) {
	st, err := s.catalogue.status(ctx, t.id)
	if err != nil {
		return time.Time{}, err
	}
	if st == nil || st.lastExecution() == 0 {
		marks, err := s.catalogue.watermarks(ctx, t.id)
		return marks.firstRun(t, s.now()), err
	}
	return t.next(time.UnixMilli(st.lastExecution())), nil
}

// watch begins to record late points of a task's metrics.
func (s *Scheduler) watch(ctx context.Context, t *task) error {
	fresh, err := s.late.watch(ctx, t)
	if fresh {
		s.pipeline.ForgetAliases()
	}
	return err
}

// schedule adds or replaces a task. If the task has not changed, its job stays as it
// is. The caller must own s.changing.
func (s *Scheduler) schedule(t *task, due time.Time) {
	s.index.set(t.id, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.mu.jobs[t.id]
	switch {
	case j == nil:
		s.mu.jobs[t.id] = &job{
			busy: make(chan struct{}, 1), computing: make(chan struct{}, 1), fills: map[*filling]struct{}{},
			task: t, due: due, own: s.shared != nil && s.shared.owns(t.id),
		}
	case j.task.json != t.json:
		j.endLocked(t.json)
		j.task, j.due = t, due
	}
	s.nudge()
}

// drop removes a task from the schedule and ends its run. The caller must own s.changing.
func (s *Scheduler) drop(id string) {
	s.mu.Lock()
	if j := s.mu.jobs[id]; j != nil {
		delete(s.mu.jobs, id)
		j.endLocked("")
	}
	s.mu.Unlock()
	s.index.set(id, nil)
	s.late.Forget(id)
	if s.shared != nil {
		s.shared.drop(id)
	}
}

func (s *Scheduler) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.jobs)
}

// countOwn is how many tasks run here.
func (s *Scheduler) countOwn() int {
	if s.shared == nil {
		return s.count()
	}
	return s.shared.count(s.ids())
}

// overdue is how long the task that is furthest behind its schedule has been due.
func (s *Scheduler) overdue() (most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.mu.jobs {
		most = max(most, s.now().Sub(j.due))
	}
	return most
}
