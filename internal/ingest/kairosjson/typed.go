package kairosjson

import (
	"errors"

	"varve/internal/datatype"
	"varve/internal/ingest"
	"varve/internal/ingest/jsontext"
	"varve/internal/model"
	"varve/internal/store"
)

// storeTyped stores a value of a registered type. v was read, and skipped if it is
// an object or an array.
func (p *parser) storeTyped(where point, ms int64, v jsontext.Token, typ *datatype.Type) error {
	value, err := typ.Parse(p.value[:0], p.source(v))
	p.value = value[:0]
	switch {
	case errors.As(err, new(*datatype.NotFiniteError)):
		return p.refusePoint(where, ingest.NotFinite, "value must be finite.")
	case err != nil:
		return p.refusePoint(where, ingest.BadValue, "value %s.", ingest.Brief(err.Error()))
	}
	if kind := typ.Stored.Kind(); kind != model.Custom {
		return p.addBytes(where, ms, kind, value)
	}
	return p.addCustom(where, ms, typ.Stored, value)
}

// source is the text of a value, with quotes and brackets.
func (p *parser) source(v jsontext.Token) []byte {
	s := p.s
	s.Seek(v.Start)
	t, err := s.Next()
	if err == nil && !t.Kind.Scalar() {
		err = s.Skip(t.Kind)
	}
	if err != nil {
		return nil // it was read before
	}
	return s.Bytes(v.Start, s.Offset())
}

// addCustom adds a value of a type whose series are not told apart by kind.
func (p *parser) addCustom(where point, ms int64, typ model.Type, value []byte) error {
	ref, err := p.resolveTyped(typ)
	if err != nil {
		return err
	}
	return p.addValue(where, typ, ref, ms, value)
}

// addValue adds the stored form of a value.
func (p *parser) addValue(where point, typ model.Type, ref store.Ref, ms int64, value []byte) error {
	f := p.w.AddValue(typ, ref, ms, value, p.m.ttl)
	if f == nil || f.Reason == ingest.Expired || f.Reason == ingest.BadTTL {
		return p.added(where, f)
	}
	return p.refusePoint(where, f.Reason, "value: %s", f.Text)
}

// resolveTyped is resolve for a type by name.
func (p *parser) resolveTyped(typ model.Type) (store.Ref, error) {
	if !p.check() {
		return 0, errRefused
	}
	ref, err := p.w.ResolveTyped(typ, &p.names)
	if f, ok := errors.AsType[*ingest.Fault](err); ok {
		p.noteHeld(f)
		p.refuseNames(f)
		return 0, errRefused
	}
	return ref, err
}
