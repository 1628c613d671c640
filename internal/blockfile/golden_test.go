package blockfile

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/quantile"
)

var update = flag.Bool("update", false, "write the golden file again; only with a new format version")

// TestGolden opens files that earlier builds wrote and compares all they hold
// with a dump. A writer may make better files some day; these stay.
func TestGolden(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	names, err := filepath.Glob("testdata/*.blk")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d golden files, %v", len(names), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(name, ".blk") + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), inspect(t, b)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// inspect describes a file: version, properties, series, pages, samples.
func inspect(t *testing.T, b []byte) string {
	fs := vfs.NewMem()
	content(t, fs, path, b)
	f := openFile(t, fs, path)
	var out strings.Builder
	fmt.Fprintf(&out, "version %d, %d bytes\n", binary.LittleEndian.Uint32(b[8:]), f.Bytes)
	fmt.Fprintf(&out, "sequence %d, deletions %d, %d samples, %d chunks\n", f.Sequence, f.Deletions, f.Samples, f.Chunks)
	fmt.Fprintf(&out, "time %d to %d, expires at %d, half at %d\n", f.MinMS, f.MaxMS, f.ExpiresMS, f.HalfExpiresMS)
	if f.SeriesExpireMS != 0 {
		fmt.Fprintf(&out, "a series expires at %d\n", f.SeriesExpireMS)
	}
	if f.StepMS != 0 {
		fmt.Fprintf(&out, "buckets of %d ms, sketches %t\n", f.StepMS, f.Sketches)
	}
	if f.Late != (Late{}) {
		fmt.Fprintf(&out, "late samples from %d to %d\n", f.Late.FirstMS, f.Late.LastMS)
	}
	fmt.Fprintf(&out, "series %v\n", f.Series.ToArray())
	for i, p := range f.pages {
		fmt.Fprintf(&out, "page %d: %d bytes at %d, from series %d at %d\n", i, p.length, p.offset, p.first.series, p.first.ms)
	}
	pieces, err := scanAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		out.WriteString(p.dump() + "\n")
	}
	return out.String()
}

func writeGolden(t *testing.T) {
	fs := vfs.NewMem()
	var pieces []piece
	for id := model.SeriesNumber(1); id <= 6; id++ {
		p := regular(id, model.Kind(id), 1_700_000_000_000, 10_000, 4)
		if p.Kind == model.Complex {
			p.Columns.Reset()
			p.add(1_700_000_000_000, "\x3f\xf0\x00\x00\x00\x00\x00\x00\xbf\xf0\x00\x00\x00\x00\x00\x00", 0)
		}
		p.add(1_700_000_100_000, "\x00 expires later", 3600)
		pieces = append(pieces, p)
	}
	noise := piece{Series: 1000, Kind: model.Double}
	for i := range int64(200) {
		noise.AppendFixed(i*977-50_000, math.Float64bits(math.Exp(float64(i))), 0)
	}
	pieces = append(pieces, noise,
		regular(70_000, model.Long, math.MinInt64, 1, 2),
		regular(70_000, model.Long, -1, 1, 40),
		regular(70_000, model.Long, math.MaxInt64, 1, 1))
	for i := range int64(5) {
		p := piece{Series: math.MaxUint32, Kind: model.Custom}
		for j := range int64(500) {
			p.add(i*500+j, fmt.Sprintf("%x", uint64(i*500+j+1)*0x9e3779b97f4a7c15), 60)
		}
		pieces = append(pieces, p)
	}
	writeFile(t, fs, path, pieces)
	b := readContent(t, fs, path)
	if err := os.WriteFile("testdata/version-1-series-expire.blk", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/version-1-series-expire.txt", []byte(inspect(t, b)), 0o644); err != nil {
		t.Fatal(err)
	}
	writeGoldenBuckets(t)
	writeGoldenLate(t)
}

// writeGoldenLate writes a file that says when it got late samples.
func writeGoldenLate(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 7, Deletions: 3, Late: Late{1_700_100_000_000, 1_700_200_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	p := regular(1, model.Long, 1_700_000_000_000, 10_000, 4)
	if err := w.Add(p.Series, p.Kind, &p.Columns, 0, p.Len()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	b := readContent(t, fs, path)
	if err := os.WriteFile("testdata/version-1-late.blk", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/version-1-late.txt", []byte(inspect(t, b)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeGoldenBuckets writes a file of buckets, of which one series has sketches.
func writeGoldenBuckets(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create(fs, path, chunk.Best, Origin{Sequence: 5, Deletions: 3, StepMS: 60_000, Sketches: true})
	if err != nil {
		t.Fatal(err)
	}
	for series := range model.SeriesNumber(2) {
		var c model.Columns
		for i := range int64(20) {
			ms := 1_700_000_040_000 + 60_000*i
			var a model.Aggregate
			var values []float64
			for k := range int64(6) {
				values = append(values, float64((i*31+k*k*17)%100)/4)
				a.Add(ms+10_000*k, values[k])
			}
			if series == 1 {
				a.Sketch = quantile.Of(values...)
			}
			c.AppendBytes(ms, a.Append(nil), 0)
		}
		if err := w.Add(series, model.AggregateKind, &c, 0, c.Len()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	b := readContent(t, fs, path)
	if err := os.WriteFile("testdata/version-3.blk", b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("testdata/version-3.txt", []byte(inspect(t, b)), 0o644); err != nil {
		t.Fatal(err)
	}
}
