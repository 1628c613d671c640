package buckets

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

// writeAggregates writes a file of buckets of 1 s each, from their bytes.
func writeAggregates(t *testing.T, fs vfs.FS, sketches bool, all ...[]byte) *blockfile.File {
	t.Helper()
	w, err := blockfile.Create(fs, "file", chunk.Best, blockfile.Origin{Sequence: 5, StepMS: 1000, Sketches: sketches})
	if err != nil {
		t.Fatal(err)
	}
	var c model.Columns
	for i, data := range all {
		c.AppendBytes(1000*int64(i), data, 0)
	}
	if err := w.Add(modelSeries, model.AggregateKind, &c, 0, c.Len()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f, err := blockfile.Open(fs, "file", 1, blockfile.NewCache(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestDamagedAggregates: a chunk whose checksum is right and whose buckets cannot be read is damage
// of its file, and not the end of the series.
func TestDamagedAggregates(t *testing.T) {
	whole := model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1}.Append(nil)
	f := writeAggregates(t, vfs.NewMem(), false, whole, whole[:len(whole)-1])
	for _, descending := range []bool{false, true} {
		r := Reader{Needs: model.AllStats}
		r.Open(modelSeries, model.AllTime, descending, []*Source{{Iter: f.Iter(false), StepMS: 1000}})
		_, ok, err := r.Next()
		if damage, is := errors.AsType[*store.CorruptionError](err); ok || !is || damage.File != f.Path {
			t.Errorf("descending %v: %v, %v, want damage of %s", descending, ok, err, f.Path)
		}
	}
}

// TestRun: buckets come as they are, many at once, but for those that are wanted with their sketches
// or from the last one on, which columns do not have.
func TestRun(t *testing.T) {
	var all [][]byte
	for range 2 * minRun {
		all = append(all, model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1}.Append(nil))
	}
	f := writeAggregates(t, vfs.NewMem(), true, all...)
	for _, c := range []struct {
		sketches, descending bool
		want                 int
	}{{false, false, len(all)}, {true, false, 0}, {false, true, 0}} {
		r := Reader{Needs: model.AllStats, Sketches: c.sketches}
		r.Open(modelSeries, model.AllTime, c.descending, []*Source{{Iter: f.Iter(false), StepMS: 1000}})
		cols, _, err := r.Run()
		if err != nil || len(cols.StartMS) != c.want {
			t.Errorf("sketches %v, descending %v: %d buckets at once, want %d; %v", c.sketches, c.descending, len(cols.StartMS), c.want, err)
		}
		left := 0
		for {
			_, ok, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			left++
		}
		if left != len(all)-c.want {
			t.Errorf("sketches %v, descending %v: %d buckets follow, want %d", c.sketches, c.descending, left, len(all)-c.want)
		}
	}
}
