package write

import (
	"fmt"
	"math"
	"unicode/utf8"

	"varve/internal/cassandra/kairosrows/rowkey"
	"varve/internal/cassandra/layout"
	"varve/internal/clip"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// Reasons why a sample is not written, in addition to those of cql.Reason.
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

// refusedSeries returns why no sample of a series can be written, "" if samples can be.
func (c Config) refusedSeries(s model.Series) string {
	if s.Metric == "" || !utf8.ValidString(s.Metric) {
		return reasonName // no index table accepts it
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
		return reasonType // KairosDB decodes it only if it is found through row_key_index
	}
	if c.KairosDBOnly {
		return reasonType
	}
	return ""
}

// refusedValue returns why a value cannot be written, "" if it can.
func (c Config) refusedValue(k model.Kind, bits uint64, data []byte) string {
	switch k {
	case model.Double:
		if f := math.Float64frombits(bits); c.KairosDBOnly && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return reasonNotFinite
		}
	case model.String:
		switch {
		case !utf8.Valid(data):
			return reasonText
		case len(data) > rowtime.MaxStringBytes/2 && modifiedBytes(data) > rowtime.MaxStringBytes:
			return reasonString
		}
	case model.Complex:
		if len(data) != 16 {
			return reasonValue
		}
	case model.Custom:
		if len(data) > rowtime.MaxStringBytes {
			return reasonString
		}
	}
	return ""
}

// refusedTime returns why a sample with this time and expiry cannot be written to a row of at
// most the given width, "" if it can.
func refusedTime(width, nowMS, ms, expiryMS int64) string {
	switch {
	case ms < math.MinInt64+width:
		return reasonTime
	case expiryMS != rowkey.Forever && ceilSeconds(expiryMS-nowMS) > model.MaxTTL:
		return reasonTTL
	}
	return ""
}

// sample returns until when a sample lives, in milliseconds or rowkey.Forever, and why it
// cannot be written, "" if it can.
func (p *writePass) sample(k model.Kind, cols *model.Columns, i int) (expiryMS int64, reason string) {
	w := p.w
	ms := cols.Times[i]
	expiryMS = model.ExpiryMS(ms, cols.TTL(i))
	if reason := refusedTime(w.spec.Width, p.nowMS, ms, expiryMS); reason != "" {
		return 0, reason
	}
	if expiryMS != rowkey.Forever && expiryMS <= p.nowMS {
		return 0, reasonExpired
	}
	if expiryMS != rowkey.Forever && expiryMS/1000 > endOf2038+60 && w.index.limited2038() {
		return 0, reasonTTL
	}
	var bits uint64
	var data []byte
	switch {
	case k.Fixed():
		bits = cols.Values[i]
	case k.Variable():
		data = cols.Bytes(i)
	}
	return expiryMS, w.cfg.refusedValue(k, bits, data)
}

// CheckSeries returns why no sample of a series can be stored in a keyspace of this layout, nil
// if samples can be.
func (c Config) CheckSeries(s model.Series) error {
	if reason := c.refusedSeries(s); reason != "" {
		return inputError(reason)
	}
	if _, err := keyOf(s, 0, nil); err != nil {
		return &store.InputError{Reason: err.Error()}
	}
	return nil
}

// CheckSample implements store.SampleChecker for any keyspace of this layout.
func (c Config) CheckSample(nowMS int64, k model.Kind, ms int64, bits uint64, data []byte, ttl uint32) error {
	if reason := refusedTime(rowtime.MaxWidth, nowMS, ms, model.ExpiryMS(ms, ttl)); reason != "" {
		return inputError(reason)
	}
	if reason := c.refusedValue(k, bits, data); reason != "" {
		return inputError(reason)
	}
	return nil
}

// refusalTexts describe the problem and how to solve it.
var refusalTexts = map[string]string{
	reasonNotFinite: "the value is not finite, which makes queries of KairosDB nodes fail; where there are none, set cassandra.write.kairosdb_only to false",
	reasonType:      "KairosDB does not know the type of the value; where there are no KairosDB nodes, set cassandra.write.kairosdb_only to false",
	reasonName:      "the names must be UTF-8, and that of the metric must not be empty",
	reasonString:    fmt.Sprintf("the value takes more than %d bytes in KairosDB's rows, where NUL takes two", rowtime.MaxStringBytes),
	reasonText:      "the value is not UTF-8",
	reasonValue:     "the value has a wrong length",
	reasonTime:      "the time is too low for KairosDB's rows",
	reasonTTL:       fmt.Sprintf("the sample would live for more than %d seconds from now", int64(model.MaxTTL)),
}

func inputError(reason string) error { return &store.InputError{Reason: refusalTexts[reason]} }

// Refusals returns counts of all samples dropped since the start, by reason.
func (w *Writer) Refusals() []layout.Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []layout.Refusal
	for _, r := range w.refusals {
		all = append(all, *r)
	}
	return all
}

// refuse counts and logs that n samples of a series are dropped.
func (w *Writer) refuse(reason string, s model.Series, ms int64, n int, err error) {
	w.metrics.refused.WithLabelValues(reason).Add(float64(n))
	if reason == reasonExpired {
		return // no data is lost: see deleteSample
	}
	name := clip.Text(s.String(), 200)
	w.mu.Lock()
	r := w.refusals[reason]
	if r == nil {
		r = &layout.Refusal{Reason: reason}
		w.refusals[reason] = r
	}
	r.Count += int64(n)
	r.LastAt, r.Last = w.now().UTC(), fmt.Sprintf("%s at %d", name, ms)
	if err != nil {
		r.Last += ": " + err.Error()
	}
	w.mu.Unlock()
	// Package loglimit limits the lines of each message: with the reason in it, of each reason.
	w.log.Error("samples cannot be stored in Cassandra and are dropped: "+reason, "reason", reason, "samples", n, "series", name, "time_ms", ms, "error", err)
}
