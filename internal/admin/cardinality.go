package admin

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"time"

	"varve/internal/clip"
	"varve/internal/gate"
	"varve/internal/growth"
	"varve/internal/httpapi"
	"varve/internal/index"
	"varve/internal/query"
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

// rowMemory is about the memory of a row of each list.
const rowMemory = 512

// cardinality reports what most series belong to: ?limit=10&metric=NAME. The lists, whose strings
// belong to the store, are charged to the memory of queries until the client has received them.
// Senders take turns, because counting compares many names.
func cardinality(queries *query.Engine, of func(metric string, limit int) CardinalityAnswer) http.HandlerFunc {
	turns := gate.New(1)
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
		memory := queries.Unsent(r.Context(), r.RemoteAddr)
		defer memory.Free()
		if err := memory.AtLeast(int64(limit)*rowMemory + pieceBytes); err != nil {
			answer(w, r, nil, nil, err)
			return
		}
		var a CardinalityAnswer
		if err := inTurn(turns, r, func() error { a = of(metric, limit); return nil }); err != nil {
			return // the client is gone
		}
		httpapi.SetHeaders(w.Header())
		a.write(memory.Writer(w, httpapi.Cut(w)))
	}
}

// write sends the answer row by row: names and values of tags may be long, and as a whole in JSON
// they would take some dozens of MB.
func (a *CardinalityAnswer) write(w io.Writer) {
	p := pieces{out: bufio.NewWriterSize(w, pieceBytes)}
	p.open("", '{')
	if a.Metric != "" {
		p.value("metric", a.Metric)
	}
	p.value("totals", a.Totals)
	list(&p, "top_metrics", a.TopMetrics)
	list(&p, "top_tags", a.TopTags)
	list(&p, "top_tag_values", a.TopTagValues)
	p.open("growth", '{')
	p.value("started", a.Growth.Started)
	p.value("since_start", a.Growth.SinceStart)
	list(&p, "top_since_start", a.Growth.TopSinceStart)
	p.value("minutes", a.Growth.Minutes)
	p.value("recent", a.Growth.Recent)
	list(&p, "top_recent", a.Growth.TopRecent)
	p.close('}')
	p.end()
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
