package storetest

import (
	"context"
	"fmt"
	"slices"

	"varve/internal/model"
	"varve/internal/store"
)

// A heldView is a View that stays open while the store is used, with what it must and what it may
// show: it must show what was acknowledged before it was opened and not touched since; it may show
// everything that was ever written.
type heldView struct {
	view   store.View
	series []store.Series
	must   map[samplePlace]value
	may    map[samplePlace][]value // beside must
}

type samplePlace struct {
	series model.Series
	timeMS int64
}

// hold opens a view on everything that was written so far.
func (r *runner) hold(ctx context.Context) error {
	r.release()
	v, err := r.s.View(ctx)
	if err != nil {
		return err
	}
	h := &heldView{view: v, must: map[samplePlace]value{}, may: map[samplePlace][]value{}}
	r.held = h
	for metric := range r.metrics {
		list, err := Select(ctx, v, store.Selection{Metric: metric, Range: model.AllTime})
		if err != nil {
			return err
		}
		for _, s := range list {
			if err := h.note(ctx, s, r.mortal); err != nil {
				return err
			}
		}
	}
	return nil
}

// note remembers what the view shows of s. Samples that may expire need not
// stay.
func (h *heldView) note(ctx context.Context, s store.Series, mortal map[samplePlace]bool) error {
	samples, err := readSamples(ctx, h.view, s, store.ReadOptions{Range: model.AllTime})
	if err != nil {
		return err
	}
	h.series = append(h.series, s)
	for _, p := range samples {
		at := samplePlace{s.Series, p.timeMS}
		h.must[at] = p.value
		if mortal[at] {
			h.touch(at)
		}
	}
	return nil
}

// touch says that the sample at a place may be gone or replaced.
func (h *heldView) touch(at samplePlace) {
	if v, ok := h.must[at]; ok {
		delete(h.must, at)
		h.may[at] = append(h.may[at], v)
	}
}

func (h *heldView) appended(samples []scriptSample) {
	for _, p := range samples {
		at := samplePlace{p.series, p.timeMS}
		h.touch(at)
		h.may[at] = append(h.may[at], p.value)
	}
}

func (h *heldView) deleted(o op) {
	for at := range h.must {
		if d := o.deletion(); d.Means(at.series) && d.Range.Contains(at.timeMS) {
			h.touch(at)
		}
	}
}

// release closes the held view, if there is one.
func (r *runner) release() {
	if r.held == nil {
		return
	}
	if err := r.held.view.Close(); err != nil {
		r.tb.Errorf("closing a held view: %v", err)
	}
	r.held = nil
}

// look reads everything in the held view and compares it with what it must and
// may show.
func (r *runner) look(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	h, seen := r.held, 0
	for _, s := range h.series {
		samples, err := readSamples(ctx, h.view, s, store.ReadOptions{Range: model.AllTime})
		if err != nil {
			return fmt.Errorf("held view: %w", err)
		}
		for _, p := range samples {
			at := samplePlace{s.Series, p.timeMS}
			must, ok := h.must[at]
			switch {
			case ok && p.value == must:
				seen++
			case ok || !slices.Contains(h.may[at], p.value):
				return fmt.Errorf("held view: %s shows %d=%s, which was not written there or was replaced before",
					s, p.timeMS, valueText(s.Type.Kind(), p.value))
			}
		}
	}
	if seen < len(h.must) {
		return fmt.Errorf("held view: %d of %d samples from before it was opened are gone", len(h.must)-seen, len(h.must))
	}
	return nil
}
