package rollup

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"varve/internal/ingest"
	"varve/internal/kairos/agg"
	"varve/internal/store"
)

// A lateList notes which buckets have to be computed again, since points came in
// that are older than what the next run looks at anyway.
//
//	ingest --- Resolved: series of watched metrics ---> refs
//	       --- Appending: their old points -----------> generation of a target
//	                                                     |      stored in Late
//	run of a task <--------- take -----------------------+
//
// What is noted is stored before the points are, so that a crash loses neither.
// A run takes the generation that gathers notes and waits until all batches that
// noted something in it are stored or refused; what arrives after that is noted
// in the next generation, even if it is the same bucket. Taken spans stay stored
// until they are computed.
//
// Points count as old when they are older than half the horizon: a run that
// begins while they are being stored sees them the next time, since it goes back
// by the whole horizon.
type lateList struct {
	catalogue catalogue
	now       func() time.Time
	ageMS     int64
	most      int       // spans of a target
	node      string    // whose notes these are, where several nodes note; else empty
	book      *notebook // has the notes; nil: the catalogue has them

	mu      sync.RWMutex
	epoch   uint64 // of refs
	refs    map[store.Ref]*source
	sources map[string]*source // watched metrics
	tasks   map[string]*lateTask

	unread   *unread // notes for tasks that are not known yet; nil: all are known
	settling *unread // such notes that are not handed to the tasks yet
}

// A source is a metric that roll-ups read, or may read while not all are known.
type source struct {
	metric  string
	targets []*target
}

// A lateTask is a task's part of the list. lateList.mu guards version.
type lateTask struct {
	id      string
	json    string             // the task, for the notebook
	targets map[string]*target // by rollup.keys
	version uint64             // moves on with every change
	found   bool               // the store has the task; else a notebook has it from before a restart

	storing sync.Mutex // held while it is stored
	stored  uint64     // the version that is; guarded by storing
}

// A target is one metric of a roll-up. lateList.mu guards it.
type target struct {
	task   *lateTask
	metric string
	grid   *agg.Grid
	notes  *generation
	taken  spans
	blind  bool // there may be late points that were noted as unread
}

// A generation is what was noted between two takes.
type generation struct {
	spans   spans
	pending sync.WaitGroup // batches that noted something and are not stored yet
}

func newLateList(c catalogue, config Config, now func() time.Time) *lateList {
	return &lateList{
		catalogue: c, now: now, ageMS: config.LateHorizon.Milliseconds() / 2, most: config.MaxLateSpans,
		refs: map[store.Ref]*source{}, sources: map[string]*source{}, tasks: map[string]*lateTask{},
	}
}

// Watch has the late points noted that come in through a pipeline while no
// scheduler runs. The next scheduler on the store computes their buckets.
func Watch(ctx context.Context, s Store, p *ingest.Pipeline, parser Parser, config Config) error {
	l := newLateList(catalogue{s}, config, time.Now)
	ids, texts, err := l.catalogue.tasks(ctx)
	if err != nil {
		return err
	}
	for i, id := range ids {
		t, err := parseTask(parser, []byte(texts[i]), id, nil)
		if err != nil {
			continue // the server's log and metrics say so
		}
		if _, err := l.watch(ctx, t); err != nil {
			return err
		}
	}
	p.Observe(l)
	return nil
}

// watch begins to note points of a task's metrics, or goes on with what a task
// of this id has asked for before. It reports whether a metric is new.
func (l *lateList) watch(ctx context.Context, t *task) (fresh bool, err error) {
	l.mu.RLock()
	known := l.tasks[t.id] != nil && l.tasks[t.id].found
	l.mu.RUnlock()
	var stored map[string]spans
	if !known {
		if stored, err = l.catalogue.late(ctx, lateKey, l.keyOf(t.id)); err != nil {
			return false, err
		}
	}
	one, version, fresh := l.add(t, stored, true)
	if l.book == nil {
		return fresh, nil
	}
	if err := l.persist(ctx, one, version); err != nil {
		return fresh, err
	}
	if len(stored) > 0 { // an earlier version has noted it there
		return fresh, l.catalogue.unset(ctx, lateKey, l.keyOf(t.id))
	}
	return fresh, nil
}

// add begins to watch a task's metrics, with spans that are known to be late.
func (l *lateList) add(t *task, stored map[string]spans, found bool) (one *lateTask, version uint64, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one = l.tasks[t.id]
	if one == nil {
		one = &lateTask{id: t.id}
		l.tasks[t.id] = one
	}
	one.found = one.found || found
	if l.book != nil && (one.json != t.json || len(stored) > 0) {
		one.version++
	}
	one.json = t.json
	targets := map[string]*target{}
	for i := range t.rollups {
		for k, key := range t.rollups[i].keys {
			x := one.targets[key]
			if x == nil {
				x = &target{task: one, metric: t.rollups[i].source[k], grid: t.rollups[i].grids[k], notes: &generation{}, blind: l.unread != nil}
			}
			for _, s := range stored[key] {
				x.taken, _ = x.taken.add(s, l.most)
			}
			targets[key] = x
		}
	}
	one.targets = targets
	return one, one.version, l.indexLocked()
}

// openBook goes on with the notes of a notebook, before the store is asked which
// tasks there are.
func (l *lateList) openBook(b *notebook, parse func(text []byte, id string) (*task, error)) (err error) {
	defer func() {
		if err != nil {
			l.unread = nil // there is no book for it
		}
	}()
	pages, err := b.pages()
	if err != nil {
		return err
	}
	u, err := b.readUnread()
	if err != nil {
		return err
	}
	if len(u.spans) > 0 {
		l.unread = u // these tasks, too, may not have been given what is in it
	}
	for _, p := range pages {
		t, err := parse(p.Task, p.ID)
		if err != nil {
			return fmt.Errorf("read notes of late points from %s: the task: %w", b.path(p.ID), err)
		}
		l.add(t, p.Late, false)
	}
	l.book, l.unread = b, u
	return nil
}

// forgetOthers ends the watch for tasks of a notebook that the store does not have
// any more.
func (l *lateList) forgetOthers(stored map[string]bool) {
	l.mu.RLock()
	var gone []string
	for id, t := range l.tasks {
		if !t.found && !stored[id] {
			gone = append(gone, id)
		}
	}
	l.mu.RUnlock()
	for _, id := range gone {
		l.forget(id)
	}
}

// forget ends the watch for a task.
func (l *lateList) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tasks, id)
	l.indexLocked()
	if l.book != nil {
		l.book.remove(id)
	}
}

// indexLocked derives sources from tasks. l.mu must be held.
func (l *lateList) indexLocked() (fresh bool) {
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
		if s.targets == nil && l.unread == nil { // refs may lead here still, and find nothing
			delete(l.sources, metric)
		}
	}
	return fresh
}

// Resolved implements ingest.Observer.
func (l *lateList) Resolved(epoch uint64, ref store.Ref, metric string) {
	l.mu.RLock()
	s := l.sources[metric]
	known := s == nil && l.unread == nil || epoch < l.epoch || s != nil && l.epoch == epoch && l.refs[ref] == s // what is appended with an older epoch is refused
	l.mu.RUnlock()
	if known {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch < l.epoch {
		return
	}
	if epoch > l.epoch {
		l.epoch = epoch
		clear(l.refs)
	}
	if s = l.sources[metric]; s == nil {
		if l.unread == nil {
			return
		}
		s = &source{metric: metric}
		l.sources[metric] = s
	}
	l.refs[ref] = s
}

// A note is a bucket that a batch has points for.
type note struct {
	target *target
	span   span
}

func nothing() {}

// Appending implements ingest.Observer.
func (l *lateList) Appending(ctx context.Context, b *store.Batch) (done func(), err error) {
	before := l.now().UnixMilli() - l.ageMS
	first := 0
	for first < len(b.Samples) && b.Samples[first].TimeMS >= before {
		first++
	}
	if first == len(b.Samples) {
		return nothing, nil
	}
	notes, unread := l.notes(b, first, before)
	if len(notes) == 0 && len(unread) == 0 {
		return nothing, nil
	}
	noted, err := l.noteUnread(unread)
	if err != nil {
		return nil, err
	}
	if noted == nil { // the tasks became known meanwhile
		notes, _ = l.notes(b, first, before)
		noted = nothing
	}
	generations, versions := l.note(notes)
	done = func() {
		noted()
		for g := range generations {
			g.pending.Done()
		}
	}
	for t, version := range versions {
		if err := l.persist(ctx, t, version); err != nil {
			done()
			return nil, err
		}
	}
	return done, nil
}

// notes finds the buckets of a batch's old samples, and the hours of those for tasks
// that are not known.
func (l *lateList) notes(b *store.Batch, first int, before int64) (notes []note, unread []unreadNote) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.refs) == 0 || l.epoch != b.Epoch {
		return nil, nil
	}
	var lastRef store.Ref
	var last *source
	for _, s := range b.Samples[first:] {
		if s.TimeMS >= before {
			continue
		}
		if s.Ref != lastRef || last == nil {
			lastRef, last = s.Ref, l.refs[s.Ref]
		}
		if last == nil {
			continue
		}
		if l.unread != nil {
			unread = unreadOf(unread, last.metric, s.TimeMS)
		}
		for _, x := range last.targets {
			notes = noteOf(notes, x, s.TimeMS)
		}
	}
	return notes, unread
}

// noteOf adds the bucket of a time. Neighbouring samples mostly share one, or
// are in one that follows.
func noteOf(notes []note, x *target, ms int64) []note {
	var near *note
	for i := len(notes) - 1; i >= 0 && near == nil; i-- {
		if notes[i].target == x {
			near = &notes[i]
		}
	}
	if near != nil && near.span.fromMS <= ms && ms < near.span.untilMS {
		return notes
	}
	bucket := span{x.grid.Start(ms), x.grid.Next(ms)}
	switch {
	case near != nil && bucket.fromMS == near.span.untilMS:
		near.span.untilMS = bucket.untilMS
	case near != nil && bucket.untilMS == near.span.fromMS:
		near.span.fromMS = bucket.fromMS
	default:
		notes = append(notes, note{x, bucket})
	}
	return notes
}

// note takes notes into the list, and each generation as pending.
func (l *lateList) note(notes []note) (map[*generation]bool, map[*lateTask]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	generations, versions := map[*generation]bool{}, map[*lateTask]uint64{}
	for _, n := range notes {
		g, t := n.target.notes, n.target.task
		if !generations[g] {
			generations[g] = true
			g.pending.Add(1)
		}
		var changed bool
		if g.spans, changed = g.spans.add(n.span, l.most); changed {
			t.version++
		}
		versions[t] = t.version
	}
	return generations, versions
}

// persist stores a task's spans, unless a version at least as new is stored.
func (l *lateList) persist(ctx context.Context, t *lateTask, version uint64) error {
	t.storing.Lock()
	defer t.storing.Unlock()
	if t.stored >= version {
		return nil
	}
	l.mu.RLock()
	now, all, gone, task := t.version, t.allLocked(), l.tasks[t.id] != t, t.json
	l.mu.RUnlock()
	switch {
	case gone: // the task was deleted
	case l.book != nil:
		if err := l.book.write(page{ID: t.id, Task: []byte(task), Late: all}); err != nil {
			return err
		}
	case len(all) == 0:
		if err := l.catalogue.unset(ctx, lateKey, l.keyOf(t.id)); err != nil {
			return err
		}
	default:
		if err := l.catalogue.set(ctx, lateKey, l.keyOf(t.id), marshalSpans(all)); err != nil {
			return err
		}
	}
	t.stored = now
	return nil
}

// allLocked returns a task's spans, by key of the roll-up's metric. lateList.mu
// must be held.
func (t *lateTask) allLocked() map[string]spans {
	all := map[string]spans{}
	for key, x := range t.targets {
		if s := x.allLocked(1 << 30); len(s) > 0 {
			all[key] = s
		}
	}
	return all
}

// marshalSpans writes spans as they are stored.
func marshalSpans(all map[string]spans) string {
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // numbers always marshal
	}
	return string(text)
}

func (x *target) allLocked(most int) (all spans) {
	all = append(all, x.taken...)
	for _, s := range x.notes.spans {
		all, _ = all.add(s, most)
	}
	return all
}

// take returns the spans of a target that a run has to compute. They stay in the
// list until they are done.
func (l *lateList) take(id, key string) spans {
	l.mu.Lock()
	t := l.tasks[id]
	if t == nil || t.targets[key] == nil {
		l.mu.Unlock()
		return nil
	}
	x := t.targets[key]
	g := x.notes
	x.taken = x.allLocked(l.most)
	x.notes = &generation{}
	taken := append(spans(nil), x.taken...)
	l.mu.Unlock()
	g.pending.Wait()
	return taken
}

// done removes a span that a run has computed.
func (l *lateList) done(ctx context.Context, id, key string, computed span) error {
	l.mu.Lock()
	t := l.tasks[id]
	if t == nil || t.targets[key] == nil || len(t.targets[key].taken) == 0 {
		l.mu.Unlock()
		return nil
	}
	x := t.targets[key]
	x.taken = x.taken.without(computed)
	t.version++
	version := t.version
	l.mu.Unlock()
	return l.persist(ctx, t, version)
}

// settle stores a task's spans if the last attempt failed.
func (l *lateList) settle(ctx context.Context, id string) error {
	l.mu.RLock()
	t := l.tasks[id]
	version := uint64(0)
	if t != nil {
		version = t.version
	}
	l.mu.RUnlock()
	if t == nil {
		return nil
	}
	return l.persist(ctx, t, version)
}

// count is how many spans wait, of one target or of all.
func (l *lateList) count(id, key string) (n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for taskID, t := range l.tasks {
		for k, x := range t.targets {
			if id == "" || taskID == id && k == key {
				n += len(x.allLocked(1 << 30))
			}
		}
	}
	return n
}

// series is how many series are watched.
func (l *lateList) series() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.refs)
}

var _ ingest.Observer = (*lateList)(nil)
