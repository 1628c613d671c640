package offline

import (
	"strings"
	"testing"
)

// TestSpaceReportText: what is left out of the lists is told, also if it is one entry, and numbers that a list
// cannot be compared with have no share.
func TestSpaceReportText(t *testing.T) {
	r := SpaceReport{
		Files: 1, FileBytes: 2000, Samples: 100, Pages: 3, PagesRead: 3, MetricsTotal: 1, CodecsTotal: 1,
		Metrics: []SpaceRow{{Name: "m", Bytes: 500, Samples: 100, Chunks: 2, Series: 1}}, Codecs: []SpaceRow{{Name: "c", Bytes: 500, Samples: 100, Chunks: 2}},
	}
	text := func() string {
		t.Helper()
		var w strings.Builder
		if err := r.WriteText(&w); err != nil {
			t.Fatal(err)
		}
		return w.String()
	}
	if got := text(); !strings.HasPrefix(got, "1 block file, ") || strings.Contains(got, "estimated") || strings.Contains(got, "more") || strings.Contains(got, "timelines") {
		t.Errorf("all is listed:\n%s", got)
	}
	r.Files, r.PagesRead, r.MetricsTotal, r.CodecsTotal, r.TimelineBytes = 2, 2, 2, 3, 1
	got := text()
	for _, want := range []string{"2 block files, ", "estimated from 2 of 3 pages\n", "and 1 more metrics\n", "and 2 more codecs\n", "\ntimelines beside them: ", " 25.0%"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	r.CodecsTotal = 2
	if !strings.Contains(text(), "and 1 more codecs\n") {
		t.Errorf("one codec is left out without a word:\n%s", text())
	}
	r.FileBytes, r.Samples = 0, 0
	if got := text(); strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
		t.Errorf("of nothing:\n%s", got)
	}
	rows := map[string]*SpaceRow{"a": {Name: "a", Bytes: 10}, "b": {Name: "b", Bytes: 30, Samples: 3, Chunks: 2}, "c": {Name: "c", Bytes: 10}}
	list := biggest(rows, 2, 2)
	if len(list) != 2 || list[0].Name != "b" || list[1].Name != "a" || list[0].Bytes != 60 || list[0].Samples != 6 || list[0].Chunks != 4 {
		t.Errorf("%+v", list)
	}
	if got := len(biggest(rows, 3, 1)) + len(biggest(rows, 0, 1)); got != 6 {
		t.Errorf("%d of all", got)
	}
}
