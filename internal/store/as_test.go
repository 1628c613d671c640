package store

import "testing"

type traced struct{}

func (traced) Trace() []Count { return nil }

type wrapped struct{ inner any }

func (w wrapped) Unwrap() any { return w.inner }

// An ability is found however often its owner is wrapped.
func TestAs(t *testing.T) {
	if _, ok := As[Tracer](wrapped{wrapped{traced{}}}); !ok {
		t.Error("the ability of what is wrapped is not found")
	}
	for _, v := range []any{nil, 1, wrapped{nil}, wrapped{1}} {
		if _, ok := As[Tracer](v); ok {
			t.Errorf("%v can trace", v)
		}
	}
}
