package timeline

import (
	"sort"
	"time"
)

// A Mode says where the data of events is kept.
type Mode string

const (
	Materialised Mode = "materialised" // all of the event in the timeline
	Index        Mode = "index"        // data is stored separately, the timeline points to it
	Hybrid       Mode = "hybrid"       // only data above a threshold is stored separately
)

// A Placement says which partition of its bucket an event is put into.
type Placement string

const (
	Hash       Placement = "hash"        // by the id, so that a retry meets the first try
	RoundRobin Placement = "round-robin" // in turn if the engine makes the id, else by the id; a retry with an id of the engine may leave a second row, which readers drop
)

// A Layout is an entry of a timeline's history: how buckets from From on are laid out.
type Layout struct {
	From      int64     `json:"from"`                // microseconds since 1970; Beginning for the first entry
	Size      int64     `json:"size"`                // of a bucket, in microseconds: whole seconds, at most a century
	Factor    int       `json:"factor"`              // partitions of a bucket, 1 to FactorMax
	Mode      Mode      `json:"mode"`                // where data is kept
	Threshold int       `json:"threshold,omitempty"` // Hybrid: data of more bytes is stored separately
	Placement Placement `json:"placement"`
}

// Beginning is the From of the first entry: minus infinity.
const Beginning = MinTime

// Bounds of a history.
const (
	FactorMax  = 64
	LayoutsMax = 1000 // entries of a history
)

const (
	second  = int64(time.Second / time.Microsecond)
	maxSize = 100 * 366 * 86400 * second
)

// Sizes are the sizes of buckets that the engine chooses from, in microseconds. Each divides the
// next, so that a bucket of one size begins wherever one of a larger size does.
var Sizes = []int64{10 * second, 60 * second, 600 * second, 3600 * second, 86400 * second}

// A History is the layout of a timeline over time. It is stored as one document, which
// is replaced by compare-and-set on its version.
type History struct {
	Version   uint64        `json:"version"`             // 0: there is no history; 1 when the timeline is created
	Layouts   []Layout      `json:"layouts"`             // ascending by From; the first is from Beginning
	Retention time.Duration `json:"retention,omitempty"` // how long events are kept; 0: for ever
	Deleted   int64         `json:"deleted,omitempty"`   // when the timeline was deleted, microseconds; 0: it is not
}

// Live reports whether the timeline exists.
func (h *History) Live() bool { return h.Version > 0 && h.Deleted == 0 }

// at returns the number of the entry that is valid at a time.
func (h *History) at(time int64) int {
	return max(0, sort.Search(len(h.Layouts), func(i int) bool { return h.Layouts[i].From > time })-1)
}

// At returns the layout that is valid at a time. The history must have an entry.
func (h *History) At(time int64) Layout { return h.Layouts[h.at(time)] }

// Bucket returns where the bucket of a time starts and ends.
func (h *History) Bucket(time int64) (start, endExcl int64) {
	i := h.at(time)
	size := h.Layouts[i].Size
	start = floor(time, size)
	endExcl = start + size
	if i+1 < len(h.Layouts) {
		endExcl = min(endExcl, h.Layouts[i+1].From)
	}
	return start, endExcl
}

// parts returns the parts of the bucket of a time.
func (h *History) parts(timeline string, time int64) []Part {
	start, end := h.Bucket(time)
	all := make([]Part, h.At(time).Factor)
	for p := range all {
		all[p] = Part{timeline, start, end, p}
	}
	return all
}

// floor returns the largest multiple of size that is not above t.
func floor(t, size int64) int64 {
	r := t % size
	if r < 0 {
		r += size
	}
	return t - r
}
