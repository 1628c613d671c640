package timeline

import (
	"context"
	"math"
	"time"

	"varve/internal/store"
)

// Layout returns the history of a timeline, as it is stored now. The error is ErrNotFound if
// it is not there.
func (e *Engine) Layout(ctx context.Context, timeline string) (History, error) {
	if err := CheckName(timeline); err != nil {
		return History{}, err
	}
	l := e.use(timeline)
	defer e.release(l)
	k, err := e.refresh(ctx, l)
	if err == nil && !k.Live() {
		err = ErrNotFound
	}
	return k.History, err
}

// Propose adds an entry to the history of a timeline and returns the new history. A timeline
// that does not exist is created with it, from Beginning. A *store.InputError says what is
// wrong with the proposal; ErrConflict means that the history has another version.
func (e *Engine) Propose(ctx context.Context, timeline string, p Proposal) (History, error) {
	if err := checkNewName(timeline); err != nil {
		return History{}, err
	}
	if err := p.check(); err != nil {
		return History{}, err
	}
	if e.IsOwn(timeline) {
		return History{}, badf("the layout of timeline %s cannot be changed: the server keeps events of its own there", timeline)
	}
	l := e.use(timeline)
	defer e.release(l)
	k, err := e.change(ctx, l, p.Version == 0, func(h History) (History, error) {
		if p.Version > 0 && p.Version != h.Version {
			return h, ErrConflict
		}
		if h.Version == 0 {
			return e.begun(ctx, p)
		}
		h.Deleted = 0
		return e.extended(h, p)
	})
	return k.History, err
}

func (p *Proposal) check() error {
	switch {
	case p.Size != 0 && (p.Size < second || p.Size > maxSize || p.Size%second != 0):
		return badf("buckets cannot have a size of %g s: it must be whole seconds, at most a century; 10 s, 1 min, 10 min, 1 h and 1 d are best, because they divide each other", float64(p.Size)/float64(second))
	case p.Factor < 0 || p.Factor > FactorMax:
		return badf("a bucket cannot have %d partitions: 1 to %d are allowed", p.Factor, FactorMax)
	case p.Mode != "" && p.Mode != Materialised && p.Mode != Index && p.Mode != Hybrid:
		return badf("the mode must be %s, %s or %s", Materialised, Index, Hybrid)
	case p.Placement != "" && p.Placement != Hash && p.Placement != RoundRobin:
		return badf("the placement must be %s or %s", Hash, RoundRobin)
	case p.Threshold < 0 || p.Threshold > math.MaxInt32:
		return badf("the threshold cannot be %d bytes: it must be from 0 to %d", p.Threshold, math.MaxInt32)
	}
	return nil
}

// over returns the layout before, changed as proposed.
func (p *Proposal) over(before Layout) Layout {
	l := before
	if p.Size != 0 {
		l.Size = p.Size
	}
	if p.Factor != 0 {
		l.Factor = p.Factor
	}
	if p.Mode != "" {
		l.Mode = p.Mode
	}
	if p.Placement != "" {
		l.Placement = p.Placement
	}
	if p.Threshold != 0 {
		l.Threshold = p.Threshold
	}
	if l.Mode != Hybrid {
		l.Threshold = 0
	} else if l.Threshold == 0 {
		l.Threshold = int(HybridThreshold)
	}
	return l
}

// begun returns the history of a timeline that is created by a proposal.
func (e *Engine) begun(ctx context.Context, p Proposal) (History, error) {
	if p.From != 0 && p.From != Beginning {
		return History{}, badf("the timeline does not exist yet; its first layout applies from the beginning, so leave out the time")
	}
	l := p.over(defaultLayout)
	l.From = Beginning
	return History{Layouts: []Layout{l}}, e.roomForTimeline(ctx)
}

// aheadMax bounds how far ahead a layout begins if the proposal leaves that to the engine. Without
// it, a size in the wrong unit could bind a timeline to its present layout for decades.
const aheadMax = 31 * 24 * time.Hour

// extended returns the history with another entry at its end.
func (e *Engine) extended(h History, p Proposal) (History, error) {
	last := h.Layouts[len(h.Layouts)-1]
	next := p.over(last)
	earliest := max(e.now().Add(e.config.LeadTime).UnixMicro(), last.From) + 1
	grid := lcm(last.Size, next.Size)
	if next.From = p.From; p.From == 0 {
		next.From = floor(earliest+grid-1, grid)
	}
	switch at := time.UnixMicro(next.From).UTC().Format(time.RFC3339Nano); {
	case len(h.Layouts) >= LayoutsMax:
		return h, &store.LimitError{Limit: "layouts of a timeline", Max: LayoutsMax, Need: LayoutsMax + 1}
	case next.From <= last.From:
		return h, badf("the layout cannot begin at %s: the latest one begins at %s, and only later ones can be added", at, time.UnixMicro(last.From).UTC().Format(time.RFC3339Nano))
	case next.From%last.Size != 0 || next.From%next.Size != 0:
		return h, badf("the layout cannot begin at %s: buckets of %v and of %v do not both begin there; choose a multiple of both since 1970", at, duration(last.Size), duration(next.Size))
	case next.From < earliest:
		return h, badf("the layout cannot begin at %s: it must begin at least timeline.lead_time (%v) from now, so that all servers know it by then", at, e.config.LeadTime)
	case p.From == 0 && time.UnixMicro(next.From).After(e.now().Add(aheadMax)):
		return h, badf("the layout could begin at %s at the earliest, when buckets of %v and of %v both begin, and no other layout could begin before it; choose another size, or give this time as from",
			at, duration(last.Size), duration(next.Size))
	case next.From > MaxTime-maxSize:
		return h, badf("the layout cannot begin at %s: that is too far ahead", at)
	case next == withFrom(last, next.From):
		return h, badf("the layout is unchanged")
	}
	h.Layouts = append(h.Layouts, next)
	return h, nil
}

func withFrom(l Layout, from int64) Layout {
	l.From = from
	return l
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// lcm returns the least common multiple of two sizes, which are whole seconds, or MaxTime if it
// is larger than that.
func lcm(a, b int64) int64 {
	a, b = a/second, b/second
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	if n := a / x; n <= MaxTime/second/b {
		return n * b * second
	}
	return MaxTime
}

// SetRetention sets how long the events of a timeline are kept, 0 for ever. Older ones are
// invisible at once and removed later. The error is ErrNotFound if the timeline does not exist.
func (e *Engine) SetRetention(ctx context.Context, timeline string, d time.Duration) (History, error) {
	if err := CheckName(timeline); err != nil {
		return History{}, err
	}
	if d < 0 || d > 0 && d < time.Second {
		return History{}, badf("the retention cannot be %v: it must be 0, for ever, or at least a second", d)
	}
	l := e.use(timeline)
	defer e.release(l)
	k, err := e.change(ctx, l, true, func(h History) (History, error) {
		if !h.Live() {
			return h, ErrNotFound
		}
		h.Retention = d
		return h, nil
	})
	return k.History, err
}
