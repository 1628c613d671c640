package graphite

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"varve/internal/httpapi"
	"varve/internal/query"
	"varve/internal/retention"
)

// A trace says of a render request which archives were read, and what of them the store
// had in which stage. nil gathers nothing.
type trace struct {
	mu       sync.Mutex
	archives map[archiveUse]int // number of series
}

// An archiveUse is an archive by its step, and the time that was read, in seconds.
type archiveUse struct{ step, start, end int64 }

// newTrace returns a trace for a request that wants one.
func newTrace(r *http.Request) *trace {
	if !httpapi.WantsTrace(r) {
		return nil
	}
	return &trace{archives: map[archiveUse]int{}}
}

// add notes that series were read on a grid.
func (t *trace) add(g grid, series int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.archives[archiveUse{g.step, g.start, g.start + g.n*g.step}] += series
}

// maxTraced bounds the archives and the stages of a header, each.
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
	LeftOut  int             `json:"left_out,omitempty"` // archives and stages
}

type archiveAnswer struct {
	Step   string `json:"step"`
	Start  int64  `json:"start"` // seconds
	End    int64  `json:"end"`   // excluded
	Series int    `json:"series"`
}

type stageAnswer struct {
	Stage string `json:"stage"`
	Start int64  `json:"start"` // seconds
	End   int64  `json:"end"`
	Count int64  `json:"count"` // samples or buckets
}

// send puts the trace into a header of the answer.
func (t *trace) send(w http.ResponseWriter, s *query.Session) {
	if t == nil {
		return
	}
	stats := s.Stats()
	a := traceAnswer{
		WaitMS: inMS(stats.Wait), IndexMS: inMS(stats.Index), ReadMS: inMS(stats.Read), Series: stats.Series, Samples: stats.Samples,
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

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
