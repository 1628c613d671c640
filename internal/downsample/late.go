package downsample

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// A Task is computed as a whole, and its notes are stored together.
type Task struct {
	ID      string
	JSON    string            // of which a Parse makes the task again
	Targets map[string]Target // by names that stay the same as long as what is computed does
}

// A Target is computed from the samples of a metric.
type Target struct {
	Metric string
	Grid   Grid
}

// Parse makes a task of its JSON.
type Parse func(text []byte, id string) (Task, error)

// Keep stores the notes of a task, by target, in the place of those that it had. An error
// keeps the samples from being stored that they were noted for.
type Keep func(ctx context.Context, id string, late map[string]Spans) error

// Options are what a LateList is built from.
type Options struct {
	Keep    Keep
	Journal Journal       // whose samples are noted; nil: Keep is called before samples are stored
	Horizon time.Duration // of runs; half of it must be longer than it takes to store a batch
	Most    int           // spans of a target; beyond it the nearest two become one
	Now     func() time.Time
	What    string // a task is, in messages: "roll-up task"

	// Lifetime says how long samples like one that has just come live, in ms from their own time, if
	// they come in time; 0 is for ever. nil: all do.
	Lifetime func(s *store.Sample, nowMS int64) int64

	// DefaultMS is the Lifetime of most samples, 0 for ever. Runs do not go back to complete buckets that
	// begin longer ago. So samples that live longer are noted for these although they come in time.
	DefaultMS int64
}

// A LateList notes which buckets have to be computed again, since samples came in
// that are older than what the next run looks at anyway.
//
//	ingest --- Resolved: series of watched metrics ---> refs
//	       --- Appending: their old samples ----------> generation of a target
//	                                                     |      stored by Keep
//	run of a task <--------- Take -----------------------+
//
// Notes are stored before their samples or, with a Journal, before the samples leave the
// log, so that a crash loses neither. With a Journal, hours are noted as well until all
// tasks are known.
// A run takes the generation that gathers notes and waits until all batches that
// noted something in it are stored or refused; what arrives after that is noted
// in the next generation, even if it is the same bucket. Taken spans stay stored
// until they are computed.
//
// Samples count as old when they are older than half the horizon: a run that
// begins while they are being stored sees them the next time, since it goes back
// by the whole horizon.
//
// A sample is not noted if others of its bucket, which came in time and live as long, have
// expired: computed again, the bucket would be what is left of it.
//
// Runs leave complete buckets alone that begin longer ago than most samples live. Samples that live longer are noted
// for these also if they are not old.
//
// A LateList is an ingest.Observer. All methods may be called by many goroutines at
// once, OpenBook before all others.
type LateList struct {
	keep     Keep
	journal  Journal // nil: notes are stored before samples
	now      func() time.Time
	ageMS    int64
	most     int    // spans of a target
	what     string // a task is
	lifetime func(s *store.Sample, nowMS int64) int64
	usualMS  int64        // lifetime of most samples; 0: for ever
	outlived atomic.Int64 // see Outlived
	book     *notebook    // has the notes; nil: keep has them

	mu      sync.RWMutex
	epoch   uint64 // of refs
	refs    map[store.Ref]*source
	sources map[string]*source // watched metrics
	tasks   map[string]*lateTask

	unknown bool           // there may be tasks that are not watched yet, and have hours noted in the journal
	early   sync.WaitGroup // batches with such hours that are not stored yet
	settled bool           // the hours of the journal are noted
}

// A source is a metric that targets read, or may read while not all are known.
type source struct {
	metric  string
	targets []*target
}

// A lateTask is a task's part of the list. LateList.mu guards all but storing and stored.
type lateTask struct {
	id      string
	json    string // the task, for the notebook
	targets map[string]*target
	version uint64 // moves on with every change
	found   bool   // the task exists; else a notebook has it from before a restart

	storing sync.Mutex // held while it is stored
	stored  uint64     // the version that is; guarded by storing
	beside  bool       // the store has notes that the notebook could not take, or an earlier version has left; guarded by storing
}

// A target is that of a task. LateList.mu guards it.
type target struct {
	task   *lateTask
	metric string
	grid   Grid
	notes  *generation
	taken  Spans
	heirs  []*target // of the same metric, after the task was changed and has this target no more
	gone   bool      // the task has it no more
}

// A generation is what was noted between two takes.
type generation struct {
	spans   Spans
	pending sync.WaitGroup // batches that noted something and are not stored yet
	former  []*generation  // of targets whose heir this one's is
}

// wait returns when all batches that noted something are stored or refused.
func (g *generation) wait() {
	g.pending.Wait()
	for _, f := range g.former {
		f.wait()
	}
}

// NewLateList makes a LateList that watches nothing.
func NewLateList(o Options) *LateList {
	return &LateList{
		keep: o.Keep, journal: o.Journal, now: o.Now, ageMS: o.Horizon.Milliseconds() / 2, most: o.Most, what: o.What, lifetime: o.Lifetime, usualMS: o.DefaultMS,
		refs: map[store.Ref]*source{}, sources: map[string]*source{}, tasks: map[string]*lateTask{}, unknown: o.Journal != nil,
	}
}

// OpenBook has notes kept in files of a directory instead of by Keep, and goes on with
// those that are there, before it is known which tasks exist. After an error Keep is
// used, and for what cannot be written there. There must be a Journal.
func (l *LateList) OpenBook(fs vfs.FS, dir string, parse Parse) error {
	b, err := openNotebook(fs, dir, l.what)
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
	l.journal.AddUnnoted(&h)
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

// Outlived returns how many samples were not noted because other samples of their buckets have
// expired.
func (l *LateList) Outlived() int64 { return l.outlived.Load() }

// HasJournal reports whether there is a Journal.
func (l *LateList) HasJournal() bool { return l.journal != nil }

// HasBook reports whether notes are in files.
func (l *LateList) HasBook() bool { return l.book != nil }

// Watches reports whether Watch was called for a task.
func (l *LateList) Watches(id string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.tasks[id] != nil && l.tasks[id].found
}

// Watch begins to note samples of a task's metrics, or continues for a task whose id it knows.
// stored are the notes that an earlier Keep has stored, none if Watches(id). fresh reports
// whether one of the metrics is new to all tasks: its series must then be resolved again.
func (l *LateList) Watch(ctx context.Context, t Task, stored map[string]Spans) (fresh bool, err error) {
	one, version, fresh := l.add(t, stored, true)
	if l.book != nil && len(stored) > 0 {
		one.storing.Lock()
		one.beside = true
		one.storing.Unlock()
	}
	return fresh, l.persist(ctx, one, version)
}

// add begins to watch a task's metrics, with spans that are known to be late.
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
	var added []*target
	for name, of := range t.Targets {
		x := one.targets[name]
		if x == nil {
			x = &target{task: one, metric: of.Metric, grid: of.Grid, notes: &generation{}}
			added = append(added, x)
		}
		for _, s := range stored[name] {
			x.taken, _ = x.taken.add(s, l.most)
		}
		targets[name] = x
	}
	for name, x := range one.targets {
		if targets[name] == nil {
			l.bequeathLocked(x, added)
		}
	}
	for name, spans := range stored {
		if targets[name] == nil { // a crash came after the task was changed; the metric is not known any more
			for _, x := range targets {
				l.noteAllLocked(x, spans)
			}
		}
	}
	one.targets = targets
	return one, one.version, l.indexLocked()
}

// bequeathLocked notes for new targets of a task what was noted for one that it has no more. l.mu
// must be held.
func (l *LateList) bequeathLocked(x *target, fresh []*target) {
	x.gone = true
	for _, heir := range fresh {
		if heir.metric != x.metric {
			continue
		}
		x.heirs = append(x.heirs, heir)
		heir.notes.former = append(heir.notes.former, x.notes)
		l.noteAllLocked(heir, x.allLocked(l.most))
	}
}

// ForgetOthers ends the watch for tasks of a notebook that do not exist any more.
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

// Forget ends the watch for a task.
func (l *LateList) Forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tasks, id)
	l.indexLocked()
	if l.book != nil {
		l.book.remove(id)
	}
}

// indexLocked derives sources from tasks. l.mu must be held.
func (l *LateList) indexLocked() (fresh bool) {
	for _, s := range l.sources {
		s.targets = nil
	}
	for _, t := range l.tasks {
		for _, x := range t.targets {
			s := l.sources[x.metric]
			if s == nil {
				s, fresh = &source{metric: x.metric}, true
				l.sources[x.metric] = s
			}
			s.targets = append(s.targets, x)
		}
	}
	for metric, s := range l.sources {
		if s.targets == nil && !l.unknown { // refs may lead here still, and find nothing
			delete(l.sources, metric)
		}
	}
	return fresh
}
