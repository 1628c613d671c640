package kairosjson

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
	"varve/internal/suggest"
)

// A metric is what the first pass finds out about one metric object.
type metric struct {
	start, end int // of the object

	name       jsontext.Token
	nameEnd    int
	hasName    bool
	tags       int // offset of the opening brace, tagsEnd after the closing one
	tagsEnd    int // 0: no tags
	time       jsontext.Token
	value      jsontext.Token
	hasTime    bool
	hasValue   bool // also when it is null
	points     int  // offset after the opening bracket, 0: none
	pointsEnd  int  // offset of the closing one
	typ        string
	ttl        uint32        // as it was sent
	skip       bool          // skip_validate
	structural *ingest.Fault // first member of the wrong kind
	unknown    []byte        // name of the first member that is not known

	text     string // context, once made
	accepted int    // points stored so far: the index in messages
	position int    // points read so far
	first    bool   // no point was read yet
	checked  bool   // names holds the decoded names, and they are valid
	aliases  [model.Custom + 1]*ingest.Alias
}

// readMetric is the first pass. The opening brace was read.
func (p *parser) readMetric(start int) *jsontext.SyntaxError {
	p.m = metric{start: start, first: true}
	m := &p.m
	for first := true; ; first = false {
		more, err := p.s.More('}', first)
		if err != nil {
			return err
		}
		if !more {
			m.end = p.s.Offset()
			return nil
		}
		name, err := p.s.Name()
		if err != nil {
			return err
		}
		t, err := p.s.Next()
		if err != nil {
			return err
		}
		if err := p.member(name.Text, t); err != nil {
			return err
		}
	}
}

// member takes one member of a metric object; t is the beginning of its value.
func (p *parser) member(name []byte, t jsontext.Token) *jsontext.SyntaxError {
	m := &p.m
	if !t.Kind.Scalar() {
		if err := p.s.Skip(t.Kind); err != nil {
			return err
		}
	}
	null := t.Kind == jsontext.Null
	switch string(name) {
	case "name":
		if p.wantScalar(t, "a string") {
			m.name, m.nameEnd, m.hasName = t, p.s.Offset(), !null
		}
	case "tags":
		empty := t.Kind == jsontext.Array && p.isEmptyArray(t)
		switch {
		case t.Kind == jsontext.Object:
			m.tags, m.tagsEnd = t.Start, p.s.Offset()
		case null, empty:
			m.tagsEnd = 0
		default:
			p.expected("BEGIN_OBJECT", t)
		}
	case "timestamp":
		if p.wantScalar(t, "a long") && !null && p.timeName != "time" {
			m.time, m.hasTime = t, true
		}
	case "time":
		if p.wantScalar(t, "a long") && !null {
			m.time, m.hasTime, p.timeName = t, true, "time"
		}
	case "value":
		m.value, m.hasValue = t, true
	case "datapoints":
		switch {
		case t.Kind == jsontext.Array:
			m.points, m.pointsEnd = t.Start+1, p.s.Offset()-1
		case !null:
			p.expected("BEGIN_ARRAY", t)
		}
	case "type":
		if p.wantScalar(t, "a string") && !null {
			m.typ = ownType(p.text(t))
		}
	case "ttl":
		if p.wantScalar(t, "an int") && !null {
			p.readTTL(t)
		}
	case "skip_validate":
		if t.Kind == jsontext.Number || !t.Kind.Scalar() {
			p.expected("a boolean", t)
		}
		m.skip = t.Kind == jsontext.True || (t.Kind == jsontext.String && string(t.Text) == "true")
	default:
		if m.unknown == nil {
			m.unknown = name
		}
	}
	return nil
}

// pointMembers are the members of a metric object that have points.
var pointMembers = []string{"datapoints", "timestamp", "value", "time"}

// ownType is a copy of a type name that stays valid when the arena is reused.
func ownType(s string) string {
	switch s {
	case "long":
		return "long"
	case "double":
		return "double"
	case "string":
		return "string"
	}
	return strings.Clone(s)
}

func (p *parser) isEmptyArray(t jsontext.Token) bool {
	s := p.s
	s.Seek(t.Start + 1)
	c, err := s.Peek()
	return err == nil && c == ']'
}

func (p *parser) wantScalar(t jsontext.Token, what string) bool {
	if !t.Kind.Scalar() {
		p.expected(what, t)
	}
	return t.Kind.Scalar()
}

// expected notes a value of the wrong kind, in the words of KairosDB's reader.
func (p *parser) expected(what string, t jsontext.Token) {
	if p.m.structural != nil {
		return
	}
	at := t.Start
	switch {
	case t.Kind == jsontext.String || !t.Kind.Scalar():
		at++ // it counts the opening byte as read
	case t.Kind == jsontext.Word, t.Kind == jsontext.Number && bytes.ContainsAny(t.Text, ".eE"):
	default:
		at += len(t.Text) // and whole numbers and words that it knows
	}
	p.m.structural = p.expectedFault(what, t.Kind, at)
}

func (p *parser) expectedFault(what string, got jsontext.Kind, at int) *ingest.Fault {
	line, column := p.s.Position(at)
	return ingest.Faultf(ingest.BadSyntax, "java.lang.IllegalStateException: Expected %s but was %s at line %d column %d", what, got, line, column)
}

func (p *parser) readTTL(t jsontext.Token) {
	n := decimal.Scan(t.Text)
	v, ok := n.Trunc()
	if n.Len != len(t.Text) || n.Len == 0 || n.Dot || !ok {
		p.m.structural = ingest.Faultf(ingest.BadTTL, "ttl '%s' must be a number of seconds between 0 and %d", ingest.Brief(t.Text), model.MaxTTL)
		return
	}
	ttl, f := ingest.SentTTL(v)
	if f != nil && p.m.structural == nil {
		p.m.structural = f
	}
	p.m.ttl = ttl
}

// text returns the text of a scalar. It shares memory with the body or with
// the arena.
func (p *parser) text(t jsontext.Token) string {
	b, _ := p.bytes(t)
	return ingest.View(b)
}

// bytes returns the text of a scalar. ok is false for an unknown escape. Escapes of
// a text beyond p.longest stay as they are.
func (p *parser) bytes(t jsontext.Token) (_ []byte, ok bool) {
	switch {
	case t.Kind == jsontext.True:
		return []byte("true"), true
	case t.Kind == jsontext.False:
		return []byte("false"), true
	case !t.Escaped, len(t.Text) > p.longest:
		return t.Text, true
	}
	from := len(p.arena)
	p.arena, ok = jsontext.Unescape(p.arena, t.Text)
	return p.arena[from:len(p.arena):len(p.arena)], ok
}

// context is how messages name the metric.
func (p *parser) context() string {
	m := &p.m
	switch {
	case m.text != "":
	case !m.hasName || len(m.name.Text) == 0:
		m.text = fmt.Sprintf("metric[%d]", p.index)
	default:
		m.text = fmt.Sprintf("metric[%d](name=%s)", p.index, ingest.Brief(p.text(m.name)))
	}
	return m.text
}

// check decodes the names of the metric and reports everything that is wrong with it as a whole, in
// KairosDB's order. It returns whether points may be stored.
func (p *parser) check() bool {
	m := &p.m
	if m.checked {
		return true
	}
	if m.structural != nil {
		p.refuseMetric(m.structural)
		return false
	}
	before := len(p.pending)
	p.names.Reset()
	p.checkName()
	p.checkSingle()
	if f := p.checkTags(); f != nil { // not a JSON form that KairosDB reads at all
		p.pending = p.pending[:before]
		p.pending = append(p.pending, f)
	}
	if len(p.pending) == before {
		p.checkPoints()
	}
	if len(p.pending) == before {
		if f := p.p.CheckNames(&p.names); f != nil {
			p.refuseNames(f)
			return false
		}
	} else {
		for _, f := range p.pending[before:] {
			p.refuseMetric(f)
		}
		p.pending = p.pending[:before]
		return false
	}
	m.checked = true
	return true
}

func (p *parser) checkName() {
	m := &p.m
	switch {
	case !m.hasName:
		p.later(ingest.BadName, ".name may not be null.")
	case len(m.name.Text) == 0:
		p.later(ingest.BadName, ".name may not be empty.")
	default:
		name, ok := p.bytes(m.name)
		if !ok {
			p.later(ingest.BadName, ".name has an invalid escape sequence.")
		}
		p.names.Metric = ingest.View(name)
	}
}

// checkSingle checks that time and value are given together.
func (p *parser) checkSingle() {
	m := &p.m
	null := m.hasValue && m.value.Kind == jsontext.Null
	switch {
	case m.hasTime && !m.hasValue:
		p.later(ingest.BadValue, ".value may not be null.")
	case m.hasTime && (null || p.isEmptyText(m.value, m.typ)):
		p.later(ingest.BadValue, ".value may not be empty.")
	case m.hasTime && m.value.Kind == jsontext.Array && p.isEmptyArray(m.value):
		p.later(ingest.BadValue, ".value may not be an empty array.")
	case m.hasValue && !null && !m.hasTime:
		p.later(ingest.BadTime, ".timestamp may not be null.")
	}
}

// checkPoints refuses a metric, in which nothing else is wrong, for an unknown member in place of
// its points. KairosDB stores nothing and answers 204: a misspelt member loses points in silence.
func (p *parser) checkPoints() {
	if m := &p.m; m.unknown != nil && m.points == 0 && !m.hasTime && !m.hasValue {
		p.later(ingest.BadSyntax, " has no datapoints, but an unknown member '%s'%s", ingest.Brief(m.unknown), suggest.Hint(ingest.Brief(m.unknown), pointMembers))
	}
}

// isEmptyText reports whether a value is an empty text where that is no value.
func (p *parser) isEmptyText(t jsontext.Token, typ string) bool {
	return t.Kind == jsontext.String && len(t.Text) == 0 && typ != "string" && !p.m.skip &&
		!(p.raw && strings.HasPrefix(typ, RawType))
}

// checkTags decodes the tags. It returns a fault that replaces all others of
// the metric.
func (p *parser) checkTags() *ingest.Fault {
	m := &p.m
	count := 0
	if m.tagsEnd > 0 {
		s := p.s
		s.Seek(m.tags + 1)
		for ; ; count++ {
			more, err := s.More('}', count == 0)
			if err != nil {
				return p.syntaxFault(err)
			}
			if !more {
				break
			}
			if most := p.p.Config().MaxTags; count == most {
				f := ingest.TooMany(most, p.names.Metric)
				return &ingest.Fault{Reason: f.Reason, Text: p.context() + ": " + f.Text, Err: f.Err}
			}
			if f := p.checkTag(&s, count); f != nil {
				return f
			}
		}
	}
	// An export of KairosDB gives the tags of a series without any, but not skip_validate.
	untagged := m.skip || p.raw && m.tagsEnd > 0
	if count == 0 && !untagged {
		p.later(ingest.NoTags, ".tags count must be greater than or equal to 1.")
	}
	return nil
}

func (p *parser) checkTag(s *jsontext.Scanner, index int) *ingest.Fault {
	name, err := s.Name()
	if err != nil {
		return p.syntaxFault(err)
	}
	value, err := s.Next()
	if err != nil {
		return p.syntaxFault(err)
	}
	if !value.Kind.Scalar() {
		return p.expectedFault("a string", value.Kind, value.Start+1)
	}
	tag := model.Tag{Name: p.text(name), Value: p.text(value)}
	if p.twice(tag.Name) {
		return ingest.Faultf(ingest.BadTag, "duplicate key: %s", ingest.Brief(tag.Name))
	}
	which := ingest.Brief(tag.Name)
	if tag.Name == "" {
		which = strconv.Itoa(index)
		p.later(ingest.BadTag, ".tag[%s].name may not be empty.", which)
	}
	switch {
	case value.Kind == jsontext.Null:
		p.later(ingest.BadTag, ".tag[%s].value may not be null.", which)
	case tag.Value == "":
		p.later(ingest.BadTag, ".tag[%s].value may not be empty.", which)
	}
	p.names.Tags = append(p.names.Tags, tag)
	return nil
}

// fewTags is the number of tags up to which names are compared one by one.
const fewTags = 32

// twice reports whether a tag of this name was read before.
func (p *parser) twice(name string) bool {
	have := p.names.Tags
	if len(have) < fewTags {
		return slices.ContainsFunc(have, func(t model.Tag) bool { return t.Name == name })
	}
	if len(have) == fewTags {
		p.seen = make(map[string]bool, 2*fewTags)
		for _, t := range have {
			p.seen[t.Name] = true
		}
	}
	there := p.seen[name]
	p.seen[name] = true
	return there
}
