package partition

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
)

// TestReadBack: files that cannot be read back after they were written are an error, and none of them is left.
func TestReadBack(t *testing.T) {
	all, counts := drawn(rand.New(rand.NewPCG(5, 6)))
	for n := int32(1); ; n++ {
		mem := vfs.NewMem()
		var opened atomic.Int32
		p := place(t, mem)
		p.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpOpen && opened.Add(1) == n {
				return errorfs.ErrInjected
			}
			return nil
		}))
		out := p.NewOutput(counts, chunk.Fast, blockfile.Origin{})
		if err := write(out, all, rand.New(rand.NewPCG(7, 8))); err != nil {
			t.Fatal(err)
		}
		files, err := out.Finish()
		for _, f := range files {
			f.Close()
		}
		if opened.Load() < n {
			if err != nil || len(files) == 0 || n < 2 {
				t.Errorf("after %d files: %v", n-1, err)
			}
			return
		}
		if !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), "read back what was just written") || len(files) > 0 {
			t.Errorf("file %d cannot be read: %d files, %v", n, len(files), err)
		}
		if left, err := mem.List("blocks"); err != nil || len(left) > 0 {
			t.Errorf("file %d cannot be read: %v are left, %v", n, left, err)
		}
	}
}
