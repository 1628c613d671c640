package graphite

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"

	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/retention"
	"varve/internal/units"
)

// A trace records which archives a render request read. A nil trace records nothing.
type trace struct {
	mu       sync.Mutex
	archives map[archiveUse]int // number of series
}

// An archiveUse is the step of an archive and the time range that was read, in seconds.
type archiveUse struct{ step, start, end int64 }

// newTrace returns a trace, or nil if the request wants none.
func newTrace(r *http.Request) *trace {
	if !httpapi.WantsTrace(r) {
		return nil
	}
	return &trace{archives: map[archiveUse]int{}}
}

// add records that series were read on a grid.
func (t *trace) add(g grid, series int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.archives[archiveUse{g.step, g.start, g.start + g.n*g.step}] += series
}

// maxTraced limits the archives in a header, and the stages.
const maxTraced = 20

// traceAnswer is the value of the header.
type traceAnswer struct {
	WaitMS   float64         `json:"wait_ms"`
	IndexMS  float64         `json:"index_ms"`
	ReadMS   float64         `json:"read_ms"`
	Series   int64           `json:"series"`
	Samples  int64           `json:"samples"`
	Archives []archiveAnswer `json:"archives"`
	Stages   []stageAnswer   `json:"stages"`
	LeftOut  int             `json:"left_out,omitempty"` // archives and stages beyond maxTraced
}

type archiveAnswer struct {
	Step   string `json:"step"`
	Start  int64  `json:"start"` // seconds
	End    int64  `json:"end"`   // exclusive
	Series int    `json:"series"`
}

type stageAnswer struct {
	Stage string `json:"stage"`
	Start int64  `json:"start"` // seconds
	End   int64  `json:"end"`
	Count int64  `json:"count"` // samples or buckets
}

// send sets the header of the answer to the trace, and to what the store read in which stage.
func (t *trace) send(w http.ResponseWriter, s *query.Session) {
	if t == nil {
		return
	}
	stats := s.Stats()
	a := traceAnswer{
		WaitMS: units.Milliseconds(stats.Wait), IndexMS: units.Milliseconds(stats.Index), ReadMS: units.Milliseconds(stats.Read), Series: stats.Series, Samples: stats.Samples,
		Archives: []archiveAnswer{}, Stages: []stageAnswer{},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	uses := slices.SortedFunc(maps.Keys(t.archives), func(x, y archiveUse) int {
		return cmp.Or(cmp.Compare(x.step, y.step), cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end))
	})
	for _, u := range uses[:min(len(uses), maxTraced)] {
		a.Archives = append(a.Archives, archiveAnswer{retention.StageName(u.step * 1000), u.start, u.end, t.archives[u]})
	}
	for _, u := range stats.Stages[:min(len(stats.Stages), maxTraced)] {
		a.Stages = append(a.Stages, stageAnswer{retention.StageName(u.StepMS), u.FirstMS / 1000, u.LastMS / 1000, u.Count})
	}
	a.LeftOut = len(uses) + len(stats.Stages) - len(a.Archives) - len(a.Stages)
	if text, err := json.Marshal(a); err == nil { // numbers and names of steps: it cannot fail
		w.Header().Set(httpapi.TraceHeader, string(text))
	}
}
