package embedded

import (
	"testing"

	"varve/internal/embedded/offline"
)

// TestSpaceSample reads pages evenly spread, as many as asked for or one fewer, and
// scales up what it found: also for a bound that does not divide the number of pages.
func TestSpaceSample(t *testing.T) {
	s := storeOfPages(t)
	all, err := s.Space(t.Context(), offline.SpaceOptions{})
	if err != nil || all.Pages < 10 || all.PagesRead != all.Pages {
		t.Fatalf("%+v, %v", all, err)
	}
	for pages := 1; pages <= int(all.Pages)+1; pages++ {
		r, err := s.Space(t.Context(), offline.SpaceOptions{Pages: pages})
		if err != nil || r.PagesRead < 1 || r.PagesRead > int64(pages) {
			t.Fatalf("at most %d of %d pages: read %d, %v", pages, all.Pages, r.PagesRead, err)
		}
		step := (all.Pages + int64(pages) - 1) / int64(pages)
		if low := all.Pages / step; r.PagesRead < low {
			t.Errorf("at most %d of %d pages: read %d, want at least %d", pages, all.Pages, r.PagesRead, low)
		}
		if got, want := r.Metrics[0].Samples, all.Metrics[0].Samples; got < want*8/10 || got > want*12/10 {
			t.Errorf("%d of %d pages: %d samples, want about %d", r.PagesRead, all.Pages, got, want)
		}
	}
}

// storeOfPages has one file of pages that are alike.
func storeOfPages(t *testing.T) *Store {
	fs := newTimeStore(t, nil)
	putRandom(t, fs.Store, "pages", 40_000, crashOrigin)
	return fs.Store
}
