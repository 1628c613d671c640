package offline

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/quantile"
)

// tabled moves the rows of the catalogue from its log into tables.
func (d *data) tabled() *data {
	d.Helper()
	c, err := catalogue.Open(d.fs, "data/"+datadir.Catalogue, catalogue.Options{Logger: catalogue.Quiet{}, RowWidth: width * time.Millisecond})
	d.must(err)
	d.must(c.Close())
	return d
}

func (d *data) tables() (paths []string) {
	d.Helper()
	names, err := d.fs.List("data/" + datadir.Catalogue)
	d.must(err)
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			paths = append(paths, "data/"+datadir.Catalogue+"/"+name)
		}
	}
	return paths
}

// TestCheckOfTables: each byte of a table of the catalogue is read and checked. A table that cannot be read
// is an error, not a table without faults.
func TestCheckOfTables(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).done().tabled()
	tables := d.tables()
	if len(tables) == 0 {
		t.Fatal("the catalogue has no table")
	}
	if r := d.check(); !r.Clean() || r.Series != 3 {
		t.Errorf("%s, %d series", findings(r), r.Series)
	}
	info, err := d.fs.Stat(tables[0])
	d.must(err)
	for _, offset := range []int64{10, info.Size() / 2} {
		d.flip(tables[0], offset)
		c := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
		if err := c.tables(nil); err != nil || len(c.report.Findings) != 1 || c.report.Findings[0].File != tables[0] || !strings.Contains(c.report.Findings[0].Cost, "names of series") {
			t.Errorf("flipped at %d: %v, found %s", offset, err, findings(c.report))
		}
		if c.progress.Bytes != info.Size() || c.progress.Doing != "catalogue" {
			t.Errorf("%+v of %d bytes", c.progress, info.Size())
		}
		d.flip(tables[0], offset)
	}
	c := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
	if err := c.tables(map[string]bool{}); err != nil || len(c.report.Notes) != len(tables) || !strings.Contains(c.report.Notes[0], "is not in use") {
		t.Errorf("%v, noted %q", err, c.report.Notes)
	}
}

// TestEveryReadOfATableThatFails: a check ends with the error of a call that fails while it reads the tables of the
// catalogue, or reports it as damage.
func TestEveryReadOfATableThatFails(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).done().tabled()
	disk := d.disk
	for n := int32(1); ; n++ {
		var calls atomic.Int32
		var failed atomic.Pointer[errorfs.Op]
		var on atomic.Bool
		d.fs = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !on.Load() || op.Kind == errorfs.OpFileClose || calls.Add(1) != n {
				return nil
			}
			failed.Store(&op)
			return errorfs.ErrInjected
		}))
		dir := d.open()
		on.Store(true)
		r, err := dir.Check(t.Context(), CheckOptions{Now: now})
		on.Store(false)
		_ = dir.Close()
		op := failed.Load()
		if op == nil {
			if err != nil || !r.Clean() || n < 15 {
				t.Errorf("after %d calls: %v, found %s", n-1, err, findings(r))
			}
			return
		}
		if err == nil && r.Clean() && !strings.HasPrefix(op.Path, "data/timelines") {
			t.Errorf("call %d, of kind %d for %s, fails without a word", n, op.Kind, op.Path)
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("call %d: %v", n, err)
		}
	}
}

// TestCheckWhereThereIsNoEnd: a check ends with its context wherever it is, at the next page or call,
// without a finding.
func TestCheckWhereThereIsNoEnd(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).file(2, files, doubles(1000, 5))
	var pages []piece
	for i := range 10 {
		pages = append(pages, piece{id: aString, kind: model.String, from: int64(i), n: 1, step: 1, value: big(uint64(i))})
	}
	d.file(3, files, pages...).done().tabled()
	dir := d.open()
	defer dir.Close()
	for n := 1; ; n++ {
		ctx := &counted{Context: t.Context(), left: n}
		r, err := dir.Check(ctx, CheckOptions{Now: now})
		if ctx.left > 0 {
			if err != nil || n < 4 {
				t.Errorf("after it was asked %d times: %v", n, err)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || len(r.Findings) != 0 || ctx.left < -1 {
			t.Errorf("cancelled the %d. time that it is asked, and asked again %d times: %v, found %s", n, -ctx.left, err, findings(r))
		}
	}
}

// A counted context ends when it has been asked that often.
type counted struct {
	context.Context
	left int
}

func (c *counted) Err() error {
	if c.left--; c.left > 0 {
		return nil
	}
	return context.Canceled
}

// TestCheckOfSketches: files of buckets of format version 3 may have sketches, others not.
func TestCheckOfSketches(t *testing.T) {
	a := model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1, LastMS: 60_000, Sketch: quantile.Of(1)}
	for _, sketches := range []bool{true, false} {
		o := buckets
		o.Sketches = sketches
		r := newData(t).file(1, o, bucketsFrom(60_000, a.Append(nil))).done().check()
		if got := findings(r); strings.Contains(got, "bucket at 60000 ms: it has a sketch, but files of format version 2 have none") == sketches || sketches != r.Clean() {
			t.Errorf("may have sketches %t: found %s", sketches, got)
		}
	}
}

// TestContent compares the properties of a file with its samples.
func TestContent(t *testing.T) {
	d := newData(t).file(1, blockfile.Origin{Sequence: 3, Deletions: 2}, longs(1000, 5), doubles(1000, 5)).done()
	f, err := blockfile.Open(d.fs, blockPath(1), 1, blockfile.NewCache(0))
	d.must(err)
	defer f.Close()
	right := f.Properties
	for name, tc := range map[string]struct {
		change func(*blockfile.Properties)
		want   string
	}{
		"nothing":                      {func(*blockfile.Properties) {}, ""},
		"of an earlier build":          {func(p *blockfile.Properties) { p.SeriesExpireMS = 0 }, ""},
		"another expiry of a series":   {func(p *blockfile.Properties) { p.SeriesExpireMS-- }, "expected properties"},
		"other samples":                {func(p *blockfile.Properties) { p.Samples++ }, "expected properties"},
		"another beginning":            {func(p *blockfile.Properties) { p.MinMS++ }, "expected properties"},
		"an origin that nothing tells": {func(p *blockfile.Properties) { p.Sequence++; p.Deletions++ }, ""},
	} {
		c := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
		f.Properties = right
		tc.change(&f.Properties)
		b := newBlockCheck(c, f, 1)
		d.must(b.run())
		got := findings(c.report)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) || strings.Count(got, "costs") > 1 {
			t.Errorf("%s: found %q, want %q", name, got, tc.want)
		}
	}
	f.Properties = right
	series := f.Series
	f.Series = roaring.BitmapOf(0, 1, 2)
	c := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
	d.must(newBlockCheck(c, f, 1).run())
	if got := findings(c.report); !strings.Contains(got, "expected 3 series, got 2; costs queries may leave out series of the file") {
		t.Errorf("found %q", got)
	}
	f.Series = series
}

// TestCompareStats: a sum that is not a number is the same one, and zeros of both signs are the same minimum.
func TestCompareStats(t *testing.T) {
	bits := func(values ...float64) (all []uint64) {
		for _, v := range values {
			all = append(all, math.Float64bits(v))
		}
		return all
	}
	negative := math.Copysign(0, -1)
	stats := func(lo, hi, sum, first, last float64) model.Stats {
		return model.Stats{Min: lo, Max: hi, Sum: sum, First: math.Float64bits(first), Last: math.Float64bits(last)}
	}
	for _, tc := range []struct {
		what   string
		values []uint64
		stats  model.Stats
		same   bool
	}{
		{"right", bits(1, 2, 3), stats(1, 3, 6, 1, 3), true},
		{"zeros of two signs", bits(0, negative), stats(negative, 0, 0, 0, negative), true},
		{"zeros of two signs, the other way round", bits(0, negative), stats(0, negative, 0, 0, negative), true},
		{"a sum without a value", bits(math.Inf(1), math.Inf(-1)), stats(math.Inf(-1), math.Inf(1), model.Sum(model.Double, bits(math.Inf(1), math.Inf(-1))), math.Inf(1), math.Inf(-1)), true},
		{"another first value", bits(1, 2, 1), stats(1, 2, 4, 2, 1), false},
		{"another last value", bits(1, 2, 1), stats(1, 2, 4, 1, 2), false},
		{"a sum of another sign", bits(0), stats(0, 0, negative, 0, 0), false},
	} {
		if got := compareStats(&chunk.Entry{Kind: model.Double, Stats: tc.stats}, tc.values); (got == "") != tc.same {
			t.Errorf("%s: %q", tc.what, got)
		}
	}
}

// TestFindingsOfTheCatalogue: damage of the catalogue has no place in a file, and a way out.
func TestFindingsOfTheCatalogue(t *testing.T) {
	d := newData(t).done().tabled()
	d.flip(d.tables()[0], 10)
	c := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
	c.catalogueLost(errors.New("lost"))
	c.findRow("a row", "names")
	d.must(c.tables(nil))
	if len(c.report.Findings) != 3 {
		t.Fatalf("found %s", findings(c.report))
	}
	for _, f := range c.report.Findings {
		if f.Offset != -1 || f.part != partCatalogue || f.Remedy != catalogueRemedy || !strings.HasPrefix(f.File, "data/catalogue") {
			t.Errorf("%+v", f)
		}
	}
}
