package kairosjson

import (
	"errors"
	"math"
	"strings"

	"varve/internal/ingest"
	"varve/internal/ingest/decimal"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
)

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

// isPlainNumber is KairosDB's test whether a text is meant as a number: at most one sign or point
// before digits with at most one further point, which is not the last.
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
	if v, whole := wholeNumber(n); whole {
		return p.addLong(where, ms, v)
	}
	return p.addDouble(where, ms, n.Float64(text))
}

// wholeNumber returns a number that is stored as a long.
func wholeNumber(n *decimal.Number) (v int64, whole bool) {
	if n.Dot {
		return 0, false
	}
	return n.Whole()
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
	a, err := p.resolve(model.Long)
	if err != nil {
		return err
	}
	return p.added(where, p.w.AddLong(a.Ref, ms, v, p.m.ttl))
}

func (p *parser) addDouble(where point, ms int64, v float64) error {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return p.refusePoint(where, ingest.NotFinite, notFinite)
	}
	a, err := p.resolve(model.Double)
	if err != nil {
		return err
	}
	return p.added(where, p.w.AddDouble(a.Ref, ms, v, p.m.ttl))
}

func (p *parser) addBytes(where point, ms int64, kind model.Kind, v []byte) error {
	a, err := p.resolve(kind)
	if err != nil {
		return err
	}
	return p.added(where, p.w.AddBytes(kind, a.Ref, ms, v, p.m.ttl))
}

// added counts a point that the Writer accepted, or reports why it was refused.
func (p *parser) added(where point, f *ingest.Fault) error {
	if f != nil {
		return p.refusePoint(where, f.Reason, "%s.", f.Text)
	}
	p.m.accepted++
	return nil
}

// resolve finds the series of the metric for a kind of values. errRefused means that the metric
// cannot be stored, and that the answer says so.
func (p *parser) resolve(kind model.Kind) (*ingest.Alias, error) {
	m := &p.m
	if a := m.aliases[kind]; a != nil {
		return a, nil
	}
	var head, tail []byte
	if m.hasName {
		from := m.name.Start
		if m.skip {
			// One more byte, at least the colon before the name: aliases made without validation
			// must not serve requests that want it.
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
		if f, ok := errors.AsType[*ingest.Fault](err); ok {
			p.noteHeld(f)
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
