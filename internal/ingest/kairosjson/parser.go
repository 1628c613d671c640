package kairosjson

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"varve/internal/datatype"
	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

const (
	// maxMessages and maxAnswer bound the faults that one answer tells, and
	// their bytes. All faults are counted.
	maxMessages = 1000
	maxAnswer   = 256 << 10

	// scratchKept is how large a buffer may be that a parser keeps between
	// requests.
	scratchKept = 64 << 10
)

// A phase is where the parser goes on with the next block.
type phase uint8

const (
	atStart  phase = iota
	atMetric       // before a metric object of the array
	atPoints       // inside the datapoints of the metric
	atEnd
)

// progress is all that changes while a body is parsed. A copy is a place to
// come back to, for the block that must be parsed again.
type progress struct {
	s        jsontext.Scanner
	phase    phase
	array    bool // the top level is an array
	index    int  // of the metric object
	m        metric
	timeName string // "time" when the metric has one: it wins over timestamp
	messages int    // faults told so far
	answered int    // bytes of these
	untold   int    // faults beyond maxMessages or maxAnswer
	held     bool   // new_series_per_second refused a series: try again
}

// A parser turns one body into samples. It may be reset and used again.
type parser struct {
	progress
	p     *ingest.Pipeline
	w     *ingest.Writer
	told  []string     // messages for the sender
	names ingest.Names // of the metric, once checked
	arena []byte       // names whose escapes are resolved, of one metric
	value []byte       // a text value whose escapes are resolved

	pending []*ingest.Fault // of the metric that check looks at
	seen    map[string]bool // tag names of that metric, once there are many
	raw     bool            // RawType is known
	types   datatype.Registry
	longest int // texts with escapes that are longer are too long for anything
}

func newParser(p *ingest.Pipeline, w *ingest.Writer) *parser {
	c := p.Config()
	most := max(c.MaxMetricBytes, c.MaxTagNameBytes, c.MaxTagValueBytes, c.MaxStringBytes)
	return &parser{p: p, w: w, types: datatype.All(), longest: maxEscape * int(most)}
}

// maxEscape is how many bytes with escapes are one byte without: \u0041.
const maxEscape = 6

func (p *parser) reset(body []byte) {
	p.progress = progress{s: jsontext.New(body)}
	p.told, p.arena, p.value, p.seen = p.told[:0], emptied(p.arena), emptied(p.value), nil
}

// emptied is b to be filled again, or nothing if it has grown large.
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
	// References and decoded names of an earlier block, or of an earlier try
	// at this one, are not to be relied on.
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

// giveUp leaves a metric that is refused, or, after telling it, the whole body
// for a fault of the JSON itself: nothing after that can be trusted. It returns
// errors that are neither.
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

// syntaxFault words an error inside a metric object as KairosDB does. A line of
// an import is told plainly: whoever reads that knows neither Java nor another
// line number than the file's.
func (p *parser) syntaxFault(err *jsontext.SyntaxError) *ingest.Fault {
	if p.raw {
		return ingest.Faultf(ingest.BadSyntax, "malformed JSON: %s at column %d", err.Reason, err.Column)
	}
	if err.AtEnd {
		return ingest.Faultf(ingest.BadSyntax, "java.io.EOFException: %v", err)
	}
	return ingest.Faultf(ingest.BadSyntax, "com.google.gson.stream.MalformedJsonException: %v", err)
}

// nextMetric goes on with the next element of the top-level array.
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
	case err != nil && err.AtEnd: // KairosDB says so twice
		p.tell(ingest.Faultf(ingest.BadSyntax, noContent), nil)
		return ingest.Faultf(ingest.BadSyntax, noContent)
	case err != nil:
		return ingest.Faultf(ingest.BadSyntax, "%v", err)
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

// afterMetric goes on behind the metric object.
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
		p.check() // tells so
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

// errRefused means that the metric as a whole was refused, and that this was
// told.
var errRefused = errors.New("metric refused")

// points stores points of the metric until the block is full. Each point is
// tried in the common form first, [ms,number] without blanks but one.
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
	ms, n, value, width := commonPoint(p.s.Rest())
	if width == 0 {
		return p.point()
	}
	at := p.s.Offset()
	p.s.Seek(at + width)
	return p.storeNumber(point{at, at + width, true}, ms, &n, value)
}

// commonPoint reads [ms,number]. width is 0 when b does not begin with just
// that.
func commonPoint(b []byte) (ms int64, n decimal.Number, value []byte, width int) {
	i := 1 // the bracket
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	first := i
	for i < len(b) && b[i]-'0' <= 9 {
		ms = ms*10 + int64(b[i]-'0')
		i++
	}
	if i == first || i-first > 18 || i+1 >= len(b) || b[i] != ',' {
		return 0, n, nil, 0
	}
	if negative {
		ms = -ms
	}
	i++
	if b[i] == ' ' {
		i++
	}
	n = decimal.Scan(b[i:])
	end := i + n.Len
	if n.Len == 0 || !n.JSON || end >= len(b) || b[end] != ']' {
		return 0, n, nil, 0
	}
	return ms, n, b[i:end], end + 1
}

// A point is where a point stands in the body, for faults.
type point struct {
	from, to int
	listed   bool // in datapoints
}

// point reads one element of datapoints, in any form.
func (p *parser) point() error {
	t, serr := p.s.Next()
	if serr != nil {
		return p.syntaxFault(serr)
	}
	where := point{from: t.Start, listed: true}
	if t.Kind != jsontext.Array {
		if t.Kind == jsontext.Object {
			serr = p.s.Skip(t.Kind)
		}
		if serr != nil {
			return p.syntaxFault(serr)
		}
		where.to = p.s.Offset()
		return p.refusePoint(where, ingest.BadSyntax, "point must be an array of timestamp and value, not %s.", t.Kind)
	}
	parts, n, serr := p.pointParts()
	if serr != nil {
		return p.syntaxFault(serr)
	}
	where.to = p.s.Offset()
	switch {
	case n == 0:
		return p.refusePoint(where, ingest.BadTime, "timestamp cannot be null or empty.")
	case n == 1:
		return p.refusePoint(where, ingest.BadValue, "value cannot be null or empty.")
	case parts[0].Kind == jsontext.Null:
		return p.refusePoint(where, ingest.BadTime, "timestamp may not be null.")
	}
	typ := p.m.typ
	if n >= 3 {
		if !parts[2].Kind.Scalar() || parts[2].Kind == jsontext.Null {
			return p.refusePoint(where, ingest.BadType, "type must be a text, not %s.", parts[2].Kind)
		}
		typ = p.text(parts[2])
	}
	value := parts[1]
	switch {
	case value.Kind == jsontext.Null || p.isEmptyText(value, typ):
		return p.refusePoint(where, ingest.BadValue, "value may not be empty.")
	case value.Kind == jsontext.Array && p.isEmptyArray(value):
		return p.refusePoint(where, ingest.BadValue, "value may not be an empty array.")
	}
	num := decimal.Scan(parts[0].Text)
	ms, fits := num.Trunc()
	if num.Len == 0 || num.Len != len(parts[0].Text) || !fits {
		return p.refusePoint(where, ingest.BadTime, "timestamp must be a number of milliseconds, not %s.", describe(parts[0]))
	}
	return p.store(where, ms, value, typ)
}

// describe is a token for messages.
func describe(t jsontext.Token) string {
	if !t.Kind.Scalar() {
		return t.Kind.String()
	}
	return "'" + ingest.Brief(t.Text) + "'"
}

// pointParts reads the elements of a point, whose bracket was read, and keeps
// the first three.
func (p *parser) pointParts() (parts [3]jsontext.Token, n int, _ *jsontext.SyntaxError) {
	for {
		more, err := p.s.More(']', n == 0)
		if err != nil || !more {
			return parts, n, err
		}
		t, err := p.s.Next()
		if err == nil && !t.Kind.Scalar() {
			err = p.s.Skip(t.Kind)
		}
		if err != nil {
			return parts, n, err
		}
		if n < len(parts) {
			parts[n] = t
		}
		n++
	}
}

// store converts a value by type and adds the sample.
func (p *parser) store(where point, ms int64, v jsontext.Token, typ string) error {
	switch typ {
	case "":
		return p.storeDetected(where, ms, v)
	case "long":
		return p.storeLong(where, ms, v)
	case "double":
		return p.storeDouble(where, ms, v)
	case "string":
		if !v.Kind.Scalar() {
			return p.refusePoint(where, ingest.BadValue, "value must be a text.")
		}
		return p.storeText(where, ms, v)
	}
	if known := p.types.Named(typ); known != nil {
		return p.storeTyped(where, ms, v, known)
	}
	if name, ok := strings.CutPrefix(typ, RawType); ok && p.raw {
		return p.storeRaw(where, ms, v, model.Type(name))
	}
	return p.refuse(where, ingest.BadType, "", "Unregistered data point type '%s'", ingest.Brief(typ))
}

const notFinite = "value must be finite and fit a 64-bit float."

// storeDetected finds out the type as KairosDB does, except that NaN, Infinity
// and -Infinity without quotes are refused: Python's json module writes them for
// doubles, and as text they would give the metric a text series.
func (p *parser) storeDetected(where point, ms int64, v jsontext.Token) error {
	switch v.Kind {
	case jsontext.Object, jsontext.Array:
		return p.refuse(where, ingest.BadValue, "metric", " value is an invalid type")
	case jsontext.Number:
		n := decimal.Scan(v.Text)
		return p.storeNumber(where, ms, &n, v.Text)
	case jsontext.String, jsontext.Word:
		if v.Kind == jsontext.Word && decimal.IsWord(v.Text) {
			return p.refusePoint(where, ingest.NotFinite, notFinite)
		}
		if !v.Escaped && isPlainNumber(v.Text) {
			text := v.Text
			if text[0] == '+' {
				text = text[1:]
			}
			n := decimal.Scan(text)
			if n.Len != len(text) { // .1.2
				return p.refusePoint(where, ingest.BadValue, "value '%s' is not a number.", ingest.Brief(v.Text))
			}
			return p.storeNumber(where, ms, &n, text)
		}
	}
	return p.storeText(where, ms, v)
}

// isPlainNumber is KairosDB's test whether a text is meant as a number: one
// sign or point at most before digits with at most one further point, which is
// not the last.
func isPlainNumber(b []byte) bool {
	if len(b) > 0 && (b[0] == '+' || b[0] == '-' || b[0] == '.') {
		b = b[1:]
	}
	points := 0
	for _, c := range b {
		if c == '.' {
			points++
		} else if c-'0' > 9 {
			return false
		}
	}
	return len(b) > 0 && points <= 1 && b[len(b)-1] != '.'
}

// storeNumber stores a number without a type. A whole number of 64 bits that is
// written without a point is a long, as in KairosDB also when it has an exponent
// (1e3); every other number is a double. KairosDB makes longs of 1e-05, which it
// cuts to 0, and of whole numbers beyond 64 bits, of which it keeps the low ones.
func (p *parser) storeNumber(where point, ms int64, n *decimal.Number, text []byte) error {
	if !n.Dot {
		if v, whole := n.Whole(); whole {
			return p.addLong(where, ms, v)
		}
	}
	return p.addDouble(where, ms, n.Float64(text))
}

func (p *parser) storeLong(where point, ms int64, v jsontext.Token) error {
	text := v.Text
	if v.Kind == jsontext.Number {
		n := decimal.Scan(text)
		if i, fits := n.Trunc(); fits {
			return p.addLong(where, ms, i)
		}
	} else if v.Kind.Scalar() {
		if len(text) > 1 && text[0] == '+' && text[1] != '-' {
			text = text[1:]
		}
		if i, _, fits := decimal.Int(text); fits {
			return p.addLong(where, ms, i)
		}
	}
	return p.refusePoint(where, ingest.BadValue, "value '%s' is not a whole number of 64 bits.", ingest.Brief(v.Text))
}

func (p *parser) storeDouble(where point, ms int64, v jsontext.Token) error {
	f, ok := decimal.Float(v.Text)
	if !ok && decimal.IsWord(v.Text) {
		f, ok = math.Inf(1), true
	}
	if !ok || !v.Kind.Scalar() {
		return p.refusePoint(where, ingest.BadValue, "value '%s' is not a number.", ingest.Brief(v.Text))
	}
	return p.addDouble(where, ms, f)
}

func (p *parser) storeText(where point, ms int64, v jsontext.Token) error {
	text, ok := v.Text, true
	if v.Escaped && len(v.Text) <= p.longest {
		p.value, ok = jsontext.Unescape(p.value[:0], v.Text)
		text = p.value
	}
	if v.Kind == jsontext.True || v.Kind == jsontext.False {
		text, _ = p.bytes(v)
	}
	if !ok {
		return p.refusePoint(where, ingest.BadValue, "value has an invalid escape sequence.")
	}
	if f := p.p.CheckString(text); f != nil {
		return p.refusePoint(where, f.Reason, "value: %s", f.Text)
	}
	return p.addBytes(where, ms, model.String, text)
}

func (p *parser) addLong(where point, ms, v int64) error {
	a := p.m.aliases[model.Long]
	if a == nil {
		var err error
		if a, err = p.resolve(model.Long); err != nil {
			return err
		}
	}
	return p.added(where, p.w.AddLong(a.Ref, ms, v, p.m.ttl))
}

func (p *parser) addDouble(where point, ms int64, v float64) error {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return p.refusePoint(where, ingest.NotFinite, notFinite)
	}
	a := p.m.aliases[model.Double]
	if a == nil {
		var err error
		if a, err = p.resolve(model.Double); err != nil {
			return err
		}
	}
	return p.added(where, p.w.AddDouble(a.Ref, ms, v, p.m.ttl))
}

func (p *parser) addBytes(where point, ms int64, kind model.Kind, v []byte) error {
	a := p.m.aliases[kind]
	if a == nil {
		var err error
		if a, err = p.resolve(kind); err != nil {
			return err
		}
	}
	return p.added(where, p.w.AddBytes(a.Ref, ms, v, p.m.ttl))
}

// added ends a point that the Writer took, or refused for its time.
func (p *parser) added(where point, f *ingest.Fault) error {
	if f != nil {
		return p.refusePoint(where, f.Reason, "%s.", f.Text)
	}
	p.m.accepted++
	return nil
}

// resolve finds the series of the metric for a kind of values. errRefused means
// that the metric cannot be taken, and that this was told.
func (p *parser) resolve(kind model.Kind) (*ingest.Alias, error) {
	m := &p.m
	var head, tail []byte
	if m.hasName {
		from := m.name.Start
		if m.skip {
			// One byte more, at least the colon before the name: aliases made
			// without validation must not serve those that want it.
			from--
		}
		head = p.s.Bytes(from, m.nameEnd)
	}
	if m.tagsEnd > 0 {
		tail = p.s.Bytes(m.tags, m.tagsEnd)
	}
	a := p.w.Find(kind, head, tail)
	if a == nil {
		if !p.check() {
			return nil, errRefused
		}
		var err error
		a, err = p.w.Resolve(kind, head, tail, &p.names)
		var f *ingest.Fault
		if errors.As(err, &f) {
			if f.Reason == ingest.NewSeriesRate {
				p.held = true
			}
			p.refuseNames(f)
			return nil, errRefused
		}
		if err != nil {
			return nil, err
		}
	}
	m.aliases[kind] = a
	return a, nil
}

// later notes a fault of the metric that check tells. What is wrong follows the
// context.
func (p *parser) later(r ingest.Reason, format string, args ...any) {
	f := &ingest.Fault{Reason: r}
	if !p.enough() {
		f.Text = p.context() + fmt.Sprintf(format, args...)
	}
	p.pending = append(p.pending, f)
}

// refuseMetric tells a fault of the metric as a whole.
func (p *parser) refuseMetric(f *ingest.Fault) { p.tell(f, p.s.Bytes(p.m.start, p.m.end)) }

// refuseNames tells that the series of the metric cannot be taken.
func (p *parser) refuseNames(f *ingest.Fault) {
	p.refuseMetric(&ingest.Fault{Reason: f.Reason, Text: p.context() + ": " + f.Text, Err: f.Err})
}

// refusePoint tells a fault of one point, unless the metric as a whole is
// refused: then it tells that and returns errRefused. Texts of the sender among
// args must be brief.
func (p *parser) refusePoint(where point, r ingest.Reason, format string, args ...any) error {
	if where.listed {
		return p.refuse(where, r, "point", format, args...)
	}
	return p.refuse(where, r, "metric", "."+format, args...)
}

// refuse is refusePoint with a choice of what goes before the text: the point,
// the metric, or nothing. The answer numbers points as KairosDB does, by those
// accepted before; /admin/rejected has the position in datapoints.
func (p *parser) refuse(where point, r ingest.Reason, of string, format string, args ...any) error {
	if !p.known() && !p.check() {
		return errRefused
	}
	if p.quiet(r) {
		return nil
	}
	f := &ingest.Fault{Reason: r, Text: fmt.Sprintf(format, args...)}
	switch of {
	case "point":
		text := f.Text
		f.Text = fmt.Sprintf("%s.datapoints[%d].%s", p.context(), p.m.accepted, text)
		if p.m.position != p.m.accepted {
			f.Detail = fmt.Sprintf("%s.datapoints[%d].%s", p.context(), p.m.position, text)
		}
	case "metric":
		f.Text = p.context() + f.Text
	}
	p.tell(f, p.s.Bytes(where.from, where.to))
	return nil
}

// known reports whether a series of the metric was found: then its names are
// valid.
func (p *parser) known() bool {
	for _, a := range p.m.aliases {
		if a != nil {
			return true
		}
	}
	return false
}

// enough reports whether one more fault would neither be told nor kept, so that
// it needs no text: a body may hold tens of millions of them.
func (p *parser) enough() bool {
	return (p.messages == maxMessages || p.answered >= maxAnswer) && p.w.Noted()
}

// quiet counts a fault if that is all there is to do with it.
func (p *parser) quiet(r ingest.Reason) bool {
	if !p.enough() {
		return false
	}
	p.w.Count(r)
	p.untold++
	return true
}

// tell counts a fault and puts it into the answer.
func (p *parser) tell(f *ingest.Fault, input []byte) {
	if p.quiet(f.Reason) {
		return
	}
	p.w.Reject(f, input)
	if p.messages == maxMessages || p.answered >= maxAnswer {
		p.untold++
		return
	}
	text := ingest.Message(f.Text)
	p.told = append(p.told[:p.messages], text)
	p.messages++
	p.answered += len(text)
}

// answer returns the messages for the sender.
func (p *parser) answer() []string {
	told := p.told[:p.messages]
	if p.untold > 0 {
		told = append(told, fmt.Sprintf("and %d more faults, see /admin/rejected", p.untold))
	}
	return told
}
