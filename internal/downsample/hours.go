package downsample

import (
	"encoding/json"
	"math"
	"time"

	"varve/internal/model"
)

// Hours are a bounded, coarse record of the metrics and hours that have samples, for
// the time before the tasks are known. They never contain less than was added; what
// they contain beyond that is only recomputed needlessly.
//
// The zero Hours are empty.
type Hours struct {
	spans map[string]Spans // by metric; "" is any metric
}

const (
	hourMS       = int64(time.Hour / time.Millisecond)
	hoursMetrics = 256 // beyond this, hours are added to "", any metric
	hoursSpans   = 64  // spans of a metric
)

// hourOf is the hour that contains ms.
func hourOf(ms int64) Span {
	offset := ms - model.Floor(ms, hourMS)
	from := max(ms, math.MinInt64+hourMS) - offset
	return Span{from, min(from, math.MaxInt64-hourMS) + hourMS}
}

// Add adds the hour of a sample of a metric. It reports whether h has changed.
func (h *Hours) Add(metric string, ms int64) (changed bool) {
	return h.add(metric, hourOf(ms))
}

// Merge adds all of o. It reports whether h has changed.
func (h *Hours) Merge(o *Hours) (changed bool) {
	for metric, spans := range o.spans {
		for _, s := range spans {
			changed = h.add(metric, s) || changed
		}
	}
	return changed
}

func (h *Hours) add(metric string, s Span) (changed bool) {
	if h.spans == nil {
		h.spans = map[string]Spans{}
	}
	if _, ok := h.spans[metric]; !ok && len(h.spans) >= hoursMetrics {
		metric = ""
	}
	h.spans[metric], changed = h.spans[metric].Add(s, hoursSpans)
	return changed
}

// Empty reports whether nothing was added.
func (h *Hours) Empty() bool { return len(h.spans) == 0 }

// of returns the spans of a metric and those of any metric.
func (h *Hours) of(metric string) Spans {
	all := append(Spans(nil), h.spans[metric]...)
	for _, s := range h.spans[""] {
		all, _ = all.Add(s, 2*hoursSpans)
	}
	return all
}

// Text encodes the hours for storage: a JSON object of spans by metric.
func (h *Hours) Text() []byte {
	text, err := json.Marshal(h.spans)
	if err != nil {
		panic(err) // numbers always marshal
	}
	return text
}

// Parse is the inverse of Text.
func (h *Hours) Parse(text []byte) error { return json.Unmarshal(text, &h.spans) }
