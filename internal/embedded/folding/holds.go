package folding

import (
	"context"
	"sync"

	"varve/internal/model"
	"varve/internal/notify"
)

// Holds keep folds apart from callers that first look for buckets and then write: a bucket that
// is made in between has counted samples that the caller replaces. Folds never wait for callers,
// which may take long; they come later. Holds are safe for concurrent use.
type Holds struct {
	changed *notify.Notifier // notified when a fold ends

	mu      sync.Mutex
	held    map[*model.TimeRange]struct{}
	running bool
	folding model.TimeRange // range of the fold that is running
}

// NewHolds returns Holds without a fold or a caller.
func NewHolds() *Holds {
	return &Holds{changed: notify.New(), held: make(map[*model.TimeRange]struct{})}
}

// Hold waits until no fold of data in r is running, and keeps new folds of such data from
// beginning until release is called.
func (h *Holds) Hold(ctx context.Context, r model.TimeRange) (release func(), err error) {
	if err := h.changed.Wait(ctx, func() bool { return h.hold(&r) }); err != nil {
		return nil, err
	}
	return func() { h.release(&r) }, nil
}

func (h *Holds) hold(r *model.TimeRange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running && h.folding.Overlaps(*r) {
		return false
	}
	h.held[r] = struct{}{}
	return true
}

func (h *Holds) release(r *model.TimeRange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, r)
}

// Begin reports whether a fold of data in r may begin. If so, End must follow. One fold runs at a time.
func (h *Holds) Begin(r model.TimeRange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.held {
		if held.Overlaps(r) {
			return false
		}
	}
	h.folding, h.running = r, true
	return true
}

// End records that the fold has ended.
func (h *Holds) End() {
	h.mu.Lock()
	h.running = false
	h.mu.Unlock()
	h.changed.Notify()
}
