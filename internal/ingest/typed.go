package ingest

import (
	"varve/internal/model"
	"varve/internal/store"
)

// ResolveTyped finds or creates the series of a type, which may be a custom one, for callers that
// write series by name: imports and roll-ups. It may only be called by a running fill function. A
// *Fault means that these names are refused; any other error comes from the store and ends the
// block.
func (w *Writer) ResolveTyped(typ model.Type, n *Names) (store.Ref, error) {
	if f := w.checkNames(n); f != nil {
		return 0, f
	}
	if typ == "" || len(typ) > maxTypeBytes {
		return 0, Faultf(BadType, "type %q must have 1 to %d bytes", Brief(string(typ)), maxTypeBytes)
	}
	tags, err := model.NewTags(n.Tags...)
	if err != nil {
		return 0, Faultf(BadTag, "%v", err)
	}
	s := model.Series{Metric: n.Metric, Tags: tags, Type: typ}
	w.key = s.AppendKey(w.key[:0])
	return w.ref(typ, n)
}

// maxTypeBytes bounds the name of a custom type. KairosDB's own have 14 at most.
const maxTypeBytes = 256

// AddValue adds a sample of a variable kind or without a value, as its bytes are
// stored, to the batch of the running fill function.
func (w *Writer) AddValue(typ model.Type, r store.Ref, ms int64, value []byte, ttl uint32) *Fault {
	kind := typ.Kind()
	switch {
	case kind == model.Null && len(value) == 0:
		return w.AddNull(r, ms, ttl)
	case kind == model.Complex && len(value) != 16:
		return Faultf(BadValue, "a complex value has 16 bytes, not %d", len(value))
	case !kind.Variable():
		return Faultf(BadValue, "%d bytes are not a value of type %s", len(value), Brief(string(typ)))
	case int64(len(value)) > int64(w.p.cfg.MaxStringBytes):
		return limitFault(ValueTooLong, "bytes of a string value", int64(w.p.cfg.MaxStringBytes), int64(len(value)), "value of type "+Brief(string(typ)))
	}
	return w.AddBytes(kind, r, ms, value, ttl)
}
