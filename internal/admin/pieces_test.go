package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/embedded/offline"
	"varve/internal/growth"
	"varve/internal/index"
	"varve/internal/principal"
	"varve/internal/query"
	"varve/internal/retention"
)

// An answer in pieces has the bytes of the report in JSON.
func TestAnswersInPieces(t *testing.T) {
	one := CardinalityAnswer{
		Metric: "a<b", Totals: cardinalityTotals{Series: 1, Ever: new(uint32)},
		TopMetrics: []index.MetricCount{{Metric: "m", Series: 1}, {Metric: "<", Series: 2}}, TopTags: []index.TagCount{{Tag: "t", Values: 3}},
		TopTagValues: []index.PairCount{{Tag: "t", Value: "v", Series: 4}},
		Growth: seriesGrowth{
			Started: time.Unix(5, 0).UTC(), SinceStart: 6, TopSinceStart: []growth.Metric{{Metric: "g", Series: 7}}, Minutes: 8, Recent: 9,
			TopRecent: []growth.Metric{{Metric: "h", Series: 10}},
		},
	}
	none := newCardinalityAnswer("", index.Cardinality{}, growth.Report{}, 0)
	space := offline.SpaceReport{
		Files: 1, FileBytes: 2, Samples: 3, Pages: 4, PagesRead: 5, MetricsTotal: 6, CodecsTotal: 7, TimelineBytes: 8,
		Metrics: []offline.SpaceRow{{Name: "m", Bytes: 1, Series: 2}}, Codecs: []offline.SpaceRow{{Name: "c"}, {Name: "d"}},
	}
	for _, c := range []struct {
		report any
		write  func(*bytes.Buffer)
	}{
		{one, func(b *bytes.Buffer) { one.write(b) }},
		{none, func(b *bytes.Buffer) { none.write(b) }},
		{space, func(b *bytes.Buffer) { writeSpace(b, &space) }},
	} {
		var got, want bytes.Buffer
		c.write(&got)
		if err := json.NewEncoder(&want).Encode(c.report); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("got\n%swant\n%s", got.String(), want.String())
		}
	}
}

// A slowWriter calls meanwhile before the answer is written.
type slowWriter struct {
	*httptest.ResponseRecorder
	meanwhile func()
}

func (w slowWriter) Write(p []byte) (int, error) {
	w.meanwhile()
	return w.ResponseRecorder.Write(p)
}

// Reports count as memory of queries until their clients have received them.
func TestReportsThatNobodyReads(t *testing.T) {
	s, err := embedded.Open(vfs.NewMem(), "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	config := query.DefaultConfig()
	config.TotalMemory, config.MaxWait = 1<<20, time.Millisecond
	queries := query.New(s, config, prometheus.NewRegistry(), time.Now)
	shelf := retention.NewShelf((&retention.Book{}).For(principal.Default))
	mux := http.NewServeMux()
	for _, r := range append(Embedded(s, queries, nil), Policies(shelf, queries, false)...) {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	for _, path := range []string{"/admin/cardinality?limit=1000", "/admin/stats?top=200", "/admin/policies?path=a" + strings.Repeat("&path=a", 300)} {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		other := httptest.NewRecorder()
		w := slowWriter{httptest.NewRecorder(), func() {
			if other.Body.Len() == 0 {
				mux.ServeHTTP(other, request)
			}
		}}
		mux.ServeHTTP(w, request)
		if w.Code != http.StatusOK || other.Code != http.StatusServiceUnavailable || !strings.Contains(other.Body.String(), "query.total_memory") {
			t.Errorf("%.40s: %d %.200s; meanwhile %d %.200s", path, w.Code, w.Body, other.Code, other.Body)
		}
	}
}
