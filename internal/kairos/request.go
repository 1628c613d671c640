package kairos

import (
	"math"
	"strconv"
	"strings"
	"time"

	"varve/internal/ingest/jsontext"
	"varve/internal/kairos/agg"
	"varve/internal/model"
	"varve/internal/query"
)

// A parser turns a request's JSON into a query. Parsing stops at the first
// object at fault, as KairosDB's does; the context in messages is KairosDB's.
type parser struct {
	nowMS       int64
	regexPrefix string
	aggregators map[string]agg.AggregatorSpec
	groupBys    map[string]agg.GroupBySpec

	top      *value
	bounds   bounds
	programs *int // instructions of all patterns of the request, so far
}

// bounds is the time range of a request.
type bounds struct {
	startMS, endMS int64
	hasStart       bool
}

// A request is a query and what only its answer needs.
type request struct {
	agg.Query
	aliases    []*string // by metric, nil for none
	cacheTime  time.Duration
	identities []identity // by metric, if cacheTime is not 0
	top        *value     // the parsed JSON
}

// parse reads a query. Its faults are *fault.
func (p parser) parse(text []byte) (request, error) {
	req := request{Query: agg.Query{Request: query.Request{Text: string(text)}}}
	top, err := parseText(text, req.Text)
	if err != nil {
		return req, err
	}
	req.top = top
	if err := p.read(&req, top); err != nil {
		return req, locate(top, err)
	}
	return req, nil
}

// read fills req. Its faults do not have paths yet; see locate.
func (p parser) read(req *request, top *value) error {
	if top.kind != jsontext.Object {
		return badRequest("Not a JSON Object: " + top.String())
	}
	p.top, p.programs = top, new(int)
	if err := p.times(); err != nil {
		return err
	}
	req.Range = model.TimeRange{StartMS: p.bounds.startMS, EndMS: p.bounds.endMS}
	var err error
	if req.cacheTime, err = p.cacheTime(); err != nil {
		return err
	}
	if req.Zone, err = zoneOf(top.member("time_zone"), "query"); err != nil {
		return err
	}
	if err := p.plugins(top, ""); err != nil {
		return err
	}
	metrics := top.member("metrics")
	if metrics == nil {
		return badRequest("query.metric[] must have a size of at least 1")
	}
	if metrics.kind != jsontext.Array {
		return metrics.fault("metrics: Expected BEGIN_ARRAY but was " + metrics.kind.String())
	}
	for i := range metrics.items {
		m, err := p.metric(&metrics.items[i], "query.metric["+strconv.Itoa(i)+"]")
		if err != nil {
			return err
		}
		req.Metrics = append(req.Metrics, m)
		req.aliases = append(req.aliases, aliasOf(&metrics.items[i]))
		if req.cacheTime > 0 {
			req.identities = append(req.identities, identityOf(top, &metrics.items[i]))
		}
	}
	return nil
}

func (p *parser) times() error {
	start, ok, err := p.time("start")
	if err != nil {
		return err
	}
	p.bounds = bounds{startMS: start, endMS: math.MaxInt64, hasStart: ok}
	end, ok, err := p.time("end")
	if ok {
		p.bounds.endMS = end
	}
	return err
}

// time reads an absolute or relative time; the absolute one wins.
func (p *parser) time(which string) (ms int64, ok bool, err error) {
	if v := p.top.member(which + "_relative"); !absent(v) {
		s, err := spanOf(v, which+"_relative", "query")
		if err != nil {
			return 0, false, err
		}
		ms, ok = agg.Ago(p.nowMS, s.Value, s.Unit), true
	}
	if v := p.top.member(which + "_absolute"); !absent(v) {
		ms, err = v.long()
		ok = err == nil
	}
	return ms, ok, err
}

// spanOf reads {"value":n,"unit":u}. Faults of the members name field, an unknown unit
// names context.
func spanOf(v *value, field, context string) (agg.Sampling, error) {
	var s agg.Sampling
	if v.kind != jsontext.Object {
		return s, v.fault("java.lang.IllegalStateException: Expected BEGIN_OBJECT but was " + v.kind.String())
	}
	var err error
	if n := v.member("value"); !absent(n) {
		if s.Value, err = n.int32(); err != nil {
			return s, err
		}
	}
	unit := v.member("unit")
	if !absent(unit) {
		if s.Unit, err = unitOf(unit, context); err != nil {
			return s, err
		}
	}
	var messages []string
	if s.Value < 0 {
		messages = append(messages, field+".value must be greater than or equal to 0")
	}
	if absent(unit) {
		messages = append(messages, field+".unit may not be null")
	}
	if messages != nil {
		return s, v.fault(messages...)
	}
	return s, nil
}

func unitOf(v *value, context string) (agg.Unit, error) {
	name, err := v.scalarText()
	if err != nil {
		return 0, err
	}
	unit, err := agg.ParseUnit(name)
	if err != nil {
		return 0, v.fault(context + "." + err.Error())
	}
	return unit, nil
}

// zoneOf reads a zone. If it is absent, it is UTC; KairosDB uses its server's zone.
func zoneOf(v *value, context string) (*time.Location, error) {
	if absent(v) {
		return time.UTC, nil
	}
	name, err := v.scalarText()
	if err != nil {
		return nil, err
	}
	zone, ok := loadZone(name)
	if !ok {
		return nil, v.fault(badZone(context, clipName(name)))
	}
	return zone, nil
}

// cacheTime is the maximum age of a cached answer.
func (p *parser) cacheTime() (time.Duration, error) {
	v := p.top.member("cache_time")
	if absent(v) {
		return 0, nil
	}
	n, err := v.int32()
	if err == nil && n < 0 {
		err = v.fault("cache_time must be greater than or equal to 0")
	}
	return time.Duration(n) * time.Second, err
}

func (p *parser) metric(v *value, context string) (agg.MetricQuery, error) {
	var m agg.MetricQuery
	if v.kind != jsontext.Object {
		return m, v.fault("java.lang.IllegalStateException: Not a JSON Object: " + v.String())
	}
	steps := []func(*agg.MetricQuery, *value, string) error{
		p.name, p.tags, p.span, p.groupBy, p.steps, p.order, p.limit,
	}
	for _, step := range steps {
		if err := step(&m, v, context); err != nil {
			return m, err
		}
	}
	return m, p.plugins(v, context)
}

func (p *parser) name(m *agg.MetricQuery, v *value, context string) error {
	name := v.member("name")
	if name == nil {
		return v.fault(context + ".name may not be null")
	}
	text, err := name.scalarText()
	if err != nil {
		return err
	}
	if text == "" {
		return name.fault(context + ".name may not be empty")
	}
	m.Metric = text
	if exclude := v.member("exclude_tags"); exclude != nil {
		m.WithoutTags = exclude.boolean()
	}
	return nil
}

// aliasOf returns the alias, which the answer repeats.
func aliasOf(metric *value) *string {
	alias := metric.member("alias")
	if absent(alias) || !alias.kind.Scalar() {
		return nil
	}
	text := alias.text // a copy: a pointer into alias would keep the whole request
	return &text
}

func (p *parser) tags(m *agg.MetricQuery, v *value, context string) error {
	tags := v.member("tags")
	if tags == nil {
		return nil
	}
	if tags.kind != jsontext.Object { // null too: a delete without its filter deletes everything
		return tags.fault("java.lang.IllegalStateException: Not a JSON Object: " + tags.String())
	}
	for k := range tags.members {
		tag := &tags.members[k]
		at := context + ".tags[" + strconv.Itoa(k) + "]"
		if tag.name == "" {
			return tags.fault(at + " name must not be empty")
		}
		matcher, err := p.matcher(tag, at)
		if err != nil {
			return err
		}
		// An empty list filters nothing, as in KairosDB.
		if len(matcher.Values)+len(matcher.Patterns) > 0 {
			m.Matchers = append(m.Matchers, matcher)
		}
	}
	return nil
}

func (p *parser) matcher(tag *member, at string) (model.Matcher, error) {
	m := model.Matcher{Tag: tag.name}
	at += "." + clipName(tag.name)
	if tag.value.kind != jsontext.Array {
		return m, p.tagValue(&m, &tag.value, at)
	}
	for i := range tag.value.items {
		if err := p.tagValue(&m, &tag.value.items[i], at); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (p *parser) tagValue(m *model.Matcher, v *value, at string) error {
	if v.isNull() {
		return v.fault(at + " value must not be null or empty")
	}
	text, err := v.scalarText()
	if err != nil {
		return err
	}
	if text == "" {
		return v.fault(at + " value must not be null or empty")
	}
	if err := p.addValue(m, text); err != nil {
		return v.fault(at + " " + err.Error())
	}
	return nil
}

func (p *parser) span(_ *agg.MetricQuery, _ *value, context string) error {
	if !p.bounds.hasStart {
		return badRequest(context + ".start_time relative or absolute time must be set")
	}
	if p.bounds.endMS < p.bounds.startMS {
		return badRequest(context + ".end_time must be greater than the start time")
	}
	return nil
}

func (p *parser) order(m *agg.MetricQuery, v *value, context string) error {
	order := v.member("order")
	if order == nil {
		return nil
	}
	text, err := order.scalarText()
	switch {
	case err != nil:
		return err
	case strings.EqualFold(text, "desc"):
		m.Descending = true
	case !strings.EqualFold(text, "asc"):
		return order.fault(context + ".order must be either 'asc' or 'desc'")
	}
	return nil
}

func (p *parser) limit(m *agg.MetricQuery, v *value, context string) error {
	limit := v.member("limit")
	if limit == nil {
		return nil
	}
	n, err := limit.int32()
	if err != nil {
		return limit.fault(context + ".limit must be a whole number, not " + limit.String())
	}
	m.Limit = int(max(n, 0))
	return nil
}

// plugins refuses every plugin, since there are none.
func (p *parser) plugins(v *value, context string) error {
	plugins := v.member("plugins")
	if absent(plugins) {
		return nil
	}
	return eachNamed(plugins, context+".plugins", func(at, name string, v *value) error {
		return v.fault(at + "." + clipName(name) + " invalid query plugin name")
	})
}
