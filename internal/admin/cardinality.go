package admin

import (
	"net/http"
	"strconv"
	"time"

	"varve/internal/clip"
	"varve/internal/growth"
	"varve/internal/httpapi"
	"varve/internal/index"
)

// cardinalityMax bounds the lists of /admin/cardinality.
const cardinalityMax = 1000

// A CardinalityAnswer is the answer of GET /admin/cardinality.
type CardinalityAnswer struct {
	Metric string            `json:"metric,omitempty"` // the requested metric
	Totals cardinalityTotals `json:"totals"`

	TopMetrics   []index.MetricCount `json:"top_metrics"`    // by series
	TopTags      []index.TagCount    `json:"top_tags"`       // by distinct values
	TopTagValues []index.PairCount   `json:"top_tag_values"` // by series

	Growth seriesGrowth `json:"growth"`
}

type cardinalityTotals struct {
	Series        int     `json:"series"`
	Metrics       int     `json:"metrics"`
	TagNames      int     `json:"tag_names"`
	TagValues     int     `json:"tag_values"`               // distinct pairs of name and value
	MemoryBytes   int64   `json:"memory_bytes"`             // of the store, names and their index
	WithoutSample *int64  `json:"without_sample,omitempty"` // series of the store; missing over Cassandra
	Ever          *uint32 `json:"ever,omitempty"`           // series of the store since its creation; missing over Cassandra
}

// seriesGrowth is where new series came from.
type seriesGrowth struct {
	Started       time.Time       `json:"started"`
	SinceStart    int64           `json:"since_start"`
	TopSinceStart []growth.Metric `json:"top_since_start"`
	Minutes       int             `json:"minutes"`
	Recent        int64           `json:"recent"` // in the last minutes
	TopRecent     []growth.Metric `json:"top_recent"`
}

// cardinality reports what most series belong to: ?limit=10&metric=NAME.
func cardinality(of func(metric string, limit int) CardinalityAnswer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		limit, metric := 10, r.URL.Query().Get("metric")
		if text := r.URL.Query().Get("limit"); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > cardinalityMax {
				httpapi.WriteErrors(w, http.StatusBadRequest, "limit must be a whole number from 1 to "+strconv.Itoa(cardinalityMax)+", not "+strconv.Quote(clip.Text(text, 100)))
				return
			}
			limit = n
		}
		answer(w, r, nil, of(metric, limit), nil)
	}
}

func newCardinalityAnswer(metric string, c index.Cardinality, g growth.Report, memory int64) CardinalityAnswer {
	return CardinalityAnswer{
		Metric:     metric,
		Totals:     cardinalityTotals{Series: c.Series, Metrics: c.Metrics, TagNames: c.TagNames, TagValues: c.TagPairs, MemoryBytes: memory},
		TopMetrics: listed(c.TopMetrics), TopTags: listed(c.TopTags), TopTagValues: listed(c.TopPairs),
		Growth: seriesGrowth{
			Started: g.Started.UTC(), SinceStart: g.CreatedStart, TopSinceStart: listed(g.GrowthStart),
			Minutes: g.RecentMinutes, Recent: g.CreatedRecent, TopRecent: listed(g.GrowthRecent),
		},
	}
}
