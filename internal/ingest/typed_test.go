package ingest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
)

// TestTypedFaults: names, types and values that cannot be stored are refused each
// with its reason.
func TestTypedFaults(t *testing.T) {
	tags := []model.Tag{{Name: "h", Value: "a"}}
	good := ingest.Names{Metric: "m", Tags: tags}
	for _, c := range []struct {
		names  ingest.Names
		typ    model.Type
		value  string
		reason string // "": it is taken
	}{
		{good, "acme", "x", ""},
		{good, model.Type(strings.Repeat("t", 256)), "x", ""},
		{good, model.Type(strings.Repeat("t", 257)), "x", ingest.BadType.String()},
		{good, "", "x", ingest.BadType.String()},
		{ingest.Names{Tags: tags}, "acme", "x", ingest.BadName.String()},
		{ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "h", Value: "a"}, {Name: "h", Value: "b"}}}, "acme", "x", ingest.BadTag.String()},
		{good, model.TypeComplex, strings.Repeat("x", 16), ""},
		{good, model.TypeComplex, strings.Repeat("x", 15), ingest.BadValue.String()},
		{good, model.TypeLong, "12345678", ingest.BadValue.String()},
		{good, model.TypeNull, "", ""},
		{good, model.TypeNull, "x", ingest.BadValue.String()},
		{good, model.TypeString, "1234", ""},
		{good, model.TypeString, "12345", ingest.ValueTooLong.String()},
		{good, "acme", "12345", ingest.ValueTooLong.String()},
	} {
		p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, func(c *ingest.Config) { c.MaxStringBytes = 4 })
		if c.typ == model.TypeComplex {
			p, _ = ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
		}
		w := p.NewWriter(p.Protocol("test"), "peer", 0)
		var f *ingest.Fault
		n, err := w.Ingest(context.Background(), 1, func() error {
			ref, err := w.ResolveTyped(c.typ, &c.names)
			if err == nil {
				if f = w.AddValue(c.typ, ref, 1, []byte(c.value), 0); f != nil {
					return f
				}
				return nil
			}
			errors.As(err, &f)
			return err
		})
		switch {
		case c.reason == "" && (n != 1 || err != nil):
			t.Errorf("%.20s %q: %d stored, %v", c.typ, c.value, n, err)
		case c.reason != "" && (n != 0 || f == nil || f.Reason.String() != c.reason):
			t.Errorf("%.20s %q: %d stored, %v, want the reason %v", c.typ, c.value, n, err, c.reason)
		}
	}
}
