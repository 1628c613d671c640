package offline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/safefile"
)

var update = flag.Bool("update", false, "rewrite testdata after a change of a text, for a review")

// diskSpace depends on the version of Pebble.
var diskSpace = regexp.MustCompile("disk space +[0-9].*")

// shown is a store of everything that inspecting shows.
func shown(t *testing.T) *data {
	d := newData(t)
	d.change.AddDeletions = []*record.Deletion{deletion(1, model.TimeRange{StartMS: 500, EndMS: 1500}, 0, 1), deletion(2, model.AllTime, 2)}
	for i := range model.SeriesNumber(inspectSeries + 3) {
		s := model.Series{Metric: "many", Type: model.TypeLong, Tags: model.MustTags("n", fmt.Sprintf("%02d", i), "side", []string{"left", "right"}[i%2])}
		d.change.Define = append(d.change.Define, record.Definition{ID: 10 + i, Key: string(s.AppendKey(nil))})
	}
	text := piece{id: aString, kind: model.String, n: 1, step: 1}
	d.file(3, files, longs(1000, 50), longs(100_000, 7), doubles(2000, 3), piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1})
	var pieces []piece
	for i := range int64(3) {
		text.from, text.value = 1+i*width, big(uint64(i))
		pieces = append(pieces, text)
	}
	d.file(12, blockfile.Origin{Sequence: 2, Deletions: 1}, append([]piece{longs(width, 2)}, pieces...)...)
	s := model.Series{Metric: "new", Type: model.TypeLong}
	d.log(record.TypeBatch, batch([]record.Definition{{ID: 77, Key: string(s.AppendKey(nil))}}, 0, 77)).
		log(record.TypeDeletion, d.deletionRecord(deletion(3, model.TimeRange{StartMS: 0, EndMS: 5}, 0, 77))).
		log(record.TypeBatch, batch(nil, 0, 0)).log(record.TypeBatch, batch(nil, 0, 99)).log(200, []byte("abc")).
		log(record.TypeDeletion, []byte("abc")).log(record.TypeBatch, batch([]record.Definition{{ID: 78, Key: "x"}}))
	d.done()
	d.must(d.fs.MkdirAll("data/timelines", 0o755))
	d.must(safefile.Replace(d.fs, "data/timelines/one", []byte(strings.Repeat("x", 3000))))
	d.must(safefile.Replace(d.fs, "data/timelines/two", []byte(strings.Repeat("x", 1000))))
	return d
}

// views are the ways to look at a directory.
func views() map[string]func(d *Directory, w io.Writer) error {
	space := func(o SpaceOptions) func(d *Directory, w io.Writer) error {
		return func(d *Directory, w io.Writer) error {
			r, err := d.Space(context.Background(), o)
			if err != nil {
				return err
			}
			return r.WriteText(w)
		}
	}
	return map[string]func(d *Directory, w io.Writer) error{
		"overview":  (*Directory).WriteOverview,
		"catalogue": func(d *Directory, w io.Writer) error { return d.WriteCatalogue(w) },
		"file":      func(d *Directory, w io.Writer) error { return d.WriteFile(w, 12, -1) },
		"page":      func(d *Directory, w io.Writer) error { return d.WriteFile(w, 3, 0) },
		"series": func(d *Directory, w io.Writer) error {
			return d.WriteSeries(w, "m", []model.Tag{{Name: "host", Value: "a"}})
		},
		"log":       func(d *Directory, w io.Writer) error { return d.WriteLog(w, false) },
		"records":   func(d *Directory, w io.Writer) error { return d.WriteLog(w, true) },
		"space":     space(SpaceOptions{}),
		"space-top": space(SpaceOptions{Top: 1, Pages: 2}),
	}
}

// TestViews compares what people see of a store with testdata.
func TestViews(t *testing.T) {
	d := shown(t)
	dir := d.open()
	defer dir.Close()
	for name, view := range views() {
		var got strings.Builder
		d.must(view(dir, &got))
		text := diskSpace.ReplaceAllString(got.String(), "disk space   N")
		golden := filepath.Join("testdata", name+".txt")
		if *update {
			d.must(os.MkdirAll("testdata", 0o755))
			d.must(os.WriteFile(golden, []byte(text), 0o644))
		}
		want, err := os.ReadFile(golden)
		d.must(err)
		if text != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, text, want)
		}
	}
}

// TestOverviewWithoutTimelines: a store without timelines shows nothing of them, one with few of them does.
func TestOverviewWithoutTimelines(t *testing.T) {
	d := newData(t).done()
	for bytes, want := range []string{"", "Timelines beside them: 1 bytes"} { // in this order: nothing removes the folder
		if bytes > 0 {
			d.must(d.fs.MkdirAll("data/timelines", 0o755))
			d.must(safefile.Replace(d.fs, "data/timelines/one", []byte(strings.Repeat("x", bytes))))
		}
		dir := d.open()
		var got strings.Builder
		d.must(dir.WriteOverview(&got))
		d.must(dir.Close())
		if text := got.String(); strings.Contains(text, "Timelines") != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%d bytes of timelines:\n%s", bytes, text)
		}
	}
}

// TestViewsOfADamagedList: without a list of block files that can be read, no view says that there are none.
func TestViewsOfADamagedList(t *testing.T) {
	d := newData(t).done()
	db, err := catalogue.OpenPebble(d.fs, "data/"+datadir.Catalogue, false, &pebble.Options{Logger: catalogue.Quiet{}})
	d.must(err)
	d.must(errors.Join(db.Set([]byte{catalogue.TableFile, 1}, []byte("{}"), pebble.Sync), db.Close()))
	dir := d.open()
	defer dir.Close()
	for _, name := range []string{"overview", "space"} {
		if err := views()[name](dir, io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestManySeries: of many series the first are shown, and the others are counted.
func TestManySeries(t *testing.T) {
	d := shown(t)
	dir := d.open()
	defer dir.Close()
	var got strings.Builder
	d.must(dir.WriteSeries(&got, "many", nil))
	if n := strings.Count(got.String(), "many{"); n != inspectSeries || inspectSeries != 20 || !strings.HasSuffix(got.String(), "\nand 3 more series; name more tags\n") {
		t.Errorf("%d series are shown:\n%s", n, &got)
	}
	got.Reset()
	d.must(dir.WriteSeries(&got, "many", []model.Tag{{Name: "side", Value: "right"}}))
	if n := strings.Count(got.String(), "many{"); n != 11 || strings.Contains(got.String(), "more series") {
		t.Errorf("%d series are shown:\n%s", n, &got)
	}
}

// TestViewsOfWhatIsNotThere: an answer about something missing says so, and lists what exists.
func TestViewsOfWhatIsNotThere(t *testing.T) {
	d := shown(t)
	dir := d.open()
	defer dir.Close()
	for _, c := range []struct {
		err  error
		want string
	}{
		{dir.WriteFile(io.Discard, 12, 3), "block file 12 has pages 0 to 2, not 3"},
		{dir.WriteFile(io.Discard, 12, 2), ""},
		{dir.WriteFile(io.Discard, 13, -1), "there is no block file 13; varve inspect lists the block files"},
		{dir.WriteSeries(io.Discard, "none", nil), "no series of none with these tags is in the catalogue"},
		{dir.WriteSeries(io.Discard, "m", []model.Tag{{Name: "host", Value: "c"}}), "no series of m"},
		{dir.WriteSeries(io.Discard, "m", []model.Tag{{Name: "none", Value: ""}}), "no series of m"},
		{dir.WriteSeries(io.Discard, "many", []model.Tag{{Name: "side", Value: "left"}, {Name: "n", Value: "01"}}), "no series of many"},
		{dir.WriteSeries(io.Discard, "many", []model.Tag{{Name: "side", Value: "left"}, {Name: "n", Value: "02"}}), ""},
	} {
		if (c.err == nil) != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
}

// TestViewsOfDamage: what cannot be read is in its place, the rest is shown.
func TestViewsOfDamage(t *testing.T) {
	d := shown(t)
	f, err := blockfile.Open(d.fs, blockPath(12), 12, blockfile.NewCache(0))
	d.must(err)
	offset := f.Ref(0).Offset
	d.must(f.Close())
	d.flip(blockPath(12), offset+3).flip("data/log/0000000001.wal", 60)
	dir := d.open()
	defer dir.Close()
	for name, wants := range map[string][]string{
		"file":    {"damaged", "17021"},
		"series":  {"damaged: ", "2 chunks"},
		"log":     {"damaged: data/log/0000000001.wal: damaged at offset 40: "},
		"records": {"damaged: data/log/0000000001.wal: damaged at offset 40: ", "unknown type 200"},
		"space":   {"estimated from 3 of 4 pages"},
	} {
		var got strings.Builder
		if err := views()[name](dir, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range wants {
			if !strings.Contains(got.String(), want) {
				t.Errorf("%s lacks %q:\n%s", name, want, &got)
			}
		}
	}
	if err := dir.WriteFile(io.Discard, 12, 0); !isDamage(err) {
		t.Errorf("a damaged page: %v", err)
	}
}

// TestManyChunks: of a series with many chunks the first are listed, and all are counted.
func TestManyChunks(t *testing.T) {
	d := newData(t)
	var pieces []piece
	for i := range int64(inspectChunks + 2) {
		pieces = append(pieces, longs(10_000*i, 2))
	}
	d.file(1, files, pieces...).done()
	dir := d.open()
	defer dir.Close()
	var got strings.Builder
	d.must(dir.WriteSeries(&got, "m", []model.Tag{{Name: "host", Value: "a"}}))
	if n := strings.Count(got.String(), "\n1  "); n != inspectChunks || inspectChunks != 500 || !strings.Contains(got.String(), "502 chunks") || !strings.Contains(got.String(), " 1004 ") {
		t.Errorf("%d chunks are listed:\n%s", n, got.String()[got.Len()-300:])
	}
}

// TestEveryReadThatFails: whichever call of the file system fails, who looks at a directory is
// told. Only of a damaged page or table a check or a list goes on.
func TestEveryReadThatFails(t *testing.T) {
	d := shown(t)
	disk := d.disk
	all := views()
	all["check"] = func(d *Directory, w io.Writer) error {
		r, err := d.Check(context.Background(), CheckOptions{Now: now})
		if err == nil && (len(r.Findings) > 4 || len(r.Notes) > 2) { // beside those of the records that are shown
			err = fmt.Errorf("found: %v, %q", r.Findings, r.Notes)
		}
		return err
	}
	total := int32(0)
	for name, view := range all {
		for n := int32(1); ; n++ {
			var calls atomic.Int32
			var failed atomic.Pointer[errorfs.Op]
			var on atomic.Bool
			d.fs = errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if !on.Load() || calls.Add(1) != n {
					return nil
				}
				failed.Store(&op)
				return errorfs.ErrInjected
			}))
			dir := d.open()
			on.Store(true)
			var got strings.Builder
			err := view(dir, &got)
			on.Store(false)
			op := failed.Load()
			if op == nil {
				if err != nil {
					t.Errorf("%s after %d calls: %v", name, n-1, err)
				}
				total += n - 1
				d.must(dir.Close())
				break
			}
			told := err != nil || name == "file" && strings.Contains(got.String(), "damaged") ||
				strings.HasPrefix(op.Path, "data/timelines/") && op.Kind == errorfs.OpStat // it was removed meanwhile
			if !told {
				t.Errorf("%s: call %d, of kind %d for %s, fails without a word:\n%s", name, n, op.Kind, op.Path, &got)
			}
			_ = dir.Close()
		}
	}
	if total < 60 {
		t.Errorf("only %d calls failed", total)
	}
}

// TestCodecsAreCountedByFamily: widths and counts do not tell codecs apart.
func TestCodecsAreCountedByFamily(t *testing.T) {
	for name, want := range map[string]string{
		"times=regular values=delta2:0+9":           "times=regular values=delta2",
		"times=linear12:3 values=dictionary300:4+5": "times=linear values=dictionary",
		"times=regular values=split7":               "times=regular values=split",
	} {
		if got := codecFamily(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

// TestSpaceIsEstimated: of many pages some are read, evenly spread, and the rest is estimated.
func TestSpaceIsEstimated(t *testing.T) {
	d := newData(t)
	var pieces []piece
	for i := range int64(10) {
		pieces = append(pieces, piece{id: aString, from: i * width})
	}
	d = pages(d, pieces...)
	dir := d.open()
	defer dir.Close()
	for _, c := range []struct {
		pages int
		read  int64
	}{{0, 10}, {20, 10}, {10, 10}, {9, 5}, {5, 5}, {4, 4}, {1, 1}} {
		r, err := dir.Space(t.Context(), SpaceOptions{Pages: c.pages})
		d.must(err)
		if r.Pages != 10 || r.PagesRead != c.read || len(r.Metrics) != 1 {
			t.Fatalf("up to %d pages: %+v, want %d", c.pages, r, c.read)
		}
		if m := r.Metrics[0]; m.Samples != 10 || m.Chunks != m.Samples || m.Bytes < 9*17_000 || m.Bytes > 10*17_100 || m.Series != 1 || m.Name != "text" {
			t.Errorf("up to %d pages: %+v", c.pages, m)
		}
	}
}
