package graphite

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"varve/internal/graphite/graphitetest"
	"varve/internal/query"
)

// A render of more series than its memory has room for is refused as soon as the series that it has found
// take all of it: it finds no others, and reads no samples.
func TestMemoryIsJudgedWhileSeriesAreFound(t *testing.T) {
	const series = 2000
	limits := query.DefaultConfig()
	limits.MaxMemory = 800 << 10 // enough to find all, too little to have them as results
	s := open(t, DefaultConfig(), limits)
	now := graphitetest.Clock.Unix()/60*60 - 60
	var lines strings.Builder
	for i := range series {
		fmt.Fprintf(&lines, "a.b%d.c 1 %d\n", i, now)
	}
	s.send(lines.String())
	form := url.Values{"target": {"*.*.*"}, "format": {"json"}, "from": {fmt.Sprint(now - 60)}, "until": {fmt.Sprint(now)}}
	w := s.ask(http.MethodGet, "/render", form)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "query.max_memory") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if n := s.counted("varve_query_samples_total"); n > 0 {
		t.Errorf("%v samples read before the limit", n)
	}
	if n := s.counted("varve_query_series_total"); n >= series {
		t.Errorf("%v series selected before the limit", n)
	}
}

// counted returns the value of a counter.
func (s *site) counted(name string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	s.Fatalf("there is no metric %s", name)
	return 0
}
