package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/ingest"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/principal"
	"varve/internal/store"
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

// TestTypedTagGivenTwice: such names are not those of the series without tags.
func TestTypedTagGivenTwice(t *testing.T) {
	p, _ := ingesttest.NewPipeline(&ingesttest.Recorder{}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	_, err := w.Ingest(t.Context(), 1, func() error {
		if _, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "m"}); err != nil {
			t.Error(err)
		}
		ref, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: "m", Tags: []model.Tag{{Name: "h", Value: "a"}, {Name: "h", Value: "b"}}})
		var f *ingest.Fault
		if !errors.As(err, &f) || f.Reason != ingest.BadTag {
			t.Errorf("series %v, %v", ref, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A sender that may write some metrics only cannot name others by type either.
func TestTypedBeyondThePrefix(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, _ := ingesttest.NewPipeline(r, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	ctx := principal.With(t.Context(), principal.Principal{Tenant: principal.Default, Name: "me", Rights: principal.All, Prefix: "own."})
	_, err := w.Ingest(ctx, 2, func() error {
		for metric, want := range map[string]string{"own.m": "", "m": `metric m: me may only write metrics that begin with "own."`} {
			_, err := w.ResolveTyped(model.TypeLong, &ingest.Names{Metric: metric})
			var f *ingest.Fault
			if want == "" && err != nil || want != "" && (!errors.As(err, &f) || f.Reason != ingest.Forbidden || f.Text != want) {
				t.Errorf("%s: %v", metric, err)
			}
		}
		return nil
	})
	if err != nil || r.SeriesCount() != 1 {
		t.Errorf("%d series, %v", r.SeriesCount(), err)
	}
}

// A pickyStore cannot hold one of all values.
type pickyStore struct{ *ingesttest.Recorder }

func (pickyStore) CheckSample(_ store.Ref, kind model.Kind, _ int64, value uint64, data []byte, _ uint32) error {
	if value == 13 || string(data) == "13" || kind == model.Null {
		return &store.InputError{Reason: "the unlucky one"}
	}
	return nil
}

// TestSampleThatTheStoreCannotHold costs itself, is counted, and is kept to be
// looked at with the reason.
func TestSampleThatTheStoreCannotHold(t *testing.T) {
	r := &ingesttest.Recorder{}
	p, reg := ingesttest.NewPipeline(pickyStore{r}, nil)
	w := p.NewWriter(p.Protocol("test"), "peer", 0)
	_, err := w.Ingest(context.Background(), 9, func() error {
		for _, typ := range []model.Type{model.TypeLong, model.TypeString, model.TypeNull} {
			ref, err := w.ResolveTyped(typ, &ingest.Names{Metric: "m"})
			if err != nil {
				return err
			}
			for v := range int64(3) {
				var f *ingest.Fault
				switch typ {
				case model.TypeLong:
					f = w.AddLong(ref, v, 12+v, 0)
				case model.TypeString:
					f = w.AddBytes(model.String, ref, v, fmt.Append(nil, 12+v), 0)
				default:
					f = w.AddValue(typ, ref, v, nil, 0)
				}
				if f != nil {
					w.Reject(f, []byte("input"))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := ingesttest.Counters(t, reg, "varve_ingest_rejected_total")["test,refused"]; n != 5 {
		t.Errorf("%v samples are refused", n)
	}
	if n := ingesttest.Counters(t, reg, "varve_ingest_samples_total")["test"]; n != 4 {
		t.Errorf("%v samples are taken", n)
	}
}
