package cassandra

import (
	"context"
	"sync"

	"varve/internal/model"
	"varve/internal/store"
)

// readAhead begins to read series before they are requested. A reader processes its selected
// series one after another, and each requires a round trip to Cassandra; with read-ahead, the
// round trips of the next series overlap with that.
type readAhead struct {
	mu      sync.Mutex
	streams map[store.Ref]*stream // begun, but not taken
	form    readForm              // common to all of these
	next    store.Ref             // the first ref that was not begun
	tasks   sync.WaitGroup
}

// textsAhead is how many series of texts are read ahead at most: of each, a page of rows of up to 64 KiB is in
// memory.
const textsAhead = 8

// readForm has the options that must be equal for a stream to be usable.
type readForm struct {
	within     model.TimeRange
	descending bool
	limit      int
	exact      bool
	summarize  bool
}

// take returns the stream of a series, begun already or not, and begins the next ones, up to
// last. hidden is how many of the samples that are read may be hidden by samples that are not
// returned.
func (a *readAhead) take(v *view, ctx context.Context, ref, last store.Ref, sel selected, o store.ReadOptions, hidden int) *stream {
	form := readForm{o.Range, o.Descending, o.Limit, o.Exact, o.Summarize != nil}
	a.mu.Lock()
	defer a.mu.Unlock()
	if form != a.form {
		a.dropLocked()
		a.form, a.next = form, ref
	}
	s := a.streams[ref]
	delete(a.streams, ref)
	more := o
	if o.Limit > 0 && hidden > 0 {
		more.Limit += hidden
		if s != nil {
			s.Close()
			s = nil
		}
	}
	if s == nil {
		s = newStream(ctx, sel, more)
	}
	s.ctx = ctx
	a.next = max(a.next, ref+1)
	a.topUpLocked(v, last, o)
	return s
}

// topUpLocked starts streams until there are enough. It reads ahead without Summarize, since it
// is not known in advance how much statistics would save.
func (a *readAhead) topUpLocked(v *view, last store.Ref, o store.ReadOptions) {
	if a.streams == nil {
		a.streams = map[store.Ref]*stream{}
	}
	o.Summarize = nil
	for ; v.ctx.Err() == nil && len(a.streams) < v.store.cfg.ReadAhead && a.next <= last; a.next++ {
		sel, _ := v.at(a.next)
		if len(sel.stored) == 0 {
			continue
		}
		if sel.series.Type.Kind().Variable() && len(a.streams) >= textsAhead {
			return
		}
		a.streams[a.next] = a.beginLocked(v, sel, o)
	}
}

// beginLocked begins to read a series.
func (a *readAhead) beginLocked(v *view, sel selected, o store.ReadOptions) *stream {
	s := newStream(v.ctx, sel, o)
	s.begun = make(chan struct{})
	a.tasks.Go(s.begin)
	return s
}

// dropLocked drops all begun streams.
func (a *readAhead) dropLocked() {
	for ref, s := range a.streams {
		delete(a.streams, ref)
		s.Close()
	}
}

// close ends all begun streams. The view's context must have ended before.
func (a *readAhead) close() {
	a.mu.Lock()
	a.dropLocked()
	a.mu.Unlock()
	a.tasks.Wait()
}
