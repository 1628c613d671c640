package embedded

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestCheckReportEnds pins how a report ends for 0, 1 and more findings, listed or not.
func TestCheckReportEnds(t *testing.T) {
	for _, c := range []struct {
		findings int
		further  int64
		want     string
	}{
		{0, 0, "no damage found\n"},
		{1, 0, "\n1 finding\n"},
		{2, 0, "\n2 findings\n"},
		{2, 1, "\n3 findings, the first 2 of them listed\n"},
		{2, 5, "\n7 findings, the first 2 of them listed\n"},
	} {
		r := &CheckReport{Findings: make([]Finding, c.findings), Further: c.further}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || !strings.HasSuffix(b.String(), c.want) {
			t.Errorf("%d findings and %d more: %q, %v; want it to end with %q", c.findings, c.further, &b, err, c.want)
		}
	}
}

// TestSpaceSample reads pages evenly spread, as many as asked for or one fewer, and
// scales up what it found: also for a bound that does not divide the number of pages.
func TestSpaceSample(t *testing.T) {
	s := storeOfPages(t)
	all, err := s.Space(t.Context(), SpaceOptions{})
	if err != nil || all.Pages < 10 || all.PagesRead != all.Pages {
		t.Fatalf("%+v, %v", all, err)
	}
	for pages := 1; pages <= int(all.Pages)+1; pages++ {
		r, err := s.Space(t.Context(), SpaceOptions{Pages: pages})
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

// TestReportsThatCannotBeWritten: a report that did not reach its reader is an error.
func TestReportsThatCannotBeWritten(t *testing.T) {
	s := storeOfPages(t)
	space, err := s.Space(t.Context(), SpaceOptions{})
	s.must(t, err)
	for what, write := range map[string]func(io.Writer) error{
		"space": space.WriteText,
		"check": (&CheckReport{Findings: make([]Finding, 1)}).WriteText,
		"table": func(w io.Writer) error {
			list := newTable(w)
			list.row("A", "B")
			return list.end()
		},
	} {
		if err := write(full{}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// full is a place that takes nothing more.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
