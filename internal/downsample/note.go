package downsample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// note adds notes to the list, and marks each of their generations as pending.
func (l *LateList) note(notes []note) (map[*generation]bool, map[*lateTask]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	generations, versions := map[*generation]bool{}, map[*lateTask]uint64{}
	var add func(*target, Span)
	add = func(x *target, s Span) {
		if x.gone { // the task was changed since the target was looked up
			for _, successor := range x.successors {
				add(successor, successor.bucketsOf(s))
			}
			return
		}
		if !generations[x.notes] {
			generations[x.notes] = true
			x.notes.pending.Add(1)
		}
		l.noteLocked(x, s)
		versions[x.task] = x.task.version
	}
	for _, n := range notes {
		add(n.target, n.span)
	}
	return generations, versions
}

// noteLocked notes whole buckets of a target. l.mu must be held.
func (l *LateList) noteLocked(x *target, s Span) {
	var changed bool
	if x.notes.spans, changed = x.notes.spans.Add(s, l.mostLocked()); changed {
		x.task.version++
	}
}

// bucketsOf is the span of the buckets of a target that a span touches.
func (x *target) bucketsOf(s Span) Span {
	return Span{x.grid.Start(s.FromMS), x.grid.Next(s.UntilMS - 1)}
}

// Pause makes runs wait until release is called: all runs that read a metric and take their notes
// from now on.
func (l *LateList) Pause(metric string) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[metric]
	if s == nil {
		return nothing
	}
	var paused []*generation
	for _, x := range s.targets {
		x.notes.pending.Add(1)
		paused = append(paused, x.notes)
	}
	return func() {
		for _, g := range paused {
			g.pending.Done()
		}
	}
}

// keepNotes adds notes to the list. Without a journal it also stores them. The caller
// calls done once the samples of the notes are stored or refused.
func (l *LateList) keepNotes(ctx context.Context, notes []note) (done func(), err error) {
	generations, versions := l.note(notes)
	release := func() {
		for g := range generations {
			g.pending.Done()
		}
	}
	kept := false
	defer func() {
		if !kept { // keep returned an error or panicked: release the runs that wait for these notes
			release()
		}
	}()
	if l.o.Journal == nil {
		if err := l.persistAll(ctx, versions, l.o.Keep); err != nil {
			return nil, err
		}
	}
	kept = true
	return release, nil
}

func (l *LateList) persistAll(ctx context.Context, versions map[*lateTask]uint64, keep Keep) error {
	for t, version := range versions {
		if err := l.persist(ctx, t, version, keep); err != nil {
			return err
		}
	}
	return nil
}

// Persist stores all notes that are not stored yet. With a Journal, it must be called
// before the log is released.
func (l *LateList) Persist(ctx context.Context, keep Keep) error {
	l.mu.RLock()
	versions := l.versionsLocked()
	l.mu.RUnlock()
	return l.persistAll(ctx, versions, keep)
}

func (l *LateList) versionsLocked() map[*lateTask]uint64 {
	versions := map[*lateTask]uint64{}
	for _, t := range l.tasks {
		versions[t] = t.version
	}
	return versions
}

// AllRead is called when all existing tasks are watched, and again after it returned an
// error. It notes the unnoted hours of the journal for these tasks: notes made before a
// crash may be lost, and samples that arrived before the tasks were known have none.
func (l *LateList) AllRead(ctx context.Context) error {
	l.mu.Lock()
	l.unknown = false // later batches find the targets of all tasks, and need no hours
	settled := l.settled || l.o.Journal == nil
	l.mu.Unlock()
	if settled {
		return nil
	}
	l.early.Wait() // a run that takes the notes must see their samples
	h := l.o.Journal.Unnoted()
	if err := l.persistAll(ctx, l.noteJournal(h), l.o.Keep); err != nil {
		return err
	}
	if err := l.settle(ctx, h); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = true
	return nil
}

// noteJournal notes hours of the journal for all targets, and drops the series that no task reads. It
// returns all tasks, since an earlier attempt may have failed to store some.
func (l *LateList) noteJournal(h *Hours) map[*lateTask]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		for _, x := range t.targets {
			l.noteAllLocked(x, h.of(x.metric))
		}
	}
	for _, s := range l.sources {
		l.dropLocked(s)
	}
	for ref, s := range l.refs {
		if len(s.targets) == 0 {
			delete(l.refs, ref)
		}
	}
	return l.versionsLocked()
}

// noteAllLocked notes the buckets of a target that spans touch. l.mu must be held.
func (l *LateList) noteAllLocked(x *target, spans Spans) {
	for _, s := range spans {
		l.noteLocked(x, x.bucketsOf(s))
	}
}

// settle forgets hours after they were noted.
func (l *LateList) settle(ctx context.Context, h *Hours) error {
	if !h.Empty() {
		if err := l.o.Journal.Settle(ctx); err != nil {
			return err
		}
	}
	if l.book == nil {
		return nil
	}
	return l.book.removeUnread()
}

// persist stores a task's spans, unless this version or a newer one is stored.
func (l *LateList) persist(ctx context.Context, t *lateTask, version uint64, keep Keep) error {
	t.storing.Lock()
	defer t.storing.Unlock()
	if t.stored >= version {
		return nil
	}
	l.mu.RLock()
	now, all, gone, task := t.version, t.allLocked(), l.tasks[t.id] != t, t.json
	l.mu.RUnlock()
	var err error
	switch {
	case gone: // the task was deleted
	case l.book != nil:
		err = l.writePage(ctx, t, page{ID: t.id, Task: []byte(task), Late: all}, keep)
	default:
		err = keep(ctx, t.id, all)
	}
	if err == nil {
		t.stored = now
	}
	return err
}

// writePage writes a task's page of the notebook. If that fails, it stores the notes
// with keep: a full disk recovers only if the log is released, and that requires stored
// notes. After a restart, both places are read. t.storing must be held.
func (l *LateList) writePage(ctx context.Context, t *lateTask, p page, keep Keep) error {
	if err := l.book.write(p); err != nil {
		if besideErr := keep(ctx, p.ID, p.Late); besideErr != nil {
			return errors.Join(err, besideErr)
		}
		t.beside = true
		return nil
	}
	if t.beside && keep(ctx, p.ID, nil) == nil { // if keep fails, the old notes stay, and a restart recomputes their buckets needlessly
		t.beside = false
	}
	return nil
}

// allLocked returns a task's spans, by target. LateList.mu must be held.
func (t *lateTask) allLocked() map[string]Spans {
	all := map[string]Spans{}
	for name, x := range t.targets {
		if s := x.allLocked(1 << 30); len(s) > 0 {
			all[name] = s
		}
	}
	return all
}

func (x *target) allLocked(most int) (all Spans) {
	all = append(all, x.taken...)
	for _, s := range x.notes.spans {
		all, _ = all.Add(s, most)
	}
	return all
}

// Take returns the spans of a target that a run has to compute. They stay in the list
// until Done removes them.
func (l *LateList) Take(id, name string) Spans {
	l.mu.Lock()
	x := l.targetLocked(id, name)
	if x == nil {
		l.mu.Unlock()
		return nil
	}
	g := x.notes
	x.taken = x.allLocked(l.mostLocked())
	x.notes = &generation{}
	taken := append(Spans(nil), x.taken...)
	l.mu.Unlock()
	g.wait()
	return taken
}

// targetLocked returns a target, nil if the task or the target is gone. l.mu must be held.
func (l *LateList) targetLocked(id, name string) *target {
	if t := l.tasks[id]; t != nil {
		return t.targets[name]
	}
	return nil
}

// Done removes computed spans from the taken spans of a task, by target.
func (l *LateList) Done(ctx context.Context, id string, computed map[string]Spans) error {
	for name, spans := range computed {
		l.drop(id, name, spans...)
	}
	return l.Settle(ctx, id)
}

// drop is Done for one target, without storing what is left.
func (l *LateList) drop(id, name string, computed ...Span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.targetLocked(id, name)
	if x == nil || len(x.taken) == 0 {
		return
	}
	for _, one := range computed {
		x.taken = x.taken.without(one)
	}
	x.task.version++
}

// Hold adds a span to the taken spans of a target and stores it, so that it is
// recomputed after a crash unless Done has removed it.
func (l *LateList) Hold(ctx context.Context, id, name string, s Span) error {
	l.mu.Lock()
	if x := l.targetLocked(id, name); x != nil {
		x.taken, _ = x.taken.Add(s, l.mostLocked())
		x.task.version++
	}
	l.mu.Unlock()
	return l.Settle(ctx, id)
}

// Include notes spans of a task that come from elsewhere, by target. The task may have changed since the
// spans were noted, here or at their origin. So spans of a target that the task does not have are noted
// for all its targets, as by Watch.
func (l *LateList) Include(ctx context.Context, id string, late map[string]Spans) error {
	l.mu.RLock()
	t := l.tasks[id]
	var notes []note
	if t != nil {
		stray := l.strayLocked(t.targets, late)
		for name, x := range t.targets {
			for _, one := range late[name] {
				notes = append(notes, note{x, one})
			}
			for _, one := range stray {
				notes = append(notes, note{x, x.bucketsOf(one)})
			}
		}
	}
	l.mu.RUnlock()
	if len(notes) == 0 {
		return nil
	}
	done, err := l.keepNotes(ctx, notes)
	if err != nil {
		return err
	}
	done()
	return l.Settle(ctx, id) // the caller then deletes its copy
}

// progressEvery is how often ComputeLate stores what is left. All spans of a task are stored
// together, so storing them after each one would be quadratic in their number. A restart
// recomputes the spans computed since the last store.
const progressEvery = time.Second

// ComputeLate computes the taken spans of a target up to beforeMS. Later spans need no
// work: the run has already computed their buckets. computed is called after each
// span.
func (l *LateList) ComputeLate(ctx context.Context, id, name string, taken Spans, beforeMS int64, b *Batches, computed func()) error {
	if len(taken) == 0 {
		return l.Settle(ctx, id)
	}
	taken = l.widened(id, name, taken)
	if err := l.Done(ctx, id, map[string]Spans{name: {{beforeMS, math.MaxInt64}}}); err != nil {
		return err
	}
	err := l.computeLate(ctx, id, name, taken.before(beforeMS), b, computed)
	return cmp.Or(err, l.Settle(ctx, id))
}

// widened adds to each span the bucket before it, into which the store may have moved the first
// samples of the span: see Options.Stored. It does not add buckets from which samples have
// expired.
func (l *LateList) widened(id, name string, taken Spans) Spans {
	if l.o.Stored == nil {
		return taken
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.targetLocked(id, name)
	if x == nil {
		return taken
	}
	left := x.leftMS.Load()
	if l.o.DefaultMS > 0 {
		left = max(left, l.o.Now().UnixMilli()-l.o.DefaultMS)
	}
	for _, s := range slices.Clone(taken) {
		ms := l.o.Stored(x.metric, s.FromMS)
		if start := x.grid.Start(ms); ms < s.FromMS && start > left {
			s.FromMS = start
			taken, _ = taken.Add(s, l.mostLocked())
			x.taken, _ = x.taken.Add(s, l.mostLocked())
			x.task.version++
		}
	}
	return taken
}

func (l *LateList) computeLate(ctx context.Context, id, name string, taken Spans, b *Batches, computed func()) error {
	stored := l.o.Now()
	for _, one := range taken {
		from := one.FromMS
		err := b.Compute(ctx, one.FromMS, one.UntilMS-1, func(until int64) error {
			l.drop(id, name, Span{from, until})
			from = until
			now := l.o.Now()
			if now.Sub(stored) < progressEvery {
				return nil
			}
			stored = now
			return l.Settle(ctx, id)
		})
		if err != nil {
			return fmt.Errorf("compute the buckets of late points: %w", err)
		}
		computed()
	}
	return nil
}

// Settle stores a task's spans if the last attempt failed.
func (l *LateList) Settle(ctx context.Context, id string) error {
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
	return l.persist(ctx, t, version, l.o.Keep)
}

// Count is how many spans wait, of one target, or of all if id is empty.
func (l *LateList) Count(id, name string) (n int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if id != "" {
		if x := l.targetLocked(id, name); x != nil {
			n = len(x.allLocked(1 << 30))
		}
		return n
	}
	for _, t := range l.tasks {
		for _, x := range t.targets {
			n += len(x.allLocked(1 << 30))
		}
	}
	return n
}

// Series is how many series are watched.
func (l *LateList) Series() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.refs)
}
