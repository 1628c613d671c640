package opentsdb

import (
	"bytes"
	"cmp"
	"errors"
	"math"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

const (
	// maxTold and maxAnswer limit the faults in one answer, and their bytes. All faults are
	// counted.
	maxTold   = 1000
	maxAnswer = 256 << 10

	// pointBytes is how many bytes of a refused point the answer repeats.
	pointBytes = 1024

	// scratchKept is the size of the largest buffer that a parser keeps between
	// requests.
	scratchKept = 64 << 10

	// milliseconds is the lowest timestamp that is not in seconds: OpenTSDB takes more than ten
	// digits for milliseconds.
	milliseconds = 10_000_000_000
)

// OpenTSDB's texts.
var (
	faultMetric = ingest.Faultf(ingest.BadName, "Metric name was empty")
	faultTime   = ingest.Faultf(ingest.BadTime, "Invalid timestamp")
	faultEmpty  = ingest.Faultf(ingest.BadValue, "Empty value")
	faultTags   = ingest.Faultf(ingest.NoTags, "Missing tags")
	faultValue  = ingest.Faultf(ingest.BadValue, "Unable to parse value to a number")
	faultFinite = ingest.Faultf(ingest.NotFinite, "Unable to parse value to a number: it must be finite")
	faultObject = ingest.Faultf(ingest.BadSyntax, "A data point must be an object")
	faultLine   = ingest.Faultf(ingest.BadSyntax, "A line must be: name value timestamp")
)

// A told fault is one entry of errors in the answer.
type told struct {
	point []byte // as it was sent
	text  string
}

// progress is everything that changes while a body is parsed. A copy is a place to return to, for a
// block that must be parsed again.
type progress struct {
	s        jsontext.Scanner
	started  bool
	array    bool
	first    bool // no element of the array was read yet
	done     bool
	failed   int
	shown    int    // faults that the answer tells
	answered int    // bytes of these
	held     int    // series that new_series_per_second refused
	heldWhy  string // the first of them
	unparsed string
}

// A parser turns one body into samples. It may be reset and used again.
type parser struct {
	progress
	p      *ingest.Pipeline
	w      *ingest.Writer
	lines  bool // the body is plain text lines
	faults []told
	names  ingest.Names
	arena  []byte // texts whose escapes are resolved

	longest int // a name with escapes that is longer exceeds every limit
}

func newParser(p *ingest.Pipeline, w *ingest.Writer) *parser {
	c := p.Config()
	return &parser{p: p, w: w, longest: jsontext.MaxEscape * int(max(c.MaxMetricBytes, c.MaxTagNameBytes, c.MaxTagValueBytes))}
}

func (p *parser) reset(body []byte, lines bool) {
	p.progress = progress{s: jsontext.New(body), first: true}
	p.lines = lines
	clear(p.faults)
	p.faults = p.faults[:0]
	if cap(p.arena) > scratchKept {
		p.arena = nil
	}
}

// block parses samples into the Writer's batch, from
// wherever the last block ended. Errors are those of the store.
func (p *parser) block() error {
	for !p.done && !p.w.Full() {
		var input []byte
		var err error
		if p.lines {
			input, err = p.nextLine()
		} else {
			input, err = p.nextPoint()
		}
		if err == nil {
			continue
		}
		if err = p.tell(input, err); err != nil {
			return err
		}
	}
	return nil
}

// tell counts a fault of input and puts it into the answer. It returns errors that are not faults,
// and a fault of the JSON itself ends the body.
func (p *parser) tell(input []byte, err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntaxError](err); ok {
		p.unparsed, p.done = syntax.Error(), true
		p.w.Reject(ingest.Faultf(ingest.BadSyntax, "%v", syntax), p.s.Rest())
		return nil
	}
	var f *ingest.Fault
	if !errors.As(err, &f) {
		return err
	}
	p.w.Reject(f, input)
	p.failed++
	if f.Reason == ingest.NewSeriesRate {
		p.held, p.heldWhy = p.held+1, cmp.Or(p.heldWhy, f.Text)
	}
	if p.shown < maxTold && p.answered < maxAnswer {
		p.faults = append(p.faults[:p.shown], told{input, ingest.Message(f.Text)})
		p.shown++
		p.answered += min(len(input), pointBytes) + len(f.Text)
	}
	return nil
}

// nextPoint stores the next point of a JSON body.
func (p *parser) nextPoint() (input []byte, err error) {
	if !p.started {
		p.started = true
		c, err := p.s.Peek()
		if err != nil && err.AtEnd {
			p.done = true // an empty body is not a fault
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if p.array = c == '['; p.array {
			p.s.Next()
		}
	} else if !p.array {
		p.done = true
		return nil, nil
	}
	if p.array {
		more, err := p.s.More(']', p.first)
		if err != nil {
			return nil, err
		}
		if !more {
			p.done = true
			return nil, nil
		}
		p.first = false
	}
	return p.point()
}

// A dataPoint is where the parts of a point are.
type dataPoint struct {
	metric    jsontext.Token
	metricEnd int
	time      jsontext.Token
	value     jsontext.Token
	tags      int // offset of the brace
	tagsEnd   int // 0: no tags
}

func (p *parser) point() ([]byte, error) {
	t, serr := p.s.Next()
	if serr != nil {
		return nil, serr
	}
	if t.Kind != jsontext.Object {
		if t.Kind == jsontext.Array {
			serr = p.s.Skip(t.Kind)
		}
		if serr != nil {
			return nil, serr
		}
		return p.s.Bytes(t.Start, p.s.Offset()), faultObject
	}
	var d dataPoint
	for first := true; ; first = false {
		more, err := p.s.More('}', first)
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		if err := p.member(&d); err != nil {
			return nil, err
		}
	}
	if err := p.store(&d); err != nil {
		return p.s.Bytes(t.Start, p.s.Offset()), err
	}
	return nil, nil
}

func (p *parser) member(d *dataPoint) *jsontext.SyntaxError {
	name, err := p.s.Name()
	if err != nil {
		return err
	}
	t, err := p.s.Next()
	if err == nil && !t.Kind.Scalar() {
		err = p.s.Skip(t.Kind)
	}
	if err != nil {
		return err
	}
	switch string(name.Text) {
	case "metric":
		d.metric, d.metricEnd = t, p.s.Offset()
	case "timestamp":
		d.time = t
	case "value":
		d.value = t
	case "tags":
		if t.Kind == jsontext.Object {
			d.tags, d.tagsEnd = t.Start, p.s.Offset()
		}
	}
	return nil
}

// store checks a point in OpenTSDB's order and adds it to the batch.
func (p *parser) store(d *dataPoint) error {
	if !isText(d.metric) {
		return faultMetric
	}
	ms, ok := parseTime(d.time.Text)
	if !ok {
		return faultTime
	}
	if !isText(d.value) {
		return faultEmpty
	}
	if d.tagsEnd == 0 {
		return faultTags
	}
	v, f := parseValue(d.value.Text)
	if f != nil {
		return f
	}
	head, tail := p.s.Bytes(d.metric.Start, d.metricEnd), p.s.Bytes(d.tags, d.tagsEnd)
	a := p.w.Find(v.kind, head, tail)
	if a == nil {
		if err := p.readNames(d); err != nil {
			return err
		}
		var err error
		if a, err = p.w.Resolve(v.kind, head, tail, &p.names); err != nil {
			return err
		}
	}
	return p.add(a, ms, v)
}

func isText(t jsontext.Token) bool {
	return t.Kind.Scalar() && t.Kind != jsontext.Null && len(t.Text) > 0
}

// readNames decodes metric and tags.
func (p *parser) readNames(d *dataPoint) error {
	p.names.Reset()
	p.arena = p.arena[:0]
	var ok bool
	if p.names.Metric, ok = p.text(d.metric); !ok {
		return ingest.Faultf(ingest.BadName, "metric name has an invalid escape sequence")
	}
	s := p.s
	s.Seek(d.tags + 1)
	for first := true; ; first = false {
		more, err := s.More('}', first)
		if err != nil {
			return ingest.Faultf(ingest.BadTag, "tags: %v", err)
		}
		if !more {
			break
		}
		name, err := s.Name()
		if err != nil {
			return ingest.Faultf(ingest.BadTag, "tags: %v", err)
		}
		if len(p.names.Tags) == p.p.Config().MaxTags {
			return ingest.TooMany(p.p.Config().MaxTags, p.names.Metric)
		}
		value, err := s.Next()
		if err != nil {
			return ingest.Faultf(ingest.BadTag, "tags: %v", err)
		}
		if !value.Kind.Scalar() || value.Kind == jsontext.Null {
			return ingest.Faultf(ingest.BadTag, "the value of tag %s must be a text", ingest.Brief(name.Text))
		}
		var tag model.Tag
		var okName, okValue bool
		tag.Name, okName = p.text(name)
		tag.Value, okValue = p.text(value)
		if !okName || !okValue {
			return ingest.Faultf(ingest.BadTag, "tag %s has an invalid escape sequence", ingest.Brief(name.Text))
		}
		p.names.Tags = append(p.names.Tags, tag)
	}
	if len(p.names.Tags) == 0 {
		return faultTags
	}
	return nil
}

// text returns the text of a scalar, which shares memory with the body or the
// arena.
func (p *parser) text(t jsontext.Token) (_ string, ok bool) {
	if !t.Escaped || len(t.Text) > p.longest { // too long even when resolved
		return ingest.View(t.Text), true
	}
	from := len(p.arena)
	p.arena, ok = jsontext.Unescape(p.arena, t.Text)
	return ingest.View(p.arena[from:]), ok
}

// A value is a long or a double.
type value struct {
	kind   model.Kind
	long   int64
	double float64
}

// parseValue reads a number as OpenTSDB does: digits alone are a long. A whole
// number beyond 64 bits, which OpenTSDB refuses, becomes a double.
func parseValue(text []byte) (v value, _ *ingest.Fault) {
	if len(text) > 1 && text[0] == '+' && text[1] != '-' {
		text = text[1:]
	}
	n := decimal.Scan(text)
	if n.Len == 0 || n.Len != len(text) {
		if decimal.IsWord(text) {
			return v, faultFinite
		}
		return v, faultValue
	}
	if i, ok := n.Int64(); ok {
		return value{kind: model.Long, long: i}, nil
	}
	f := n.Float64(text)
	if math.IsInf(f, 0) {
		return v, faultFinite
	}
	return value{kind: model.Double, double: f}, nil
}

// parseTime reads seconds, or milliseconds when there are more than ten digits.
// A fraction is cut off.
func parseTime(text []byte) (ms int64, ok bool) {
	n := decimal.Scan(text)
	t, fits := n.Trunc()
	if n.Len == 0 || n.Len != len(text) || !fits || t <= 0 {
		return 0, false
	}
	if t < milliseconds {
		t *= 1000
	}
	return t, true
}

func (p *parser) add(a *ingest.Alias, ms int64, v value) error {
	var f *ingest.Fault
	if v.kind == model.Long {
		f = p.w.AddLong(a.Ref, ms, v.long, a.TTL)
	} else {
		f = p.w.AddDouble(a.Ref, ms, v.double, a.TTL)
	}
	if f != nil {
		return f
	}
	return nil
}

// nextLine stores the next line of a plain text body: name value timestamp. The
// last one needs no line end: the length of the body says that it is whole.
func (p *parser) nextLine() (input []byte, err error) {
	rest := p.s.Rest()
	if len(rest) == 0 {
		p.done = true
		return nil, nil
	}
	line, end := rest, len(rest)
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		line, end = rest[:i], i+1
	}
	p.s.Seek(p.s.Offset() + end)
	return line, p.line(line)
}

func (p *parser) line(line []byte) error {
	name, rest := ingest.CutWord(line)
	if len(name) == 0 {
		return nil // an empty line
	}
	number, rest := ingest.CutWord(rest)
	at, rest := ingest.CutWord(rest)
	if extra, _ := ingest.CutWord(rest); len(at) == 0 || len(extra) > 0 {
		return faultLine
	}
	v, f := parseValue(number)
	if f != nil {
		return f
	}
	ms, ok := parseTime(at)
	if !ok {
		return faultTime
	}
	a := p.w.Find(v.kind, name, nil)
	if a == nil {
		if f := p.splitName(name); f != nil {
			return f
		}
		var err error
		if a, err = p.w.Resolve(v.kind, name, nil, &p.names); err != nil {
			return err
		}
	}
	return p.add(a, ms, v)
}

// splitName reads name;tag=value;... A name without tags gets add=tag, like an
// untagged put.
func (p *parser) splitName(word []byte) *ingest.Fault {
	p.names.Reset()
	metric, tags, more := bytes.Cut(word, []byte{';'})
	p.names.Metric = ingest.View(metric)
	for more && len(p.names.Tags) <= p.p.Config().MaxTags {
		var tag []byte
		tag, tags, more = bytes.Cut(tags, []byte{';'})
		name, value, ok := bytes.Cut(tag, []byte{'='})
		if !ok {
			return ingest.Faultf(ingest.BadTag, "tag[%d] must be in the format 'name=value'.", len(p.names.Tags))
		}
		p.names.Tags = append(p.names.Tags, model.Tag{Name: ingest.View(name), Value: ingest.View(value)})
	}
	if len(p.names.Tags) == 0 {
		p.names.Tags = append(p.names.Tags, model.Tag{Name: "add", Value: "tag"})
	}
	return nil
}
