package downsample

import (
	"encoding/json"
	"math"
	"time"
)

// Hours say of which metrics and hours there were samples. They are what is known of
// samples that came before it was known which tasks exist: coarse, and bounded. They never
// say less than was added, and what they say too much is only computed again.
//
// The zero Hours are empty.
type Hours struct {
	spans map[string]Spans // by metric; "" is any
}

const (
	hourMS       = int64(time.Hour / time.Millisecond)
	hoursMetrics = 256 // beyond these, hours are of any metric
	hoursSpans   = 64  // of a metric
)

// hourOf is the hour of a time.
func hourOf(ms int64) Span {
	offset := ms % hourMS
	if offset < 0 {
		offset += hourMS
	}
	from := max(ms, math.MinInt64+hourMS) - offset
	return Span{from, min(from, math.MaxInt64-hourMS) + hourMS}
}

// Add adds the hour of a sample of a metric. It reports whether that changed anything.
func (h *Hours) Add(metric string, ms int64) (changed bool) {
	return h.add(metric, hourOf(ms))
}

// Merge adds all that is in o. It reports whether that changed anything.
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
	h.spans[metric], changed = h.spans[metric].add(s, hoursSpans)
	return changed
}

// Empty reports whether nothing was added.
func (h *Hours) Empty() bool { return len(h.spans) == 0 }

// of returns the spans that may concern a metric.
func (h *Hours) of(metric string) Spans {
	all := append(Spans(nil), h.spans[metric]...)
	for _, s := range h.spans[""] {
		all, _ = all.add(s, 2*hoursSpans)
	}
	return all
}

// Text returns the hours as they are stored: a JSON object of spans by metric.
func (h *Hours) Text() []byte {
	text, err := json.Marshal(h.spans)
	if err != nil {
		panic(err) // numbers always marshal
	}
	return text
}

// Parse is the inverse of Text.
func (h *Hours) Parse(text []byte) error { return json.Unmarshal(text, &h.spans) }
