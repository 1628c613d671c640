package offline

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

// TestReportsThatCannotBeWritten: a report that did not reach its reader is an error.
func TestReportsThatCannotBeWritten(t *testing.T) {
	for what, write := range map[string]func(io.Writer) error{
		"space": (&SpaceReport{Files: 1}).WriteText,
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

// full is a writer that accepts nothing more.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
