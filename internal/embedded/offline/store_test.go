package offline

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

// The series of a data directory that a test makes. Other ids below seriesEnd had
// series that were removed.
const (
	aLong model.SeriesNumber = iota
	aDouble
	aString
	seriesEnd model.SeriesNumber = 5
)

// nowMS is the time of a check, width that of the rows.
const (
	nowMS = 10_000_000
	width = 1_000_000
)

// data is a data directory that a test makes file by file, right or wrong.
type data struct {
	*testing.T
	fs     vfs.FS
	disk   *vfs.MemFS
	change catalogue.Change
	logged []logged
}

// logged is a record of the log.
type logged struct {
	typ     byte
	payload []byte
}

func newData(t *testing.T) *data {
	mem := vfs.NewMem()
	d := &data{T: t, fs: mem, disk: mem}
	d.must(mem.MkdirAll("data/"+datadir.Blocks, 0o755))
	d.change = catalogue.Change{
		AddFiles: map[uint64]catalogue.File{},
		Meta:     func(m *catalogue.Meta) { m.NextSeries, m.LogFrom = seriesEnd, 1 },
	}
	for id, s := range []model.Series{
		{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("host", "a")},
		{Metric: "m", Type: model.TypeDouble, Tags: model.MustTags("host", "b")},
		{Metric: "text", Type: model.TypeString},
	} {
		d.change.Define = append(d.change.Define, record.Definition{ID: model.SeriesNumber(id), Key: string(s.AppendKey(nil))})
	}
	return d
}

func (d *data) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// A piece is samples of one series, for a block file.
type piece struct {
	id    model.SeriesNumber
	kind  model.Kind
	from  int64 // the first time
	n     int
	step  int64
	ttl   uint32
	value []byte // of kinds that have bytes
}

func (p piece) columns() (c model.Columns) {
	for i := range int64(p.n) {
		ms := p.from + i*p.step
		switch {
		case p.kind == model.Double:
			c.AppendFixed(ms, math.Float64bits(float64(i)+0.5), p.ttl)
		case p.kind.Fixed():
			c.AppendFixed(ms, uint64(i), p.ttl)
		default:
			c.AppendBytes(ms, p.value, p.ttl)
		}
	}
	return c
}

func blockPath(number uint64) string { return "data/blocks/" + datadir.BlockName(number) }

// file writes a block file and puts it on the list.
func (d *data) file(number uint64, o blockfile.Origin, pieces ...piece) *data {
	d.Helper()
	w, err := blockfile.Create(d.fs, blockPath(number), chunk.Best, o)
	d.must(err)
	for _, p := range pieces {
		c := p.columns()
		d.must(w.Add(p.id, p.kind, &c, 0, c.Len()))
	}
	_, err = w.Finish()
	d.must(err)
	d.change.AddFiles[number] = catalogue.File{Bytes: w.Size(), Sequence: o.Sequence, Deletions: o.Deletions}
	return d
}

// log adds a record to the log.
func (d *data) log(typ byte, payload []byte) *data {
	d.logged = append(d.logged, logged{typ, payload})
	return d
}

// batch is a record with definitions and samples of long series.
func batch(defs []record.Definition, ids ...model.SeriesNumber) []byte {
	var b store.Batch
	var kinds []model.Kind
	for i, id := range ids {
		b.AddLong(store.Ref(id), int64(1000+i), int64(i), 0)
		kinds = append(kinds, model.Long)
	}
	return record.AppendSamples(record.AppendDefinitions(nil, defs), &b, kinds)
}

func deletion(sequence uint64, r model.TimeRange, ids ...uint32) *record.Deletion {
	return &record.Deletion{Sequence: sequence, Range: r, IDs: roaring.BitmapOf(ids...)}
}

func (d *data) deletionRecord(x *record.Deletion) []byte {
	b, err := record.AppendDeletion(nil, *x)
	d.must(err)
	return b
}

// done writes catalogue and log.
func (d *data) done() *data {
	d.Helper()
	c, err := catalogue.Open(d.fs, "data/"+datadir.Catalogue, catalogue.Options{Logger: catalogue.Quiet{}, Fresh: true, RowWidth: width * time.Millisecond})
	d.must(err)
	d.must(errors.Join(c.Commit(d.change), c.Close()))
	log, err := wal.Open(d.fs, "data/"+datadir.Log, wal.DefaultConfig(), wal.Options{})
	d.must(err)
	for _, r := range d.logged {
		log.Append(r.typ, r.payload)
	}
	d.must(log.Close())
	return d
}

// flip changes one bit of a file; negative offsets count from its end.
func (d *data) flip(path string, offset int64) *data {
	d.Helper()
	f, err := d.disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	d.must(err)
	info, err := f.Stat()
	d.must(err)
	if offset < 0 {
		offset += info.Size()
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, offset)
	d.must(err)
	b[0] ^= 1
	_, err = f.WriteAt(b, offset)
	d.must(errors.Join(err, f.Close()))
	return d
}

func now() time.Time { return time.UnixMilli(nowMS) }

func (d *data) open() *Directory {
	d.Helper()
	dir, err := Open(d.fs, "data")
	d.must(err)
	return dir
}

func (d *data) check() *CheckReport {
	d.Helper()
	dir := d.open()
	r, err := dir.Check(d.Context(), CheckOptions{Now: now})
	d.must(errors.Join(err, dir.Close()))
	return r
}

// longs and doubles are samples as they should be.
func longs(from int64, n int) piece {
	return piece{id: aLong, kind: model.Long, from: from, n: n, step: 1000}
}

func doubles(from int64, n int) piece {
	return piece{id: aDouble, kind: model.Double, from: from, n: n, step: 1000}
}

// findings are what a check has found, a line each.
func findings(r *CheckReport) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s@%d: %s; costs %s", f.File, f.Offset, f.Problem, f.Cost))
	}
	return strings.Join(lines, "\n")
}
