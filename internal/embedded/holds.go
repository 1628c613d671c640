package embedded

import (
	"context"
	"math"
	"sync"
	"time"

	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/retention"
)

// holds keeps folds apart from callers that first look for buckets and then write: a bucket that
// is made in between has counted samples that the caller replaces. Folds never wait for callers,
// which may take long; they come later.
type holds struct {
	mu      sync.Mutex
	held    map[*model.TimeRange]struct{}
	running bool
	folding model.TimeRange  // by the fold that is running
	changed *notify.Notifier // notified when a fold ends
}

// HoldFolds waits until no fold of data in r is running, and keeps others from beginning until
// release is called.
func (s *Store) HoldFolds(ctx context.Context, r model.TimeRange) (release func(), err error) {
	h := &s.holds
	if err := h.changed.Wait(ctx, func() bool { return h.hold(&r) }); err != nil {
		return nil, err
	}
	return func() { h.release(&r) }, nil
}

func (h *holds) hold(r *model.TimeRange) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running && h.folding.Overlaps(*r) {
		return false
	}
	if h.held == nil {
		h.held = make(map[*model.TimeRange]struct{})
	}
	h.held[r] = struct{}{}
	return true
}

func (h *holds) release(r *model.TimeRange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, r)
}

// begin reports whether a fold of data in r may begin. If so, end must follow.
func (h *holds) begin(r model.TimeRange) bool {
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

func (h *holds) end() {
	h.mu.Lock()
	h.running = false
	h.mu.Unlock()
	h.changed.Notify()
}

// claim begins a fold of a file, and of the files that must be folded together with it, unless their
// range is held. The fold sees what others write from then on, in memory or in further files.
func (s *Store) claim(f *openFile, book *retention.Book, now time.Time) (r model.TimeRange, ok bool) {
	st := s.acquire()
	defer s.release(st)
	r = s.foldRange(s.entangled(st, f), book, now)
	return r, s.holds.begin(r)
}

// foldRange returns the range of the data in files that is old enough for a coarser stage.
// merging must be held.
func (s *Store) foldRange(files []*openFile, book *retention.Book, now time.Time) model.TimeRange {
	_, r := extent(files)
	border := int64(math.MinInt64)
	for _, f := range files {
		for _, p := range s.agesOf(f, book).policies {
			if p.rule != nil {
				border = max(border, p.border(p.rule.Stages.Plan(now.UnixMilli()), f.StepMS))
			}
		}
	}
	r.EndMS = min(r.EndMS, max(border, math.MinInt64+1)-1)
	return r
}
