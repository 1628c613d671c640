// Package timelinetest says what the contract of timeline.Shelf means, as tests that each
// shelf passes.
package timelinetest

import (
	"testing"

	"varve/internal/timeline"
)

// Run tests a shelf. open returns an empty one; the test closes it.
func Run(t *testing.T, open func(t *testing.T) timeline.Shelf) {
	t.Run("empty", func(t *testing.T) {
		shelf := open(t)
		defer shelf.Close()
		if h, err := shelf.History(t.Context(), "none"); err != nil || h.Version != 0 {
			t.Errorf("history of a timeline that is not there: %v, %v", h, err)
		}
	})
}
