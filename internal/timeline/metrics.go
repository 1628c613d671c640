package timeline

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/collectors"
	"varve/internal/store"
)

type metrics struct {
	*collectors.Set
	unregister func()

	appended, marks, layouts, pages, short, buckets, empty, gaps, expired, upkeepFailed, noted prometheus.Counter
	rejected, tailed                                                                           *prometheus.CounterVec
}

func newMetrics(e *Engine) *metrics {
	m := &metrics{Set: collectors.Named("varve_timeline_")}
	m.appended = m.Counter("events_appended_total", "Events that were put into timelines, each counted once for each timeline.")
	m.rejected = m.CounterVec("events_rejected_total", "Events that were not put into a timeline, by reason: input, limit or store.", "reason")
	m.marks = m.Counter("bucket_marks_total", "Buckets that were entered in directories, repetitions included.")
	m.layouts = m.Counter("layout_changes_total", "Changes of histories: timelines that were created or deleted, and their layouts.")
	m.pages = m.Counter("pages_total", "Pages of events that were read.")
	m.short = m.Counter("pages_short_total", "Pages that ended early because finding more took too long.")
	m.buckets = m.Counter("buckets_read_total", "Buckets that were read for pages.")
	m.empty = m.Counter("buckets_read_empty_total", "Buckets that were read for pages and had no event in range.")
	m.gaps = m.Counter("payload_gaps_total", "Events that were read although their data, which is stored separately, was missing.")
	m.tailed = m.CounterVec("tails_total", "Readers that followed a timeline, by how it ended: closed or behind.", "end")
	m.expired = m.Counter("buckets_expired_total", "Buckets that were removed because of the retention of their timeline.")
	m.upkeepFailed = m.Counter("upkeep_failures_total", "Timelines whose upkeep (retention, layout, leftovers) failed. The next round retries it.")
	m.noted = m.Counter("deletions_noted_total", "Deletes that were recorded, for 31 days, for servers that have events of the timeline in their spool.")
	for _, reason := range []string{"input", "limit", "store"} {
		m.rejected.WithLabelValues(reason) // shown from the start
	}
	for _, end := range []string{"closed", "behind"} {
		m.tailed.WithLabelValues(end)
	}
	m.GaugeFunc("tails", "Readers that follow a timeline now.", func() float64 { return float64(e.tails.InUse()) })
	return m
}

func (m *metrics) reject(err error) {
	reason := "store"
	switch {
	case errors.As(err, new(*store.InputError)):
		reason = "input"
	case errors.As(err, new(*store.LimitError)):
		reason = "limit"
	}
	m.rejected.WithLabelValues(reason).Inc()
}
