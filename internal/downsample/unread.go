package downsample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"varve/internal/safefile"
	"varve/internal/store"
)

// unread are the notes of late points that came before it was known which tasks exist: a
// node that is started while their store is away does not know all tasks, and none in a
// new data directory. They are kept by metric, and become notes of the targets that
// nobody could note for once the tasks are read.
//
// They are coarse, and bounded: what is noted too much is only computed again.
type unread struct {
	pending sync.WaitGroup // batches that noted something and are not stored yet

	// Guarded by LateList.mu.
	hours   Hours
	version uint64

	storing sync.Mutex
	stored  uint64 // guarded by storing
}

const unreadName = "unread" // no page: see notebook.pages

// An unreadNote is a span of a metric that a batch has points for.
type unreadNote struct {
	metric string
	span   Span
}

// unreadOf adds the hour of a time, unless it was the last to be added of its metric.
func unreadOf(notes []unreadNote, metric string, ms int64) []unreadNote {
	for i := len(notes) - 1; i >= max(0, len(notes)-16); i-- {
		if n := &notes[i]; n.metric == metric && n.span.FromMS <= ms && ms < n.span.UntilMS {
			return notes
		}
	}
	return append(notes, unreadNote{metric, hourOf(ms)})
}

// noteUnread takes notes in while tasks are not known, and stores them. done is called
// when the batch is stored or refused. It is nil if all tasks are known by now.
func (l *LateList) noteUnread(notes []unreadNote) (done func(), err error) {
	if len(notes) == 0 {
		return nothing, nil
	}
	l.mu.Lock()
	u := l.unread
	if u == nil {
		l.mu.Unlock()
		return nil, nil
	}
	u.pending.Add(1)
	for _, n := range notes {
		if u.hours.Add(n.metric, n.span.FromMS) {
			u.version++
		}
	}
	version := u.version
	l.mu.Unlock()
	if err := l.persistUnread(u, version); err != nil {
		u.pending.Done()
		return nil, err
	}
	return u.pending.Done, nil
}

func (l *LateList) persistUnread(u *unread, version uint64) error {
	u.storing.Lock()
	defer u.storing.Unlock()
	if u.stored >= version {
		return nil
	}
	l.mu.RLock()
	now, text := u.version, u.hours.Text()
	l.mu.RUnlock()
	if err := l.book.writeUnread(text); err != nil {
		return err
	}
	u.stored = now
	return nil
}

// AllRead is called when all tasks that exist are watched. Notes that came before
// become those of the targets that were not known then.
func (l *LateList) AllRead(ctx context.Context) error {
	l.mu.Lock()
	if l.unread != nil {
		l.settling, l.unread = l.unread, nil // later batches find their targets
	}
	u := l.settling
	l.mu.Unlock()
	if u == nil {
		return nil
	}
	u.pending.Wait() // a run that takes the notes has to see the points
	for t, version := range l.takeOver(u) {
		if err := l.persist(ctx, t, version); err != nil {
			return err
		}
	}
	if err := l.book.removeUnread(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settling = nil
	return nil
}

// takeOver gives notes to the targets that could have none, and forgets the series that
// no task reads. It returns all tasks: of some an earlier attempt was not stored.
func (l *LateList) takeOver(u *unread) map[*lateTask]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[*lateTask]uint64{}
	for _, t := range l.tasks {
		for _, x := range t.targets {
			if !x.blind {
				continue
			}
			x.blind = false
			l.noteHoursLocked(x, &u.hours)
		}
		all[t] = t.version
	}
	l.indexLocked()
	for ref, s := range l.refs {
		if s.targets == nil {
			delete(l.refs, ref)
		}
	}
	return all
}

// noteHoursLocked notes the buckets of a target that hours of its metric touch. l.mu must
// be held.
func (l *LateList) noteHoursLocked(x *target, h *Hours) {
	for _, s := range h.of(x.metric) {
		var changed bool
		bucket := Span{x.grid.Start(s.FromMS), x.grid.Next(s.UntilMS - 1)}
		if x.notes.spans, changed = x.notes.spans.add(bucket, l.most); changed {
			x.task.version++
		}
	}
}

// readUnread reads what was noted before a restart.
func (b *notebook) readUnread() (u *unread, err error) {
	u = &unread{}
	path := b.fs.PathJoin(b.dir, unreadName)
	f, err := b.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err == nil {
		var text []byte
		text, err = io.ReadAll(io.LimitReader(f, pageMax))
		err = errors.Join(err, f.Close())
		if err == nil {
			err = u.hours.Parse(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read notes of late points from %s: %w; if the file cannot be restored, remove it: "+
			"the buckets of points that came in late before the tasks were known are then not computed again", path, err)
	}
	return u, nil
}

// writeUnread replaces the file of notes for tasks that are not known.
func (b *notebook) writeUnread(text []byte) error {
	path := b.fs.PathJoin(b.dir, unreadName)
	if err := safefile.Replace(b.fs, path, text); err != nil {
		return &store.UnavailableError{Reason: fmt.Sprintf("cannot note late points in %s; free some space, or fix the disk", path), Err: err}
	}
	return nil
}

func (b *notebook) removeUnread() error {
	err := b.fs.Remove(b.fs.PathJoin(b.dir, unreadName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
