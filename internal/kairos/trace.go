package kairos

import (
	"net/http"
	"strconv"
	"time"

	"varve/internal/kairos/agg"
	"varve/internal/retention"
	"varve/internal/store"
	"varve/internal/units"
)

// parameter returns a query parameter, "" if it is absent. It is fast for requests
// without parameters, which most are.
func parameter(r *http.Request, name string) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return r.URL.Query().Get(name)
}

// A phase is one line of a trace.
type phase struct {
	name   string
	took   time.Duration
	counts []count
}

type count struct {
	name string
	n    int64
}

// appendTrace writes the member trace: how the time since began was spent. Time outside
// the engine counts as encoding; bytes is the size of the answer.
func appendTrace(dst []byte, s agg.Stats, began time.Time, cached int, bytes int64) []byte {
	total := time.Since(began)
	phases := []phase{
		{"wait", s.Wait, nil},
		{"index", s.Index, []count{{"series", s.Series}}},
		{"read", s.Read, []count{{"series", s.Series}, {"blocks", s.Blocks}, {"samples", s.Samples}, {"bytes", s.Bytes}}},
		{"aggregate", s.Aggregate, []count{{"samples", s.Samples}, {"points", s.Points}}},
		{"encode", max(0, total-s.Wait-s.Work), []count{{"points", s.Points}, {"bytes", bytes}}},
	}
	dst = append(dst, `,"trace":{"total_ms":`...)
	dst = appendMilliseconds(dst, total)
	dst = append(dst, `,"cached_metrics":`...)
	dst = strconv.AppendInt(dst, int64(cached), 10)
	dst = append(dst, `,"phases":[`...)
	for i, p := range phases {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"phase":"`+p.name+`","ms":`...)
		dst = appendMilliseconds(dst, p.took)
		for _, c := range p.counts {
			dst = append(dst, `,"`+c.name+`":`...)
			dst = strconv.AppendInt(dst, c.n, 10)
		}
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	dst = appendStages(dst, s.Stages)
	if len(s.Store) > 0 {
		dst = append(dst, `,"store":{`...)
		for i, c := range s.Store {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `"`+c.Name+`":`...)
			dst = strconv.AppendInt(dst, c.N, 10)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendStages writes which stages were read.
func appendStages(dst []byte, stages []store.StageUse) []byte {
	for i, u := range stages {
		text := `,{"stage":"`
		if i == 0 {
			text = `,"stages":[{"stage":"`
		}
		dst = append(dst, text+retention.StageName(u.StepMS)+`","start":`...)
		dst = strconv.AppendInt(dst, u.FirstMS, 10)
		dst = strconv.AppendInt(append(dst, `,"end":`...), u.LastMS, 10)
		unit := `,"buckets":`
		if u.StepMS == 0 {
			unit = `,"samples":`
		}
		dst = append(strconv.AppendInt(append(dst, unit...), u.Count, 10), '}')
	}
	if len(stages) > 0 {
		dst = append(dst, ']')
	}
	return dst
}

func appendMilliseconds(dst []byte, d time.Duration) []byte {
	return strconv.AppendFloat(dst, units.Milliseconds(d), 'f', 3, 64)
}
