package embedded

import (
	"errors"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// TestClosedCursor: a cursor that its reader has given back yields nothing more.
func TestClosedCursor(t *testing.T) {
	s := storeOfPages(t)
	v, err := s.View(t.Context())
	s.must(t, err)
	defer v.Close()
	all, err := storetest.Select(t.Context(), v, store.Selection{Metric: "pages", Range: model.AllTime})
	s.must(t, err)
	for read := range 2 {
		c := v.Read(t.Context(), all[0], store.ReadOptions{Range: model.AllTime})
		for range read {
			if b, err := c.Next(); b == nil || err != nil {
				t.Fatal(b, err)
			}
		}
		c.Close()
		if b, err := c.Next(); b != nil || !errors.Is(err, store.ErrClosed) {
			t.Errorf("after %d blocks: %v, %v", read, b, err)
		}
		c.Close()
	}
}
