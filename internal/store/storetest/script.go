package storetest

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// An op is one line of a script: something done to a store, or asked of it.
// The language is described in doc.go. Times are kept as absolute
// milliseconds; they are written and read relative to the script's origin when
// they begin with @.
type op struct {
	verb string

	samples []scriptSample // append

	series    model.Series    // read, erase
	matchers  []model.Matcher // select, delete
	metric    string          // select, delete
	within    model.TimeRange // read, select, delete, erase
	desc      bool            // read
	limit     int             // read, select
	summarize string          // read: "", all, none, some
	raw       bool            // select: as the store lists, see doc.go

	names store.NamesQuery

	text  []string // set, unset, get, keys
	delay time.Duration
}

type scriptSample struct {
	series model.Series
	timeMS int64
	value  value
	ttl    uint32
}

// value is a sample's value in a form that == compares bit for bit.
type value struct {
	bits uint64 // fixed kinds
	data string // variable kinds
}

// deletion is what delete and erase do.
func (o op) deletion() store.Deletion {
	if o.verb == "erase" {
		return store.DeletionOf(o.series, o.within)
	}
	return store.Deletion{Metric: o.metric, Matchers: o.matchers, Range: o.within}
}

// parseOp reads one line of a script.
func parseOp(line string, origin time.Time) (o op, err error) {
	s := &scanner{rest: strings.TrimSpace(line), originMS: origin.UnixMilli()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("script line %q: %w", line, err)
		}
	}()
	o = op{verb: s.word(" "), within: model.AllTime}
	s.space()
	switch o.verb {
	case "flush", "merge", "reopen", "crash", "hold", "look":
	case "append":
		o.samples = s.samples()
	case "read", "erase":
		o.series = s.series()
	case "select", "delete":
		o.metric = s.word(" ")
	case "names":
		o.names.Kind = s.nameKind()
	case "advance":
		o.delay = s.duration()
	case "set", "unset", "get", "keys":
		for s.rest != "" {
			o.text = append(o.text, s.word(" "))
			s.space()
		}
	default:
		return o, fmt.Errorf("unknown verb %q", o.verb)
	}
	for s.space(); s.rest != "" && s.err == nil; s.space() {
		s.argument(&o)
	}
	return o, s.err
}

// scanner takes a line apart from the left. After the first error it stands.
type scanner struct {
	rest     string
	originMS int64
	err      error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
	s.rest = ""
}

func (s *scanner) space() { s.rest = strings.TrimLeft(s.rest, " ") }

// took removes prefix if it is there.
func (s *scanner) took(prefix string) (ok bool) {
	s.rest, ok = strings.CutPrefix(s.rest, prefix)
	return ok
}

func (s *scanner) expect(prefix string) {
	if !s.took(prefix) {
		s.fail("expected %q before %q", prefix, s.rest)
	}
}

// word takes a Go string in double quotes, or what comes before any of stops.
func (s *scanner) word(stops string) string {
	if strings.HasPrefix(s.rest, `"`) {
		quoted, err := strconv.QuotedPrefix(s.rest)
		if err != nil {
			s.fail("string without end: %q", s.rest)
			return ""
		}
		s.rest = s.rest[len(quoted):]
		text, _ := strconv.Unquote(quoted)
		return text
	}
	i := strings.IndexAny(s.rest, stops)
	if i < 0 {
		i = len(s.rest)
	}
	text := s.rest[:i]
	s.rest = s.rest[i:]
	return text
}

func (s *scanner) int(stops string, bits int) int64 {
	w := s.word(stops)
	n, err := strconv.ParseInt(w, 10, bits)
	if err != nil {
		s.fail("not a number: %q", w)
	}
	return n
}

func (s *scanner) time(stops string) int64 {
	switch {
	case s.took("min"):
		return math.MinInt64
	case s.took("max"):
		return math.MaxInt64
	case s.took("@"):
		return s.originMS + s.int(stops, 64)
	}
	return s.int(stops, 64)
}

func (s *scanner) duration() time.Duration {
	d, err := time.ParseDuration(s.word(" "))
	if err != nil {
		s.fail("%w", err)
	}
	return d
}

var shortTypes = map[string]model.Type{
	"long": model.TypeLong, "double": model.TypeDouble, "string": model.TypeString,
	"complex": model.TypeComplex, "null": model.TypeNull,
}

func (s *scanner) series() model.Series {
	out := model.Series{Metric: s.word("{")}
	s.expect("{")
	var tags []model.Tag
	for s.err == nil && !s.took("}") {
		s.took(",")
		name := s.word("=")
		s.expect("=")
		tags = append(tags, model.Tag{Name: name, Value: s.word(",}")})
	}
	s.expect(":")
	name := s.word(" ")
	out.Type = model.Type(name)
	if t, ok := shortTypes[name]; ok {
		out.Type = t
	}
	var err error
	if out.Tags, err = model.NewTags(tags...); err != nil {
		s.fail("%w", err)
	}
	return out
}

func (s *scanner) samples() (out []scriptSample) {
	series := s.series()
	for s.space(); s.rest != "" && s.err == nil; s.space() {
		if s.took(";") {
			s.space()
			series = s.series()
			continue
		}
		p := scriptSample{series: series, timeMS: s.time("=")}
		s.expect("=")
		p.value = s.value(series.Type.Kind())
		if s.took("~") {
			p.ttl = uint32(s.int(" ", 32))
		}
		out = append(out, p)
	}
	return out
}

func (s *scanner) value(k model.Kind) value {
	w := s.word(" ~")
	var v value
	var err error
	switch k {
	case model.Long:
		var n int64
		n, err = strconv.ParseInt(w, 10, 64)
		v.bits = uint64(n)
	case model.Double:
		if digits, ok := strings.CutPrefix(w, "0x"); ok {
			v.bits, err = strconv.ParseUint(digits, 16, 64)
			break
		}
		var f float64
		f, err = strconv.ParseFloat(w, 64)
		v.bits = math.Float64bits(f)
	case model.String:
		v.data = w
	case model.Complex, model.Custom:
		var b []byte
		b, err = hex.DecodeString(strings.TrimPrefix(w, "#"))
		v.data = string(b)
	case model.Null:
		if w != "null" {
			err = fmt.Errorf("not null: %q", w)
		}
	}
	if err != nil {
		s.fail("%w", err)
	}
	return v
}

var nameKinds = []string{store.MetricNames: "metrics", store.TagNames: "tagnames", store.TagValues: "tagvalues"}

func (s *scanner) nameKind() store.NameKind {
	w := s.word(" ")
	k := slices.Index(nameKinds, w)
	if k < 0 {
		s.fail("unknown kind of names %q", w)
		return 0
	}
	return store.NameKind(k)
}

// argument takes -option, -option=value, or a matcher.
func (s *scanner) argument(o *op) {
	if !s.took("-") {
		o.matchers = append(o.matchers, s.matcher())
		return
	}
	option := s.word("= ")
	s.took("=")
	switch option {
	case "from":
		o.within.StartMS = s.time(" ")
	case "to":
		o.within.EndMS = s.time(" ")
	case "desc":
		o.desc = true
	case "raw":
		o.raw = true
	case "limit":
		limit := int(s.int(" ", 32))
		if o.verb == "names" {
			o.names.Limit = limit
		} else {
			o.limit = limit
		}
	case "summarize":
		o.summarize = s.word(" ")
	case "metric":
		o.names.Metric = s.word(" ")
	case "tag":
		o.names.Tag = s.word(" ")
	case "prefix":
		o.names.Prefix = s.word(" ")
	case "after":
		o.names.After = s.word(" ")
	case "pattern":
		o.names.Pattern = s.pattern(" ")
	case "delimiter":
		if d := s.word(" "); len(d) == 1 {
			o.names.Delimiter = d[0]
		} else {
			s.fail("a delimiter of %d bytes", len(d))
		}
	default:
		s.fail("unknown option -%s", option)
	}
}

func (s *scanner) pattern(stops string) *model.Pattern {
	p, err := model.NewPattern(s.word(stops))
	if err != nil {
		s.fail("%w", err)
	}
	return p
}

// matcher takes tag=value, tag=value|value, tag=/expression/, each also with != (not),
// ?= (or absent) and !?=.
func (s *scanner) matcher() model.Matcher {
	m := model.Matcher{Tag: s.word("!?=")}
	m.Not = s.took("!")
	m.Absent = s.took("?")
	s.expect("=")
	if s.rest == "" || s.rest[0] == ' ' {
		return m // neither values nor patterns
	}
	for {
		if s.took("/") {
			m.Patterns = append(m.Patterns, s.pattern("/"))
			s.expect("/")
		} else {
			m.Values = append(m.Values, s.word("| "))
		}
		if !s.took("|") {
			return m
		}
	}
}

// format writes o as parseOp reads it.
func (o op) format(origin time.Time) string {
	w := &writer{origin: origin}
	w.WriteString(o.verb)
	switch o.verb {
	case "append":
		w.samples(o.samples)
	case "read", "erase":
		w.WriteString(" " + seriesText(o.series))
	case "select", "delete":
		w.WriteString(" " + quoted(o.metric))
		w.matchers(o.matchers)
	case "names":
		w.names(o.names)
	case "advance":
		w.WriteString(" " + o.delay.String())
	default:
		for _, t := range o.text {
			w.WriteString(" " + quoted(t))
		}
	}
	w.options(o)
	return w.String()
}

type writer struct {
	strings.Builder
	origin time.Time // zero: times are not written relative to it
}

func (w *writer) option(name, text string) {
	if text != "" {
		w.WriteString(" -" + name + "=" + text)
	}
}

func (w *writer) options(o op) {
	if o.within.StartMS != math.MinInt64 {
		w.option("from", w.time(o.within.StartMS))
	}
	if o.within.EndMS != math.MaxInt64 {
		w.option("to", w.time(o.within.EndMS))
	}
	if o.desc {
		w.WriteString(" -desc")
	}
	if o.raw {
		w.WriteString(" -raw")
	}
	if o.limit > 0 {
		w.option("limit", strconv.Itoa(o.limit))
	}
	w.option("summarize", o.summarize)
}

func (w *writer) samples(list []scriptSample) {
	var last model.Series
	for i, p := range list {
		if i == 0 || p.series != last {
			if i > 0 {
				w.WriteString(" ;")
			}
			w.WriteString(" " + seriesText(p.series))
			last = p.series
		}
		w.WriteString(" " + w.time(p.timeMS) + "=" + valueText(p.series.Type.Kind(), p.value))
		if p.ttl > 0 {
			fmt.Fprintf(w, "~%d", p.ttl)
		}
	}
}

func (w *writer) matchers(list []model.Matcher) {
	for _, m := range list {
		var any []string
		for _, v := range m.Values {
			any = append(any, quoted(v))
		}
		for _, p := range m.Patterns {
			any = append(any, "/"+strconv.Quote(p.String())+"/")
		}
		w.WriteString(" " + quoted(m.Tag))
		if m.Not {
			w.WriteByte('!')
		}
		if m.Absent {
			w.WriteByte('?')
		}
		w.WriteString("=" + strings.Join(any, "|"))
	}
}

func (w *writer) names(q store.NamesQuery) {
	w.WriteString(" " + nameKinds[q.Kind])
	quotedIf := func(s string) string {
		if s == "" {
			return ""
		}
		return quoted(s)
	}
	w.option("metric", quotedIf(q.Metric))
	w.option("tag", quotedIf(q.Tag))
	w.option("prefix", quotedIf(q.Prefix))
	w.option("after", quotedIf(q.After))
	if q.Pattern != nil {
		w.option("pattern", strconv.Quote(q.Pattern.String()))
	}
	if q.Delimiter != 0 {
		w.option("delimiter", quoted(string(rune(q.Delimiter))))
	}
	if q.Limit > 0 {
		w.option("limit", strconv.Itoa(q.Limit))
	}
}

// nearOriginMS is how far from the origin times are written relative to it.
const nearOriginMS = 3_600_000

func (w *writer) time(ms int64) string {
	originMS := w.origin.UnixMilli()
	switch {
	case ms == math.MinInt64:
		return "min"
	case ms == math.MaxInt64:
		return "max"
	case !w.origin.IsZero() && ms > originMS-nearOriginMS && ms < originMS+nearOriginMS:
		return fmt.Sprintf("@%d", ms-originMS)
	}
	return strconv.FormatInt(ms, 10)
}

func seriesText(s model.Series) string {
	var b strings.Builder
	b.WriteString(quoted(s.Metric) + "{")
	for i, t := range s.Tags.Slice() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoted(t.Name) + "=" + quoted(t.Value))
	}
	name := string(s.Type)
	for short, t := range shortTypes {
		if t == s.Type {
			name = short
		}
	}
	return b.String() + "}:" + quoted(name)
}

func valueText(k model.Kind, v value) string {
	switch k {
	case model.Long:
		return strconv.FormatInt(int64(v.bits), 10)
	case model.Double:
		if f := math.Float64frombits(v.bits); !math.IsNaN(f) {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return fmt.Sprintf("0x%016x", v.bits)
	case model.String:
		return strconv.Quote(v.data)
	case model.Null:
		return "null"
	}
	return "#" + hex.EncodeToString([]byte(v.data))
}

// quoted writes a name as it is if that is unambiguous, else as a Go string.
func quoted(name string) string {
	plain := name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._") == ""
	if plain {
		return name
	}
	return strconv.Quote(name)
}
