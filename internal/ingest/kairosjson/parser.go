package kairosjson

import (
	"errors"

	"varve/internal/datatype"
	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

const (
	// maxMessages and maxAnswer limit the faults in one answer, and their bytes. All faults are
	// counted.
	maxMessages = 1000
	maxAnswer   = 256 << 10

	// maxTold limits the bytes of the faults of all lines of one Lines.Store.
	maxTold = 1 << 20

	// scratchKept is the size of the largest buffer that a parser keeps between
	// requests.
	scratchKept = 64 << 10
)

// A phase is where the parser continues with the next block.
type phase uint8

const (
	atStart  phase = iota
	atMetric       // before a metric object of the array
	atPoints       // inside the datapoints of the metric
	atEnd
)

// progress is everything that changes while a body is parsed. A copy is a place to return to, for a
// block that must be parsed again.
type progress struct {
	s        jsontext.Scanner
	phase    phase
	array    bool // the top level is an array
	index    int  // of the metric object
	m        metric
	timeName string // "time" when the metric has one: it wins over timestamp
	messages int    // faults reported so far
	answered int    // bytes of these
	untold   int    // faults beyond maxMessages or most
	held     int    // series that new_series_per_second refused: try again
}

// A parser turns one body into samples. It may be reset and used again.
type parser struct {
	progress
	p     *ingest.Pipeline
	w     *ingest.Writer
	told  []string     // messages for the sender
	most  int          // bytes of these
	names ingest.Names // of the metric, once checked
	arena []byte       // names whose escapes are resolved, of one metric
	value []byte       // a text value whose escapes are resolved

	pending []*ingest.Fault // of the metric that check looks at
	seen    map[string]bool // tag names of that metric, once there are many
	raw     bool            // RawType is known
	types   datatype.Registry
	longest int // a text with escapes that is longer exceeds every limit
	shape   shape
	general bool // without short cuts, for tests
}

func newParser(p *ingest.Pipeline, w *ingest.Writer, types datatype.Registry) *parser {
	c := p.Config()
	most := max(c.MaxMetricBytes, c.MaxTagNameBytes, c.MaxTagValueBytes, c.MaxStringBytes)
	return &parser{p: p, w: w, types: types, longest: jsontext.MaxEscape * int(most), most: maxAnswer}
}

func (p *parser) reset(body []byte) {
	p.progress = progress{s: jsontext.New(body)}
	p.told, p.arena, p.value, p.seen = p.told[:0], emptied(p.arena), emptied(p.value), nil
}

// emptied returns b to be filled again, or nil if it has grown beyond scratchKept.
func emptied(b []byte) []byte {
	if cap(b) > scratchKept {
		return nil
	}
	return b[:0]
}

// done reports whether the whole body was used.
func (p *parser) done() bool { return p.phase == atEnd }

// block parses samples into the Writer's batch, from
// wherever the last block ended. Errors are those of the store.
func (p *parser) block() error {
	// References and decoded names of an earlier block, or of an earlier attempt
	// at this one, may be void.
	clear(p.m.aliases[:])
	p.m.checked = false
	for p.phase != atEnd && !p.w.Full() {
		var err error
		switch p.phase {
		case atStart:
			err = p.start()
		case atMetric:
			err = p.nextMetric()
		case atPoints:
			err = p.points()
		}
		if err != nil {
			if err = p.giveUp(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveUp skips a metric that was refused. A fault of the JSON itself is reported and
// ends the body, since nothing after it can be trusted. Other errors are returned.
func (p *parser) giveUp(err error) error {
	if errors.Is(err, errRefused) {
		p.afterMetric()
		return nil
	}
	var f *ingest.Fault
	if !errors.As(err, &f) {
		return err
	}
	p.tell(f, p.s.Rest())
	p.phase = atEnd
	return nil
}

const noContent = "Invalid json. No content due to end of input."

func (p *parser) start() error {
	c, err := p.s.Peek()
	if err != nil && err.AtEnd {
		return ingest.Faultf(ingest.BadSyntax, noContent)
	}
	if err != nil && p.raw {
		return p.syntaxFault(err)
	}
	if err != nil {
		return ingest.Faultf(ingest.BadSyntax, "%v", err)
	}
	switch c {
	case '[':
		p.s.Next()
		p.array, p.phase = true, atMetric
		return nil
	case '{':
		return p.oneMetric()
	case '"', '\'':
		p.s.Seek(p.s.Offset() + 1) // KairosDB's column is after the quote
	}
	if p.raw {
		return p.syntaxFault(p.s.Errorf("want a metric object, or an array of them"))
	}
	return ingest.Faultf(ingest.BadSyntax, "%v", p.s.Errorf("Use JsonReader.setLenient(true) to accept malformed JSON"))
}

// syntaxFault words an error inside a metric object as KairosDB does. For a line of
// an import it uses plain words, without the number of the line within the line.
func (p *parser) syntaxFault(err *jsontext.SyntaxError) *ingest.Fault {
	if p.raw {
		return ingest.Faultf(ingest.BadSyntax, "malformed JSON: %s at column %d", err.Reason, err.Column)
	}
	if err.AtEnd {
		return ingest.Faultf(ingest.BadSyntax, "java.io.EOFException: %v", err)
	}
	return ingest.Faultf(ingest.BadSyntax, "com.google.gson.stream.MalformedJsonException: %v", err)
}

// nextMetric continues with the next element of the top-level array.
func (p *parser) nextMetric() error {
	first := p.index == 0 && p.m.end == 0
	more, err := p.s.More(']', first)
	if err == nil && !more {
		p.phase = atEnd
		return nil
	}
	if !first {
		p.index++
	}
	var c byte
	if err == nil {
		c, err = p.s.Peek()
	}
	switch {
	case err != nil && err.AtEnd: // KairosDB reports this twice
		p.tell(ingest.Faultf(ingest.BadSyntax, noContent), nil)
		return ingest.Faultf(ingest.BadSyntax, noContent)
	case err != nil:
		return ingest.Faultf(ingest.BadSyntax, "%v", err)
	case c == '{' && p.foreseen():
		return nil
	case c == '{':
		return p.oneMetric()
	}
	return p.notAMetric()
}

func (p *parser) notAMetric() error {
	t, err := p.s.Next()
	if err == nil && !t.Kind.Scalar() {
		err = p.s.Skip(t.Kind)
	}
	if err != nil {
		return p.syntaxFault(err)
	}
	p.m = metric{start: t.Start, end: p.s.Offset()}
	if !p.quiet(ingest.BadSyntax) {
		p.refuseMetric(ingest.Faultf(ingest.BadSyntax, "metric[%d] must be an object but was %s.", p.index, t.Kind))
	}
	return nil
}

// oneMetric reads a metric object, stores its single point, and goes to its
// datapoints.
func (p *parser) oneMetric() error {
	p.arena, p.timeName = p.arena[:0], ""
	start := p.s.Offset()
	p.s.Next()
	if err := p.readMetric(start); err != nil {
		return p.syntaxFault(err)
	}
	p.afterMetric()
	p.learn()
	m := &p.m
	if m.structural != nil || m.hasTime != m.hasValue || (m.points == 0 && !m.hasTime) {
		if !p.check() {
			return nil
		}
	}
	if m.hasTime && m.hasValue {
		if err := p.single(); err != nil {
			return err
		}
	}
	if m.points > 0 {
		p.s.Seek(m.points)
		p.phase = atPoints
	}
	return nil
}

// afterMetric continues after the metric object.
func (p *parser) afterMetric() {
	p.s.Seek(p.m.end)
	p.phase = atMetric
	if !p.array {
		p.phase = atEnd
	}
}

// single stores the point of the members timestamp and value.
func (p *parser) single() error {
	m := &p.m
	if m.value.Kind == jsontext.Null || p.isEmptyText(m.value, m.typ) ||
		(m.value.Kind == jsontext.Array && p.isEmptyArray(m.value)) {
		p.check() // reports it
		return errRefused
	}
	where := point{from: m.start, to: m.end}
	n := decimal.Scan(m.time.Text)
	ms, whole := n.Trunc()
	if n.Len == 0 || n.Len != len(m.time.Text) || n.Dot || !whole {
		return p.refusePoint(where, ingest.BadTime, "timestamp must be a whole number of milliseconds, not '%s'.", ingest.Brief(m.time.Text))
	}
	return p.store(where, ms, m.value, m.typ)
}

// errRefused means that the metric as a whole was refused, and that the refusal was reported.
var errRefused = errors.New("metric refused")

// points stores points of the metric until the block is full. Each point is first
// read in the common form, [ms,number] with one blank at most.
func (p *parser) points() error {
	m := &p.m
	for !p.w.Full() {
		more, serr := p.s.More(']', m.first)
		if serr != nil {
			return p.syntaxFault(serr)
		}
		if !more {
			p.afterMetric()
			return nil
		}
		m.first = false
		err := p.nextPoint()
		m.position++
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) nextPoint() error {
	c, serr := p.s.Peek()
	if serr != nil {
		return p.syntaxFault(serr)
	}
	if c != '[' || p.m.typ != "" {
		return p.point()
	}
	if s := (numbers{p.m.aliases[model.Long], p.m.aliases[model.Double]}); !p.general {
		if n, used := p.common(p.s.Rest(), s, p.m.ttl, p.w.Room()); n > 0 {
			p.s.Seek(p.s.Offset() + used)
			p.m.accepted += n
			p.m.position += n - 1 // and one by the caller
			return nil
		}
	}
	ms, n, value, width := commonPoint(p.s.Rest())
	if width == 0 {
		return p.point()
	}
	at := p.s.Offset()
	p.s.Seek(at + width)
	return p.storeNumber(point{at, at + width, true}, ms, &n, value)
}
