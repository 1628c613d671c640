package writelog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/registry"
	"varve/internal/store"
)

func mustCreate(t *testing.T, r *registry.Registry, series model.Series) store.Ref {
	t.Helper()
	ref, err := r.CreateSeries(series)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestLargestBatch: 16 MiB of samples are one batch; one byte more is refused with both
// numbers.
func TestLargestBatch(t *testing.T) {
	r := registry.New()
	ref := mustCreate(t, r, model.Series{Metric: "m", Type: model.TypeString, Tags: model.MustTags("a", "b")})
	encode := func(length int) (int, error) {
		var b store.Batch
		b.Reset(r.Epoch())
		b.AddBytes(ref, 1, []byte(strings.Repeat("x", length)), 0)
		var e Encoder
		err := e.Encode(r, &b)
		return len(e.Samples), err
	}
	const most = 16 << 20
	took, err := encode(most - 100)
	if err != nil {
		t.Fatal(err)
	}
	border := most - 100 + most - took
	if took, err = encode(border); err != nil || took != most {
		t.Errorf("%d bytes: %v", took, err)
	}
	var limit *store.LimitError
	if _, err = encode(border + 1); !errors.As(err, &limit) || limit.Max != most || limit.Need != most+1 {
		t.Errorf("a byte more: %v", err)
	}
}

// TestEncodeStale: refs of another epoch, of series that never were and of
// forgotten ones are stale, before and after the batch was encoded.
func TestEncodeStale(t *testing.T) {
	r := registry.New()
	kept := mustCreate(t, r, model.Series{Metric: "kept", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	gone := mustCreate(t, r, model.Series{Metric: "gone", Type: model.TypeDouble, Tags: model.MustTags("a", "b")})
	batch := func(epoch uint64, refs ...store.Ref) *store.Batch {
		b := &store.Batch{}
		b.Reset(epoch)
		for _, ref := range refs {
			b.AddLong(ref, 1, 1, 0)
		}
		return b
	}
	var e, other Encoder
	for _, b := range []*store.Batch{batch(r.Epoch()+1, kept), batch(r.Epoch()-1, kept), batch(r.Epoch(), kept, gone+1)} {
		if err := e.Encode(r, b); !errors.Is(err, store.ErrStale) {
			t.Errorf("epoch %d of %d, refs %v: %v", b.Epoch, r.Epoch(), b.Samples, err)
		}
	}
	both, one := batch(r.Epoch(), kept, gone), batch(r.Epoch(), kept)
	if err := errors.Join(e.Encode(r, both), other.Encode(r, one)); err != nil || len(e.Kinds) != 2 || e.Kinds[0] == e.Kinds[1] || !e.Current(r, both) {
		t.Fatalf("kinds %v, %v", e.Kinds, err)
	}
	r.Forget([]model.SeriesNumber{model.SeriesNumber(gone)})
	if e.Current(r, both) || !other.Current(r, one) {
		t.Errorf("after one was forgotten: both current %v, the other alone %v", e.Current(r, both), other.Current(r, one))
	}
	r.Reuse(roaring.BitmapOf(uint32(gone))) // moves the epoch
	if other.Current(r, one) {
		t.Error("current in another epoch")
	}
}

// TestCurrentKeepsKinds: Current leaves the encoded batch unchanged.
func TestCurrentKeepsKinds(t *testing.T) {
	r := registry.New()
	var b store.Batch
	b.Reset(r.Epoch())
	for i, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeLong, model.TypeDouble} {
		ref := mustCreate(t, r, model.Series{Metric: fmt.Sprint("m", i), Type: typ, Tags: model.MustTags("a", "b")})
		switch typ {
		case model.TypeLong:
			b.AddLong(ref, 1, 1, 0)
		case model.TypeDouble:
			b.AddDouble(ref, 1, 1, 0)
		default:
			b.AddBytes(ref, 1, []byte("x"), 0)
		}
	}
	gone := mustCreate(t, r, model.Series{Metric: "gone", Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	var e Encoder
	e.Kinds = make([]model.Kind, 0, 16)
	if err := e.Encode(r, &b); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(e.Kinds)
	r.Forget([]model.SeriesNumber{model.SeriesNumber(gone)})
	if !e.Current(r, &b) || !slices.Equal(e.Kinds, want) {
		t.Errorf("kinds %v, want %v", e.Kinds, want)
	}
}

// TestZeroEntry: an entry of no log is durable.
func TestZeroEntry(t *testing.T) {
	if e := (Entry{}); !e.Durable() || e.Wait(t.Context()) != nil {
		t.Error("the zero entry is not durable")
	}
}
