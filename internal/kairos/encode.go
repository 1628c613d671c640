package kairos

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"varve/internal/datatype"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
)

// An encoder writes the answer to a query.
type encoder struct {
	*answer
	agg.Point // the point being written, here so that it does not escape again for each group

	cache  *answerCache
	began  time.Time
	cached [][]byte // cached answers by metric; nil if cache_time is 0
	times  timeText
	types  datatype.Registry
	typ    *datatype.Type // of the group's values, nil if they need none

	partial bool  // data that cannot be read may be missing
	missing error // why the first missing data is missing
}

// lookUp looks up each metric in the cache and reports whether all were found.
func (e *encoder) lookUp(req *request) bool {
	if req.identities == nil || e.cache.max == 0 {
		return false
	}
	e.cached = make([][]byte, len(req.Metrics))
	all := len(req.Metrics) > 0
	for i, id := range req.identities {
		if !req.Metrics[i].Saves() { // a cached answer would save nothing
			e.cached[i] = e.cache.get(id, e.began, req.cacheTime)
		}
		all = all && e.cached[i] != nil
	}
	return all
}

// fromCache counts the metrics that the cache answered.
func (e *encoder) fromCache() (n int) {
	for _, text := range e.cached {
		if text != nil {
			n++
		}
	}
	return n
}

// encodeQueries writes the results of all metrics of a run, which is nil if all are
// cached.
func (e *encoder) encodeQueries(run *agg.Run, req *request) error {
	began := time.Now()
	e.buf = append(e.buf, `{"queries":[`...)
	for i := range req.Metrics {
		if i > 0 {
			e.buf = append(e.buf, ',')
			if err := e.advance(); err != nil && !e.mayMiss(err) {
				return err
			}
		}
		if e.cached != nil && e.cached[i] != nil {
			e.buf = append(e.buf, e.cached[i]...)
			if err := e.advance(); err != nil {
				return err
			}
			continue
		}
		from, wasSent := e.position(), e.sent
		if err := e.encodeMetric(run, i, metricHead{&req.Metrics[i], req.aliases[i]}); err != nil {
			return err
		}
		if e.cached != nil && !wasSent && !e.sent && !req.Metrics[i].Saves() && e.missing == nil {
			e.cache.put(req.identities[i], e.began, e.since(from))
		}
	}
	e.buf = append(e.buf, ']')
	e.encodePartial()
	if req.Trace {
		var stats agg.Stats
		if run != nil {
			stats = run.Stats()
			began = began.Add(-stats.Wait)
		}
		e.buf = appendTrace(e.buf, stats, began, e.fromCache(), e.total())
	}
	e.buf = append(e.buf, '}')
	return nil
}

// A metricHead is the common beginning of a metric's results.
type metricHead struct {
	*agg.MetricQuery
	alias *string
}

func (m *metricHead) append(dst []byte) []byte {
	dst = append(dst, `{"name":`...)
	dst = appendText(dst, m.Metric)
	if m.alias != nil {
		dst = append(dst, `,"alias":`...)
		dst = appendText(dst, *m.alias)
	}
	return dst
}

func (e *encoder) encodeMetric(run *agg.Run, i int, m metricHead) error {
	result, err := run.Metric(i)
	if e.mayMiss(err) {
		e.encodeMissing(err)
		return nil
	}
	if err != nil {
		return err
	}
	defer result.Close()
	e.buf = append(e.buf, '{')
	at, wasSent := e.position(), e.sent
	e.buf = append(e.buf, `"results":[`...)
	groups, err := e.encodeGroups(result, m)
	if err == nil {
		if part := run.Missing(); e.mayMiss(part) {
			err = part
		}
	}
	missing := e.mayMiss(err)
	if err != nil && !missing {
		return err
	}
	if groups == 0 && !result.Split() && !missing {
		e.encodeNothing(m)
	}
	e.buf = append(e.buf, ']')
	e.encodeSampleSize(at, !wasSent && !e.sent, result.SampleSize())
	if missing {
		e.encodeCause(err)
	}
	e.buf = append(e.buf, '}')
	return nil
}

// encodeSampleSize puts the member where KairosDB has it, before the results
// that begin at a position, or after them if they have been sent.
func (e *encoder) encodeSampleSize(at position, held bool, n int64) {
	var text []byte
	text = append(text, `"sample_size":`...)
	text = strconv.AppendInt(text, n, 10)
	if held {
		e.insert(at, append(text, ','))
		return
	}
	e.buf = append(append(e.buf, ','), text...)
}

func (e *encoder) encodeGroups(result *agg.Result, m metricHead) (groups int, err error) {
	for ; ; groups++ {
		g, err := result.Next()
		if err != nil || g == nil {
			return groups, err
		}
		if groups > 0 {
			e.buf = append(e.buf, ',')
		}
		if err = e.encodeGroupHead(g, m); err == nil {
			err = e.encodePoints(g.Points)
		}
		if err != nil && !e.mayMiss(err) {
			return groups, err
		}
		e.buf = append(e.buf, `]}`...)
		if err != nil {
			return groups + 1, err
		}
	}
}

// encodeNothing writes the answer of KairosDB's releases when there is no data.
func (e *encoder) encodeNothing(m metricHead) {
	e.buf = m.append(e.buf)
	if !m.WithoutTags {
		e.buf = append(e.buf, `,"tags":{}`...)
	}
	e.buf = append(e.buf, `,"values":[]}`...)
}

// encodeGroupHead writes everything before the points. It is complete even after an
// error.
func (e *encoder) encodeGroupHead(g *agg.Group, m metricHead) (err error) {
	e.typ = typeOfGroup(e.types, g.Type)
	e.buf = m.append(e.buf)
	if g.Type != "" { // "": made by `gaps` without data
		e.buf = appendLabels(e.buf, g)
	}
	if !m.WithoutTags {
		e.buf = append(e.buf, `,"tags":`...)
		err = e.appendTags(g.Tags)
	}
	e.buf = append(e.buf, `,"values":[`...)
	if err != nil {
		return err
	}
	return e.advance()
}

func appendLabels(dst []byte, g *agg.Group) []byte {
	dst = append(dst, `,"group_by":[`...)
	for _, l := range g.Labels {
		dst = append(appendLabel(dst, l), ',')
	}
	dst = append(dst, `{"name":"type","type":`...)
	dst = appendText(dst, g.Type)
	return append(dst, `}]`...)
}

func appendLabel(dst []byte, l agg.Label) []byte {
	number := "group_number"
	switch by := l.By.(type) {
	case *agg.TagGroupBy:
		return appendTagLabel(dst, by, l.Tags)
	case *agg.TimeGroupBy:
		dst = append(dst, `{"name":"time","range_size":{"value":`...)
		dst = strconv.AppendInt(dst, by.Size.Value, 10)
		dst = append(dst, `,"unit":"`+by.Size.Unit.String()+`"},"group_count":`...)
		dst = strconv.AppendInt(dst, by.Count, 10)
	case *agg.ValueGroupBy:
		dst = append(dst, `{"name":"value","range_size":`...)
		dst = strconv.AppendInt(dst, by.Size, 10)
	case *agg.BinGroupBy:
		number = "bin_number"
		dst = append(dst, `{"name":"bin","bins":`...)
		dst = appendList(dst, by.Bins, appendDouble)
	default:
		panic(fmt.Sprintf("kairos: label of %T", l.By))
	}
	dst = append(dst, `,"group":{"`+number+`":`...)
	dst = strconv.AppendInt(dst, l.Number, 10)
	return append(dst, `}}`...)
}

// appendList appends what appendOne makes of each.
func appendList[T any](dst []byte, list []T, appendOne func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, one := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendOne(dst, one)
	}
	return append(dst, ']')
}

func appendTagLabel(dst []byte, by *agg.TagGroupBy, values []string) []byte {
	dst = append(dst, `{"name":"tag","tags":`...)
	dst = appendList(dst, by.Tags, appendText)
	dst = append(dst, `,"group":{`...)
	for n, i := range by.Distinct() { // an object must not repeat a member
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, by.Tags[i]), ':')
		dst = appendText(dst, values[i])
	}
	return append(dst, `}}`...)
}

// appendTags writes the tags of a group, which may have a million values. They are
// complete even after an error.
func (a *answer) appendTags(tags []query.TagValues) (err error) {
	a.buf = append(a.buf, '{')
	for i, t := range tags {
		if i > 0 {
			a.buf = append(a.buf, ',')
		}
		a.buf = append(appendText(a.buf, t.Name), ":["...)
		for k, v := range t.Values {
			if k > 0 {
				a.buf = append(a.buf, ',')
			}
			if a.buf = appendText(a.buf, v); err == nil && k%encodedAtOnce == encodedAtOnce-1 {
				err = a.advance()
			}
		}
		a.buf = append(a.buf, ']')
	}
	a.buf = append(a.buf, '}')
	return err
}

// pointRoom bounds the size of a point with a number.
const pointRoom = 64

func (e *encoder) encodePoints(points agg.Stream) error {
	if blocks, ok := points.(agg.Blocks); ok {
		return e.encodeBlocks(blocks)
	}
	for first := true; ; first = false {
		ok, err := points.Next(&e.Point)
		if err != nil || !ok {
			return err
		}
		e.grow(pointRoom)
		if !first {
			e.buf = append(e.buf, ',')
		}
		if e.buf, err = e.appendPoint(e.buf, &e.Point); err != nil {
			return err
		}
		if err := e.advance(); err != nil {
			return err
		}
	}
}

// encodeBlocks is encodePoints for points in columns.
func (e *encoder) encodeBlocks(blocks agg.Blocks) error {
	for first := true; ; first = false {
		c, kind, err := blocks.NextBlock()
		if err != nil || c == nil {
			return err
		}
		if !first {
			e.buf = append(e.buf, ',')
		}
		if err := e.encodeColumns(c, kind); err != nil {
			return err
		}
	}
}

// encodedAtOnce is how many points, or tag values, are written between two checks of
// the buffer.
const encodedAtOnce = 256

// encodeColumns writes at least one point.
func (e *encoder) encodeColumns(c *model.Columns, kind model.Kind) (err error) {
	for from, n := 0, c.Len(); from < n; from += encodedAtOnce {
		to := min(n, from+encodedAtOnce)
		e.grow((to - from) * pointRoom)
		if kind.Fixed() {
			e.buf, err = e.appendFixed(e.buf, kind, c.Times[from:to], c.Values[from:to])
		} else {
			e.buf, err = e.appendVariable(e.buf, kind, c, from, to)
		}
		if err != nil {
			return err
		}
		if to < n {
			e.buf = append(e.buf, ',')
		}
		if err := e.advance(); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) appendFixed(dst []byte, kind model.Kind, times []int64, values []uint64) ([]byte, error) {
	for i, ms := range times {
		dst = append(dst, '[')
		dst = e.times.append(dst, ms)
		dst = append(dst, ',')
		if kind == model.Long {
			dst = strconv.AppendInt(dst, int64(values[i]), 10)
		} else {
			v := math.Float64frombits(values[i])
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return dst, notANumber(ms, v)
			}
			dst = appendDouble(dst, v)
		}
		dst = append(dst, ']', ',')
	}
	return dst[:len(dst)-1], nil
}

func (e *encoder) appendVariable(dst []byte, kind model.Kind, c *model.Columns, from, to int) (_ []byte, err error) {
	for i := from; i < to; i++ {
		if i > from {
			dst = append(dst, ',')
		}
		p := agg.Point{TimeMS: c.Times[i], Kind: kind}
		if kind.Variable() {
			p.Data = c.Bytes(i)
		}
		if dst, err = e.appendPoint(dst, &p); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendPoint writes a point of a group whose type is e.typ.
func (e *encoder) appendPoint(dst []byte, p *agg.Point) ([]byte, error) {
	dst = append(dst, '[')
	dst = e.times.append(dst, p.TimeMS)
	dst = append(dst, ',')
	switch p.Kind {
	case model.Long:
		dst = strconv.AppendInt(dst, int64(p.Bits), 10)
	case model.Double:
		v := math.Float64frombits(p.Bits)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return dst, notANumber(p.TimeMS, v)
		}
		dst = appendDouble(dst, v)
	case model.String:
		dst = appendText(dst, string(p.Data))
	case model.Null:
		dst = append(dst, "null"...)
	default:
		var err error
		if dst, err = appendTyped(dst, p, e.typ); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// notANumber has KairosDB's text: clients match on it.
func notANumber(ms int64, v float64) error {
	text := "NaN"
	if math.IsInf(v, 0) {
		text = map[bool]string{true: "Infinity", false: "-Infinity"}[v > 0]
	}
	return &query.ComputeError{Reason: fmt.Sprintf("NaN or Infinity:%s data point=DoubleDataPoint{m_value=%s, m_timestamp=%d}", text, text, ms)}
}
