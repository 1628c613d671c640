package wsp

import (
	"errors"
	"fmt"
	"strings"

	"varve/internal/graphite/whisper"
)

// A Reason is a kind of fault.
type Reason string

// The reasons are told as they stand.
const (
	Unreadable      Reason = "not readable"
	Damaged         Reason = "damaged"
	NotWhisper      Reason = "not Whisper"
	Compressed      Reason = "compressed by go-carbon"
	Nameless        Reason = "name is only a hash"
	BadName         Reason = "name is no path"
	LinkedDirectory Reason = "link to a directory"
	Misplaced       Reason = "points in a place of others" // damage within a file that is read
	NotFinite       Reason = "points without a finite value"
	Future          Reason = "points later than now"
	Refused         Reason = "refused by the store"
)

// A Fault is what is wrong with a file. A file that has one of Misplaced, NotFinite,
// Future or Refused is imported but for these points.
type Fault struct {
	Reason Reason
	Text   string
	Points int64 // that are left out of a file that is imported. A block's refused points are told of one file
}

// faultOf is the fault of a file that whisper.Open refuses.
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

// faultsOf are those of points that are left out.
func faultsOf(left whisper.Left) (faults []Fault) {
	add := func(n int64, reason Reason, what string) {
		if n > 0 {
			faults = append(faults, Fault{reason, fmt.Sprintf("%d points %s are left out", n, what), n})
		}
	}
	add(left.Misplaced, Misplaced, "that are not where their time belongs")
	add(left.NotFinite, NotFinite, "with NaN or an infinity")
	add(left.Future, Future, "with a time later than now")
	return faults
}

// An Outcome is what became of a file.
type Outcome struct {
	Path   string // of the file below the root
	Bytes  int64
	Series string          // Graphite's name, if the file was read
	Header *whisper.Header // likewise
	Points int64           // that it has
	First  int64           // time of the first one, in seconds
	Last   int64           // and of the last one
	Faults []Fault
}

// Totals are the sums over files.
type Totals struct {
	Files  int64            `json:"files"`            // that were read
	Empty  int64            `json:"empty"`            // of these
	Points int64            `json:"points"`           // that were stored
	Faulty map[Reason]int64 `json:"faulty,omitempty"` // files by what is wrong with them
	Left   map[Reason]int64 `json:"left,omitempty"`   // points that were left out
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
