package spool

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// TestSpillOfManySamples: samples of a series that are more than spilling holds in memory come back from
// the files in order, each with its value and write timestamp, whether they came in order or shuffled.
func TestSpillOfManySamples(t *testing.T) {
	const n = 2*spillSamples + 77
	long := strings.Repeat("x", 3*spillBytes/n)
	const firstMS = 1_000_000
	for name, tc := range map[string]struct {
		text    bool
		shuffle bool
	}{"numbers": {}, "shuffled numbers": {shuffle: true}, "texts": {text: true}, "shuffled texts": {text: true, shuffle: true}} {
		h := head.NewStamped(0)
		kind := model.Long
		if tc.text {
			kind = model.String
		}
		times := make([]int64, n)
		for i := range times {
			times[i] = int64(i) * 10
		}
		if tc.shuffle {
			slices.Reverse(times)
		}
		stampOf := func(ms int64) int64 {
			if tc.shuffle {
				return firstMS + (int64(n-1)-ms/10)/100
			}
			return firstMS + ms/1000
		}
		for _, ms := range times {
			var b store.Batch
			if tc.text {
				b.AddBytes(7, ms, []byte(long+string(rune('a'+ms/10%26))), 0)
			} else {
				b.AddLong(7, ms, ms*3, 0)
			}
			h.AppendStamped(&b, []model.Kind{kind}, stampOf(ms))
		}
		fs := vfs.NewMem()
		s := &Spool{fs: fs, cache: blockfile.NewCache(1 << 20)}
		f, err := s.spillHead(t.Context(), h, "file", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if f.stamps, err = s.spillHead(t.Context(), h, "stamps", 2, firstMS); err != nil {
			t.Fatal(err)
		}
		run := head.Run{Stamps: true}
		found, err := f.snapshot(7, model.AllTime, &run)
		if err != nil || !found || run.Kind != kind || run.Open.Len() != n || len(run.Open.Stamps) != n {
			t.Fatalf("%s: found %t, %d samples of %s, %d stamps, %v", name, found, run.Open.Len(), run.Kind, len(run.Open.Stamps), err)
		}
		for i := range n {
			ms := int64(i) * 10
			right := run.Open.Times[i] == ms && run.Open.Stamps[i] == stampOf(ms)
			if tc.text {
				right = right && string(run.Open.Bytes(i)) == long+string(rune('a'+i%26))
			} else {
				right = right && run.Open.Values[i] == uint64(ms*3)
			}
			if !right {
				t.Fatalf("%s: sample %d of %d is at %d ms, stamped %d", name, i, n, run.Open.Times[i], run.Open.Stamps[i])
			}
		}
		if err := errors.Join(f.stamps.Close(), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestSpillThatFails: whichever call fails while samples are spilled, that is an error, and ends with the context too.
func TestSpillThatFails(t *testing.T) {
	h := head.New(0)
	var b store.Batch
	for i := range int64(2*spillSamples + 1) {
		b.AddLong(store.Ref(i%3), i, i*i*7919%1000003, 0)
	}
	kinds := slices.Repeat([]model.Kind{model.Long}, len(b.Samples))
	h.Append(&b, kinds)
	for n := int32(1); ; n++ {
		var calls atomic.Int32
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileClose || op.Kind == errorfs.OpRemove || calls.Add(1) != n {
				return nil
			}
			return errorfs.ErrInjected
		}))
		err := (&Spool{fs: fs}).writeFile(t.Context(), "file", 1, h, 0)
		if calls.Load() < n {
			if err != nil || n < 4 {
				t.Errorf("after %d calls: %v", n-1, err)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("call %d fails: %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	fs := vfs.NewMem()
	if err := (&Spool{fs: fs}).writeFile(ctx, "file", 1, h, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if names, err := fs.List(""); err != nil || len(names) != 0 {
		t.Errorf("%v are left, %v", names, err)
	}
}
