package spool

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// TestSpillHoldsFewStrings writes a series of long equal strings, which the head
// keeps compressed, to a file. Spilling is for lack of memory: it must not expand
// all of them at once.
func TestSpillHoldsFewStrings(t *testing.T) {
	const samples, size = 100_000, 1000
	h := head.New()
	var b store.Batch
	value := []byte(strings.Repeat("x", size))
	kinds := make([]model.Kind, 1000)
	for i := range kinds {
		kinds[i] = model.TypeString.Kind()
	}
	for i := int64(0); i < samples; {
		b.Reset(0)
		for range kinds {
			b.AddBytes(7, i*1000, value, 0)
			i++
		}
		h.Append(&b, kinds)
	}
	g := &Generation{}
	g.place.Store(&place{head: h})
	if n := g.memory(); n < samples*size {
		t.Errorf("%d bytes of strings count as %d bytes", samples*size, n)
	}
	fs := vfs.NewMem()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := (&Spool{fs: fs}).writeFile(context.Background(), "file", 1, h); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// All that was ever allocated, so that nothing depends on when it is collected.
	if n := after.TotalAlloc - before.TotalAlloc; n > samples*size/2 {
		t.Errorf("spilling %d bytes of strings has allocated %d bytes", samples*size, n)
	}
	f, err := blockfile.Open(fs, "file", 1, blockfile.NewCache(0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Samples != samples {
		t.Errorf("%d samples in the file, want %d", f.Samples, samples)
	}
}
