package wsp

import (
	"errors"
	"fmt"
	"strings"

	"varve/internal/graphite/whisper"
)

// A Reason is a kind of fault.
type Reason string

// The texts of the reasons appear in reports, and are keys in state files.
const (
	Unreadable      Reason = "not readable"
	Damaged         Reason = "damaged"
	NotWhisper      Reason = "not Whisper"
	Compressed      Reason = "compressed by go-carbon"
	Nameless        Reason = "name is only a hash"
	BadName         Reason = "name is no path"
	LinkedDirectory Reason = "link to a directory"
	Misplaced       Reason = "points in a place of others" // damage in a file that is otherwise imported
	NotFinite       Reason = "points without a finite value"
	Future          Reason = "points later than now"
	Refused         Reason = "refused by the store"
)

// A Fault is a fault of a file. A file with the reasons Misplaced, NotFinite, Future or
// Refused is imported without the points concerned.
type Fault struct {
	Reason Reason
	Text   string
	Points int64 // omitted points. All refused points of a block count for one of its files
}

// faultOf returns the fault of a file that whisper.Open refuses with err.
func faultOf(err error) *Fault {
	detail := func(is error) string { return strings.TrimPrefix(err.Error(), is.Error()+": ") }
	switch {
	case errors.Is(err, whisper.ErrDamaged):
		return &Fault{Reason: Damaged, Text: detail(whisper.ErrDamaged)}
	case errors.Is(err, whisper.ErrNotWhisper):
		return &Fault{Reason: NotWhisper, Text: detail(whisper.ErrNotWhisper)}
	case errors.Is(err, whisper.ErrCompressed):
		return &Fault{Reason: Compressed, Text: "Varve cannot read it; docs/migrating-from-graphite.md says what to do"}
	}
	return unreadable(err)
}

// faultsOf returns a fault for each kind of points that are left out.
func faultsOf(left whisper.Left) (faults []Fault) {
	add := func(n int64, reason Reason, what string) {
		if n > 0 {
			faults = append(faults, Fault{reason, fmt.Sprintf("%d points %s are left out", n, what), n})
		}
	}
	add(left.Misplaced, Misplaced, "in a slot that is not that of their time")
	add(left.NotFinite, NotFinite, "with NaN or an infinity")
	add(left.Future, Future, "with a time later than now")
	return faults
}

// An Outcome is the result of importing a file.
type Outcome struct {
	Path   string // of the file, below the root
	Bytes  int64
	Series string          // Graphite's name, if the header was read
	Header *whisper.Header // nil if it was not read
	Points int64           // valid points in the file
	First  int64           // time of the first point, in seconds
	Last   int64           // time of the last point, in seconds
	Faults []Fault
}

// Totals are the sums over files.
type Totals struct {
	Files  int64            `json:"files"`            // whose header was read
	Empty  int64            `json:"empty"`            // of Files, those without points
	Points int64            `json:"points"`           // stored
	Faulty map[Reason]int64 `json:"faulty,omitempty"` // files, by reason
	Left   map[Reason]int64 `json:"left,omitempty"`   // points that were left out, by reason
}

// Sum adds up counts.
func Sum(counts map[Reason]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// Add adds an outcome.
func (t *Totals) Add(o *Outcome) {
	if o.Header != nil {
		t.Files++
		t.Points += o.Points
		if o.Points == 0 {
			t.Empty++
		}
	}
	for _, f := range o.Faults {
		if t.Faulty == nil {
			t.Faulty, t.Left = map[Reason]int64{}, map[Reason]int64{}
		}
		t.Faulty[f.Reason]++
		t.Left[f.Reason] += f.Points
		if f.Reason == Refused {
			t.Points -= f.Points
		}
	}
}
