package downsample

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// A Task has one or more targets. Their notes are stored together.
type Task struct {
	ID      string
	JSON    string            // from which Parse restores the task
	Targets map[string]Target // by name; a target whose computation changes gets another name
}

// A Target is computed from the samples of a metric.
type Target struct {
	Metric string
	Grid   Grid
}

// Parse restores a task from its JSON.
type Parse func(text []byte, id string) (Task, error)

// Keep replaces the stored notes of a task, by target. If it fails, the samples of the
// notes are not stored.
type Keep func(ctx context.Context, id string, late map[string]Spans) error

type Options struct {
	Keep    Keep
	Journal Journal       // the store of the samples; nil: Keep is called before samples are stored
	Horizon time.Duration // of runs; storing a batch must take less than half of it
	Most    int           // most spans of a target; beyond it the two nearest become one
	Now     func() time.Time
	What    string // what a task is called in messages: "roll-up task"

	// Stored returns the time at which the store keeps a sample of a metric. That time may be
	// earlier than the sample's own, and in the previous bucket. nil: samples keep their times.
	Stored func(metric string, ms int64) int64

	// Lifetime returns how long a sample like s, which arrives at nowMS, would live had
	// it arrived in time: in ms from its own time, 0 for ever. nil: all samples live
	// for ever.
	Lifetime func(s *store.Sample, nowMS int64) int64

	// DefaultMS is the Lifetime of most samples, 0 for ever. Runs do not go back to
	// complete buckets that begin longer ago. So for these buckets, samples that live
	// longer are noted although they arrive in time.
	DefaultMS int64
}

// A LateList notes which buckets have to be recomputed, because samples arrived that
// are older than what the next run reads anyway.
//
//	ingest --- Resolved: series of watched metrics ---> refs
//	       --- Appending: their old samples ----------> generation of a target
//	                                                     |      stored by Keep
//	run of a task <--------- Take -----------------------+
//
// Notes are stored before their samples or, with a Journal, before the samples leave
// the log, so that a crash loses neither. With a Journal, hours are noted as well until
// all tasks are known. A run takes the current generation and waits until all batches
// with notes in it are stored or refused. Later samples are noted in the next
// generation, even in the same bucket. Taken spans stay stored until they are computed.
//
// Samples count as old when they are older than half the horizon. If a run begins while
// younger ones are being stored, the next run sees them, since it goes back by the
// whole horizon.
//
// A sample is not noted if others of its bucket, which arrived in time and live as
// long, have expired: recomputing the bucket would lose them.
//
// Runs do not go back to complete buckets that begin longer ago than most samples live.
// For these buckets, samples that live longer are noted even if they are not old.
//
// A LateList is an ingest.Observer. All methods may be called by many goroutines at
// once, except OpenBook, which must be called before all others.
type LateList struct {
	o        Options
	outlived atomic.Int64 // see Outlived
	book     *notebook    // stores the notes; nil: Keep stores them

	mu      sync.RWMutex // no I/O while it is held: ingest locks it
	epoch   uint64       // of refs
	refs    map[store.Ref]*source
	sources map[string]*source // watched metrics
	tasks   map[string]*lateTask
	watched int // targets of all tasks

	unknown bool           // there may be unwatched tasks, for which the journal gets hours
	early   sync.WaitGroup // batches with hours for the journal that are being stored
	settled bool           // the hours of the journal are noted
}

// A source is a metric that targets read, or may read while not all tasks are known.
type source struct {
	metric  string
	targets []*target
}

// A lateTask is a task's part of the list. LateList.mu guards all fields but the last
// three.
type lateTask struct {
	id      string
	json    string // the task, for the notebook
	targets map[string]*target
	version uint64 // increases with every change
	found   bool   // the task exists; false while only a page of the notebook says so

	storing sync.Mutex // held while the task's spans are stored
	stored  uint64     // the stored version; guarded by storing
	beside  bool       // the store has notes that the notebook could not store, or of an earlier version; guarded by storing
}

// A target is a target of a task. LateList.mu guards all fields but the last.
type target struct {
	task       *lateTask
	metric     string
	grid       Grid
	notes      *generation
	taken      Spans
	successors []*target // once gone: new targets of the task with the same metric
	gone       bool      // the task was changed and no longer has this target

	// leftMS is the start of the last bucket from which samples have expired. Neither this bucket
	// nor any before it is recomputed because of samples in the bucket after it.
	leftMS atomic.Int64
}

// A generation holds the notes between two takes.
type generation struct {
	spans        Spans
	pending      sync.WaitGroup // batches with notes that are being stored
	predecessors []*generation  // generations of the targets that this generation's target replaces
}

// wait returns when all batches with notes in g are stored or refused.
func (g *generation) wait() {
	g.pending.Wait()
	for _, f := range g.predecessors {
		f.wait()
	}
}

// NewLateList makes a LateList that watches nothing.
func NewLateList(o Options) *LateList {
	return &LateList{o: o, refs: map[store.Ref]*source{}, sources: map[string]*source{}, tasks: map[string]*lateTask{}, unknown: o.Journal != nil}
}

// OpenBook stores notes in the files of a directory instead of with Keep, and loads
// the notes of these files, before it is known which tasks exist. Keep is used after
// an error of OpenBook, and for notes that cannot be written to the directory. There
// must be a Journal.
func (l *LateList) OpenBook(fs vfs.FS, dir string, parse Parse) error {
	b, err := openNotebook(fs, dir, l.o.What)
	if err != nil {
		return err
	}
	pages, err := b.pages()
	if err != nil {
		return err
	}
	h, err := b.unread()
	if err != nil {
		return err
	}
	l.o.Journal.AddUnnoted(&h)
	for _, p := range pages {
		t, err := parse(p.Task, p.ID)
		if err != nil {
			return fmt.Errorf("read the task from notes of late points in %s: %w", b.path(p.ID), err)
		}
		l.add(t, p.Late, false)
	}
	l.book = b
	return nil
}

// Outlived returns how many samples were not noted because other samples of their
// buckets have expired.
func (l *LateList) Outlived() int64 { return l.outlived.Load() }

// HasJournal reports whether there is a Journal.
func (l *LateList) HasJournal() bool { return l.o.Journal != nil }

// HasBook reports whether notes are kept in files.
func (l *LateList) HasBook() bool { return l.book != nil }

// Watches reports whether Watch was called for a task.
func (l *LateList) Watches(id string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.tasks[id] != nil && l.tasks[id].found
}

// Watch begins to note samples of a task's metrics, or continues for a task with a
// known id. stored are the notes that Keep stored in an earlier process; it is empty if
// Watches(id). fresh reports whether no task has read one of the metrics before: the
// series of that metric must then be resolved again.
func (l *LateList) Watch(ctx context.Context, t Task, stored map[string]Spans) (fresh bool, err error) {
	one, version, fresh := l.add(t, stored, true)
	if l.book != nil && len(stored) > 0 {
		one.storing.Lock()
		one.beside = true
		one.storing.Unlock()
	}
	return fresh, l.persist(ctx, one, version, l.o.Keep)
}

// add begins to watch a task's metrics, with the spans that are already noted.
func (l *LateList) add(t Task, stored map[string]Spans, found bool) (one *lateTask, version uint64, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.tasks[t.ID]
	if one == nil {
		one = &lateTask{id: t.ID}
		l.tasks[t.ID] = one
	}
	one.found = one.found || found
	if l.book != nil && (one.json != t.JSON || len(stored) > 0) {
		one.version++
	}
	one.json = t.JSON
	targets := map[string]*target{}
	var added, gone []*target
	for name, of := range t.Targets {
		x := one.targets[name]
		if x == nil {
			x = &target{task: one, metric: of.Metric, grid: of.Grid, notes: &generation{}}
			x.leftMS.Store(math.MinInt64)
			added = append(added, x)
		}
		for _, s := range stored[name] {
			x.taken, _ = x.taken.Add(s, l.mostLocked())
		}
		targets[name] = x
	}
	for name, x := range one.targets {
		if targets[name] == nil {
			l.retireLocked(x, added)
			gone = append(gone, x)
		}
	}
	stray := l.strayLocked(targets, stored) // the process crashed after the task was changed
	for _, x := range targets {
		l.noteAllLocked(x, stray)
	}
	one.targets = targets
	fresh = l.readLocked(added) // must precede unreadLocked, which would drop a source that only new targets read
	l.unreadLocked(gone)
	return one, one.version, fresh
}

// strayLocked returns the union of the spans of targets that a task does not have. Their metrics are
// unknown, so the spans concern all targets of the task. l.mu must be held.
func (l *LateList) strayLocked(targets map[string]*target, late map[string]Spans) (stray Spans) {
	for name, spans := range late {
		if targets[name] != nil {
			continue
		}
		for _, s := range spans {
			stray, _ = stray.Add(s, l.mostLocked()) // otherwise the number of spans could reach the product of both bounds: spans and targets
		}
	}
	return stray
}

// retireLocked marks a target that its task no longer has, and notes its spans for
// the task's new targets of the same metric. l.mu must be held.
func (l *LateList) retireLocked(x *target, fresh []*target) {
	x.gone = true
	for _, successor := range fresh {
		if successor.metric != x.metric {
			continue
		}
		x.successors = append(x.successors, successor)
		successor.notes.predecessors = append(successor.notes.predecessors, x.notes)
		l.noteAllLocked(successor, x.allLocked(l.mostLocked()))
	}
}

// ForgetOthers forgets tasks of the notebook that no longer exist.
func (l *LateList) ForgetOthers(exist map[string]bool) {
	l.mu.RLock()
	var gone []string
	for id, t := range l.tasks {
		if !t.found && !exist[id] {
			gone = append(gone, id)
		}
	}
	l.mu.RUnlock()
	for _, id := range gone {
		l.Forget(id)
	}
}

// Forget ends the watch for a task and drops its notes.
func (l *LateList) Forget(id string) {
	l.mu.Lock()
	t := l.tasks[id]
	if t != nil {
		delete(l.tasks, id)
		l.unreadLocked(slices.Collect(maps.Values(t.targets)))
	}
	l.mu.Unlock()
	if l.book == nil {
		return
	}
	if t != nil {
		t.storing.Lock() // a file that is being written now would remain
		defer t.storing.Unlock()
	}
	l.book.remove(id)
}

// readLocked adds new targets to the sources that they read. fresh reports whether a
// source is new. l.mu must be held.
func (l *LateList) readLocked(added []*target) (fresh bool) {
	l.watched += len(added)
	for _, x := range added {
		s := l.sources[x.metric]
		if s == nil {
			s, fresh = &source{metric: x.metric}, true
			l.sources[x.metric] = s
		}
		s.targets = append(s.targets, x)
	}
	return fresh
}

// unreadLocked removes targets that no task has any longer from their sources. l.mu
// must be held.
func (l *LateList) unreadLocked(gone []*target) {
	l.watched -= len(gone)
	metrics := map[string]bool{}
	for _, x := range gone {
		metrics[x.metric] = true
	}
	for metric := range metrics {
		s := l.sources[metric]
		s.targets = slices.DeleteFunc(s.targets, func(x *target) bool { return x.gone || l.tasks[x.task.id] != x.task })
		l.dropLocked(s)
	}
}

// dropLocked removes a source that no target reads, unless there may be unknown tasks.
// References may still point to it. l.mu must be held.
func (l *LateList) dropLocked(s *source) {
	if len(s.targets) == 0 && !l.unknown {
		delete(l.sources, s.metric)
	}
}

// Bounds of the spans of all targets together. Spans take 16 bytes each, in memory and
// as many in the store, and a client chooses how many targets there are.
const (
	spansOfAll = 1 << 20
	spansLeast = 8 // spans of a target, however many targets there are
)

// mostLocked is how many spans a target may have. l.mu must be held.
func (l *LateList) mostLocked() int {
	return min(l.o.Most, max(spansLeast, spansOfAll/max(1, l.watched)))
}
