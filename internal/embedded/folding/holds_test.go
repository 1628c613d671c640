package folding

import (
	"context"
	"testing"
	"testing/synctest"

	"varve/internal/model"
)

// A caller waits for the fold of its range, and keeps later ones from beginning, but not those of other ranges.
func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, recent, both := model.TimeRange{StartMS: 0, EndMS: 9}, model.TimeRange{StartMS: 10, EndMS: 19}, model.TimeRange{StartMS: 9, EndMS: 10}
		h := NewHolds()
		if !h.Begin(old) {
			t.Fatal("a fold does not begin although nobody holds anything")
		}
		release, err := h.Hold(t.Context(), recent)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan func())
		go func() {
			release, err := h.Hold(t.Context(), both)
			if err != nil {
				t.Error(err)
			}
			got <- release
		}()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Hold(ended, old); err != context.Canceled {
			t.Errorf("a caller that has left: %v", err)
		}
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("a caller does not wait for the fold of its range")
		default:
		}
		h.End()
		releaseBoth := <-got
		if h.Begin(both) || h.Begin(old) || h.Begin(recent) {
			t.Error("a fold begins in a range that is held")
		}
		releaseBoth()
		if h.Begin(recent) {
			t.Error("a fold begins in a range that another caller holds")
		}
		if !h.Begin(old) {
			t.Error("a fold does not begin in a range that nobody holds any more")
		}
		h.End()
		release()
		if !h.Begin(both) {
			t.Error("a fold does not begin after all have released")
		}
	})
}
