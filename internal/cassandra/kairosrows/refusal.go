package kairosrows

import (
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"varve/internal/model"
	"varve/internal/rowtime"
)

// refusalPause is the time between two log lines about one reason.
const refusalPause = 10 * time.Second

// Reasons why a sample is not written, beside those of cql.Reason.
const (
	reasonExpired   = "expired"
	reasonNotFinite = "not_finite"
	reasonType      = "type_unknown_to_kairosdb"
	reasonKey       = "key_too_long"
	reasonName      = "invalid_name"
	reasonString    = "string_too_long"
	reasonText      = "invalid_utf8"
	reasonValue     = "invalid_value"
	reasonTime      = "time_too_low"
	reasonTTL       = "ttl_too_long"
)

// refusedSeries says why no sample of a series can be written, "" if some can.
func (w *Writer) refusedSeries(s model.Series) string {
	if s.Metric == "" || !utf8.ValidString(s.Metric) {
		return reasonName // no index table would take it
	}
	for name, value := range s.Tags.All() {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return reasonName
		}
	}
	switch s.Type {
	case model.TypeLong, model.TypeDouble, model.TypeString, model.TypeNull:
		return ""
	case rowtime.TypeLegacy:
		return reasonType // KairosDB decodes it only if found through row_key_index
	}
	if w.cfg.KairosDBOnly {
		return reasonType
	}
	return ""
}

// sample returns until when a sample lives, in milliseconds or forever, and why
// it cannot be written, "" if it can.
func (p *writePass) sample(k model.Kind, cols *model.Columns, i int) (expiryMS int64, reason string) {
	w := p.w
	ms := cols.Times[i]
	if ms < math.MinInt64+w.spec.Width {
		return 0, reasonTime
	}
	expiryMS = model.ExpiryMS(ms, cols.TTL(i))
	switch {
	case expiryMS == forever:
	case expiryMS <= p.nowMS:
		return 0, reasonExpired
	case p.ttl(expiryMS) > model.MaxTTL || expiryMS/1000 > endOf2038+60 && w.index.limited2038():
		return 0, reasonTTL
	}
	switch k {
	case model.Double:
		if f := math.Float64frombits(cols.Values[i]); w.cfg.KairosDBOnly && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return 0, reasonNotFinite
		}
	case model.String:
		text := cols.Bytes(i)
		switch {
		case !utf8.Valid(text):
			return 0, reasonText
		case len(text) > rowtime.MaxStringBytes/2 && modifiedBytes(text) > rowtime.MaxStringBytes:
			return 0, reasonString
		}
	case model.Complex:
		if len(cols.Bytes(i)) != 16 {
			return 0, reasonValue
		}
	case model.Custom:
		if len(cols.Bytes(i)) > rowtime.MaxStringBytes {
			return 0, reasonString
		}
	}
	return expiryMS, ""
}

// A Refusal tells of samples that were taken in and cannot be stored.
type Refusal struct {
	Reason string
	Count  int64
	LastAt time.Time
	Last   string // series, time and, where there is one, the error

	logged time.Time
	silent int64 // since then
}

// Refusals tells of all samples that were dropped since the start, by reason.
func (w *Writer) Refusals() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Refusal
	for _, r := range w.refusals {
		all = append(all, *r)
	}
	return all
}

// refuse counts and tells that n samples of a series are dropped.
func (w *Writer) refuse(reason string, s model.Series, ms int64, n int, err error) {
	w.metrics.refused.WithLabelValues(reason).Add(float64(n))
	if reason == reasonExpired {
		return // nothing is lost
	}
	name := s.String()
	if len(name) > 200 {
		name = name[:200] + "..."
	}
	now := w.now()
	w.mu.Lock()
	r := w.refusals[reason]
	if r == nil {
		r = &Refusal{Reason: reason}
		w.refusals[reason] = r
	}
	r.Count += int64(n)
	r.silent += int64(n)
	r.LastAt, r.Last = now, fmt.Sprintf("%s at %d", name, ms)
	if err != nil {
		r.Last += ": " + err.Error()
	}
	tell, count := now.Sub(r.logged) >= refusalPause, r.silent
	if tell {
		r.logged, r.silent = now, 0
	}
	w.mu.Unlock()
	if tell {
		w.log.Error("samples cannot be stored in Cassandra and are dropped", "reason", reason, "samples", count, "series", name, "time_ms", ms, "error", err)
	}
}
