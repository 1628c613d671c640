package offline

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/rowtime"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/wal"
)

// files is the origin of a file of samples, buckets that of a file of buckets of a minute.
var (
	files   = blockfile.Origin{Sequence: 1}
	buckets = blockfile.Origin{Sequence: 1, StepMS: 60_000}
)

func bucketsFrom(from int64, value []byte) piece {
	return piece{id: aDouble, kind: model.AggregateKind, from: from, n: 3, step: 60_000, value: value}
}

func aggregate() []byte {
	return model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1, LastMS: 60_000}.Append(nil)
}

// TestCheckFinds makes stores with one thing wrong, or odd, and compares all that a check says.
func TestCheckFinds(t *testing.T) {
	const file = "data/blocks/0000000001.blk"
	aSpan := func(from, to string) string { return "1970-01-01T00:" + from + "Z to 1970-01-01T00:" + to + "Z" }
	for _, c := range []struct {
		name string
		make func(d *data)
		want string // findings
		note string // the only one
	}{
		{"nothing", func(d *data) { d.file(1, files, longs(1000, 50), doubles(2000, 3)).done() }, "", ""},
		{"nothing at all", func(d *data) { d.done(); d.must(d.fs.RemoveAll("data/blocks")) }, "", ""},
		{
			"values of another kind",
			func(d *data) { d.file(1, files, piece{id: aLong, kind: model.Double, from: 1, n: 3, step: 1}).done() },
			file + "@16: page of 16 bytes, series 0 at 1 ms: expected values of kind long, got double; costs 3 samples of m{host=a} (kairos_long), " + aSpan("00:00.001", "00:00.003"), "",
		},
		{
			"an id that was never given out",
			func(d *data) {
				d.file(1, files, piece{id: seriesEnd, kind: model.Double, from: 1, n: 3, step: 1}).done()
			},
			file + "@16: page of 16 bytes, series 5 at 1 ms: no series ever had this id; costs 3 samples of series 5, " + aSpan("00:00.001", "00:00.003"), "",
		},
		{
			"a chunk of two partitions",
			func(d *data) { d.file(1, files, longs(width-1000, 2)).done() },
			file + "@16: page of 18 bytes, series 0 at 999000 ms: it crosses the border of a partition; costs 2 samples of m{host=a} (kairos_long), " + aSpan("16:39.000", "16:40.000"), "",
		},
		{
			"samples of a removed series",
			func(d *data) { d.file(1, files, piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1}).done() },
			"", file + ": 3 samples of 1 series that were removed; no query sees them, and the next merge of the file drops them",
		},
		{
			"expired samples of a removed series",
			func(d *data) {
				d.file(1, files, piece{id: 4, kind: model.Long, from: nowMS - 9002, n: 3, step: 1, ttl: 9}).done()
			},
			"", "",
		},
		{
			"samples of a removed series, the last not yet expired",
			func(d *data) {
				d.file(1, files, piece{id: 4, kind: model.Long, from: nowMS - 9001, n: 3, step: 1, ttl: 9}).done()
			},
			"", file + ": 3 samples of 1 series that were removed; no query sees them, and the next merge of the file drops them",
		},
		{
			"deleted samples of a removed series",
			func(d *data) {
				d.change.AddDeletions = []*record.Deletion{deletion(1, model.TimeRange{StartMS: 1, EndMS: 3}, 4)}
				d.file(1, files, piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1}).done()
			},
			"", "",
		},
		{
			"samples of a removed series, the last not deleted",
			func(d *data) {
				d.change.AddDeletions = []*record.Deletion{deletion(1, model.TimeRange{StartMS: 1, EndMS: 2}, 4), deletion(2, model.AllTime, 3)}
				d.file(1, files, piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1}).done()
			},
			"", file + ": 3 samples of 1 series that were removed; no query sees them, and the next merge of the file drops them",
		},
		{
			"samples of a removed series, later than the deletion",
			func(d *data) {
				d.change.AddDeletions = []*record.Deletion{deletion(7, model.AllTime, 4)}
				d.file(1, blockfile.Origin{Sequence: 1, Deletions: 7}, piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1}).done()
			},
			"", file + ": 3 samples of 1 series that were removed; no query sees them, and the next merge of the file drops them",
		},
		{
			"a file of another size and origin",
			func(d *data) {
				d.file(1, files, longs(1000, 5))
				d.change.AddFiles[1] = catalogue.File{Bytes: 7, Sequence: 2}
				d.done()
			},
			file + "@296: expected a file of 7 bytes, got 296; costs the server does not start\n" +
				file + "@-1: expected sequence 2 and deletions 0, got 1 and 0; costs which of two samples with the same time is valid, and which samples are deleted", "",
		},
		{
			"a file with other deletions",
			func(d *data) {
				d.file(1, files, longs(1000, 5))
				m := d.change.AddFiles[1]
				m.Deletions = 3
				d.change.AddFiles[1] = m
				d.done()
			},
			file + "@-1: expected sequence 1 and deletions 3, got 1 and 0; costs which of two samples with the same time is valid, and which samples are deleted", "",
		},
		{
			"a list of an earlier build",
			func(d *data) {
				d.file(1, files, longs(1000, 5))
				d.change.AddFiles[1] = catalogue.File{Bytes: d.change.AddFiles[1].Bytes}
				d.done()
			},
			"", "",
		},
		{
			"a file that is gone",
			func(d *data) { d.file(1, files, longs(1000, 5)).done(); d.must(d.fs.Remove(file)) },
			file + "@-1: expected a file of 296 bytes, got no such file; costs all samples of the file; the server does not start", "",
		},
		{
			"a file without a readable index",
			func(d *data) { d.file(1, files, longs(1000, 5), doubles(1000, 1)).done().flip(file, -20) },
			file + "@276: an index of 234 bytes at 43 does not fit the file of 308; costs the server does not start; 6 samples of 2 series in 1 page can be read without the index, 0 of 6 samples cannot", "",
		},
		{
			"a page that cannot be read",
			func(d *data) { d.file(1, files, longs(1000, 5), doubles(1000, 4)).done().flip(file, 20) },
			file + "@16: page 0: chunk: page checksum mismatch: expected f5b8e6f1, got f8b29b1c; costs 9 samples of m{host=a} (kairos_long), m{host=b} (kairos_double), " +
				aSpan("00:01.000", "00:05.000") + "; queries that need them fail, others do not", "",
		},
		{"buckets", func(d *data) { d.file(1, buckets, bucketsFrom(60_000, aggregate())).done() }, "", ""},
		{
			"buckets beside their step",
			func(d *data) { d.file(1, buckets, bucketsFrom(60_001, aggregate())).done() },
			file + "@16: page of 36 bytes, series 1 at 60001 ms: expected buckets that begin at multiples of 60000 ms, got one at 60001; costs 3 samples of m{host=b} (kairos_double), " +
				aSpan("01:00.001", "03:00.001"), "",
		},
		{
			"buckets that are none",
			func(d *data) { d.file(1, buckets, bucketsFrom(60_000, aggregate()[:20])).done() },
			file + "@16: page of 43 bytes, series 1 at 60000 ms: bucket at 60000 ms: aggregate of 20 bytes, fewer than 48; costs 3 samples of m{host=b} (kairos_double), " +
				aSpan("01:00.000", "03:00.000"), "",
		},
		{
			"samples in a file of buckets",
			func(d *data) { d.file(1, buckets, longs(60_000, 3)).done() },
			file + "@16: page of 18 bytes, series 0 at 60000 ms: expected values of kind aggregate in a file of buckets, got long; costs 3 samples of m{host=a} (kairos_long), " +
				aSpan("01:00.000", "01:02.000"), "",
		},
		{
			"a file on no list",
			func(d *data) { d.file(1, files, longs(1000, 5)); delete(d.change.AddFiles, 1); d.done() },
			"", "blocks/0000000001.blk is in no manifest: a crash left it, and the next start removes it",
		},
		{
			"a file on no list, and none where the list has one",
			func(d *data) {
				d.file(1, files, longs(1000, 5)).file(2, files, longs(2000, 5))
				delete(d.change.AddFiles, 2)
				d.done()
				d.must(d.fs.Remove(blockPath(1)))
			},
			file + "@-1: expected a file of 296 bytes, got no such file; costs all samples of the file; the server does not start",
			"blocks/0000000002.blk is in no manifest, which may be older than the file: varve repair moves it to quarantine",
		},
		{
			"a file of somebody else",
			func(d *data) { d.done(); d.must(safefile.Replace(d.fs, "data/blocks/notes", []byte("text"))) },
			"", "blocks/notes is not a file of this store",
		},
		{
			"series that no checkpoint counts",
			func(d *data) {
				d.change.Define = append(d.change.Define, record.Definition{ID: seriesEnd, Key: string(model.Series{Metric: "m", Type: model.TypeLong}.AppendKey(nil))})
				d.done()
			},
			"", "1 series were added by a checkpoint that a crash interrupted; the log has them too",
		},
		{
			"a table of the catalogue that a crash has left",
			func(d *data) { d.done(); d.must(safefile.Replace(d.fs, "data/catalogue/999999.sst", []byte("text"))) },
			"", "catalogue/999999.sst is not in use: a crash left it, and the next start removes it",
		},
		{
			"records",
			func(d *data) {
				d.log(record.TypeBatch, batch([]record.Definition{{ID: 7, Key: string(model.Series{Metric: "new", Type: model.TypeLong}.AppendKey(nil))}}, 0, 7)).
					log(record.TypeDeletion, d.deletionRecord(deletion(1, model.AllTime, 7))).done()
			},
			"", "",
		},
		{
			"records that cannot be used",
			func(d *data) {
				d.log(record.TypeBatch, batch([]record.Definition{{ID: 7, Key: "x"}}, 0, 7)).log(record.TypeBatch, batch(nil, 0, 0)).
					log(record.TypeBatch, batch(nil, 9)).log(77, []byte("abc")).log(record.TypeDeletion, []byte("abc")).done()
			},
			`data/log/0000000001.wal@-1: series key "x": unknown kind; costs one record of 13 bytes; the server does not start
data/log/0000000001.wal@-1: record: sample of unknown series 9; costs one record of 6 bytes; the server does not start
data/log/0000000001.wal@-1: record of unknown type 77: written by a newer build; costs one record of 3 bytes; the server does not start
data/log/0000000001.wal@-1: record: cut off; costs one record of 3 bytes; the server does not start`, "",
		},
		{
			"a record that cannot be read, and a series that it introduced",
			func(d *data) {
				d.log(record.TypeBatch, batch([]record.Definition{{ID: 7, Key: string(model.Series{Metric: "new", Type: model.TypeLong}.AppendKey(nil))}}, 7)).
					log(record.TypeBatch, batch(nil, 7)).log(record.TypeBatch, batch(nil, 0)).done().flip("data/log/0000000001.wal", 60)
			},
			"data/log/0000000001.wal@40: record of 13 bytes does not match its crc 16aee15d; costs the records in the damaged bytes: samples, new series or deletions that are in no block file yet; in total " +
				"28 bytes in 1 place of the log; the server does not start", "",
		},
	} {
		d := newData(t)
		c.make(d)
		r := d.check()
		if got := findings(r); got != c.want {
			t.Errorf("%s: found\n%s\nwant\n%s", c.name, got, c.want)
		}
		if got := strings.Join(r.Notes, "\n"); got != c.note {
			t.Errorf("%s: noted\n%s\nwant\n%s", c.name, got, c.note)
		}
		if r.Clean() != (c.want == "") {
			t.Errorf("%s: clean: %t", c.name, r.Clean())
		}
	}
}

// TestCheckCounts: a report says how much was checked.
func TestCheckCounts(t *testing.T) {
	d := newData(t)
	d.change.AddDeletions = []*record.Deletion{deletion(1, model.TimeRange{StartMS: 0, EndMS: 3}, 4)}
	d.file(1, files, longs(1000, 50), longs(100_000, 2), doubles(2000, 3))
	d.file(2, files, piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1}, piece{id: 4, kind: model.Long, from: 9, n: 4, step: 1})
	r := d.log(record.TypeBatch, batch(nil, 0, 0)).log(record.TypeBatch, batch(nil, 0)).done().check()
	bytes := d.change.AddFiles[1].Bytes + d.change.AddFiles[2].Bytes
	want := CheckReport{Files: 2, Pages: 2, Chunks: 5, Samples: 62, Bytes: bytes, Series: 3, Rows: 2 + 3 + 2 + 1, Segments: 1, Records: 2, Logged: 3, Leftover: 4}
	got := *r
	got.Findings, got.Notes = nil, nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// big is a value that fills a page.
func big(seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 17_000)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// pages writes a file whose pages begin at each of the given places, and returns it.
func pages(d *data, places ...piece) *data {
	for id := range model.SeriesNumber(8) {
		s := model.Series{Metric: fmt.Sprint("t", id), Type: model.TypeString}
		d.change.Define = append(d.change.Define, record.Definition{ID: 10 + id, Key: string(s.AppendKey(nil))})
	}
	d.change.Meta = func(m *catalogue.Meta) { m.NextSeries, m.LogFrom = 18, 1 }
	for i := range places {
		p := &places[i]
		p.kind, p.n, p.step = model.String, 1, 1
		if p.value == nil {
			p.value = big(uint64(i))
		}
	}
	return d.file(1, files, places...).done()
}

// TestAffected: of a page that cannot be read a check says which series and times it may have
// had, as closely as the pages around it tell.
func TestAffected(t *testing.T) {
	small := []byte("small")
	all := []piece{
		{id: 10, from: 1000}, {id: 10, from: 3000}, // two pages of one series
		{id: 11, from: 2000}, {id: 12, from: 1000}, // each begins with another series
		{id: 13, from: 1000, value: small}, {id: 14, from: 1000, value: small}, {id: 15, from: 1000, value: small}, {id: 16, from: 1000},
		{id: 17, from: 1500, value: small},
	}
	d := pages(newData(t), all...)
	at := func(ms int64) string { return timeText(ms) }
	f, err := blockfile.Open(d.fs, blockPath(1), 1, blockfile.NewCache(0))
	d.must(err)
	var offsets []int64
	for i := range f.Pages() {
		offsets = append(offsets, f.Ref(i).Offset)
	}
	d.must(f.Close())
	whole := at(1000) + " to " + at(3000)
	want := []string{
		"t0{} (kairos_string)... " + at(1000) + " to " + at(2999),
		"t0{} (kairos_string), t1{} (kairos_string)... " + whole, // the next page may begin within t1
		"t1{} (kairos_string)... " + whole,                       // t2 begins with the first time of the file
		"t2{} (kairos_string)... " + whole,
		"up to 5 series (t3{} (kairos_string), t4{} (kairos_string), t5{} (kairos_string), ...)... " + whole,
		"t7{} (kairos_string)... " + at(1500) + " to " + at(3000),
	}
	if len(offsets) != len(want) {
		t.Fatalf("%d pages, want %d", len(offsets), len(want))
	}
	for i, offset := range offsets {
		d.flip(blockPath(1), offset+10)
		r := d.check()
		d.flip(blockPath(1), offset+10)
		text := "1 samples of " + strings.Replace(want[i], "... ", ", ", 1)
		if i == 4 {
			text = "4 samples of " + strings.Replace(want[i], "... ", ", ", 1)
		}
		if len(r.Findings) != 1 || r.Findings[0].Offset != offset || r.Findings[0].Cost != text+"; queries that need them fail, others do not" {
			t.Errorf("page %d: %+v\nwant %q", i, r.Findings, text)
		}
	}
	d.flip(blockPath(1), offsets[0]+10).flip(blockPath(1), offsets[2]+10)
	r := d.check()
	if len(r.Findings) != 2 || !strings.HasPrefix(r.Findings[1].Cost, "samples of t1{} (kairos_string), "+whole+"; 2 samples on the file's 2 damaged pages together; queries") {
		t.Errorf("two pages: %+v", r.Findings)
	}
}

// TestCheckOfPagesOutOfOrder: chunks that do not come by series and time are found, also
// those of different pages.
func TestCheckOfPagesOutOfOrder(t *testing.T) {
	page := func(pieces ...piece) chunk.Page {
		var b chunk.PageBuilder
		b.Reset(chunk.Best)
		for _, p := range pieces {
			c := p.columns()
			b.Add(p.id, p.kind, &c, 0, c.Len())
		}
		p, err := chunk.OpenPage(b.Finish(nil))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		first, second piece
		want          string
	}{
		"later series":        {longs(9000, 2), doubles(1000, 2), ""},
		"later time":          {longs(1000, 2), longs(2001, 2), ""},
		"the same time again": {longs(1000, 2), longs(2000, 2), "page of 7 bytes, series 0 at 2000 ms: expected series 0 after 2000 ms or a later one"},
		"an earlier series":   {doubles(1000, 2), longs(9000, 2), "page of 7 bytes, series 0 at 9000 ms: expected series 1 after 2000 ms or a later one"},
	} {
		d := newData(t).file(1, files, longs(1000, 5)).done()
		f, err := blockfile.Open(d.fs, blockPath(1), 1, blockfile.NewCache(0))
		d.must(err)
		checker := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
		b := newBlockCheck(checker, f, 1)
		for _, p := range []piece{c.first, c.second} {
			b.page(blockfile.PageRef{Length: 7}, page(p))
		}
		got := ""
		for _, f := range checker.report.Findings {
			got += f.Problem
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		d.must(f.Close())
	}
}

// TestCheckOfChunksThatAreNone: a chunk that cannot be decoded is found also where the checksum of its
// page is right, with the reason.
func TestCheckOfChunksThatAreNone(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).done()
	f, err := blockfile.Open(d.fs, blockPath(1), 1, blockfile.NewCache(0))
	d.must(err)
	defer f.Close()
	var builder chunk.PageBuilder
	builder.Reset(chunk.Best)
	c := piece{id: aString, kind: model.String, from: 1000, n: 50, step: 999, value: []byte("some text")}.columns()
	builder.Add(aString, model.String, &c, 0, c.Len())
	whole := builder.Finish(nil)
	undecodable, headless := 0, 0
	for i := 1; i < len(whole)-crc32.Size; i++ {
		changed := slices.Clone(whole[:len(whole)-crc32.Size])
		changed[i] ^= 0x11
		changed = binary.LittleEndian.AppendUint32(changed, crc32.Checksum(changed, crc32.MakeTable(crc32.Castagnoli)))
		page, err := chunk.OpenPage(changed)
		if err != nil {
			continue
		}
		var e chunk.Entry
		var decoder chunk.Decoder
		entries := page.Iter()
		var reason error
		if entries.Next(&e) {
			reason = decoder.DecodeEntry(&e, &model.Columns{})
		} else {
			reason = entries.Err()
			headless++
		}
		if reason == nil {
			continue
		}
		undecodable++
		checker := newChecker(t.Context(), d.fs, "data", CheckOptions{Now: now})
		newBlockCheck(checker, f, 1).page(blockfile.PageRef{Length: 7}, page)
		if got := findings(checker.report); !strings.Contains(got, reason.Error()) {
			t.Errorf("with byte %d changed: found %q, want %v", i, got, reason)
		}
	}
	if headless == 0 || undecodable == headless {
		t.Errorf("%d changes make the chunk undecodable, %d of them because of its header", undecodable, headless)
	}
}

// TestCheckIsSlow: a check reads no faster than it may, says how far it is once a second, and
// ends with its context.
func TestCheckIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told []CheckProgress
		c := newChecker(ctx, nil, "", CheckOptions{BytesPerSecond: 1000, Progress: func(p CheckProgress) { told = append(told, p) }})
		began := time.Now()
		for _, n := range []int64{500, 500, 0, 2500} {
			if err := c.read("files", n); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 3500*time.Millisecond {
			t.Errorf("3500 bytes at 1000 a second took %s", took)
		}
		if err := c.read("log", 0); err != nil || len(told) != 2 || told[0] != (CheckProgress{Doing: "files", Bytes: 1000, Total: 1000}) || told[1] != (CheckProgress{Doing: "log", Bytes: 3500, Total: 3500}) {
			t.Errorf("%v, progress %+v", err, told)
		}
		time.AfterFunc(time.Second, cancel)
		if err := c.read("log", 1e6); !errors.Is(err, context.Canceled) || time.Since(began) != 4500*time.Millisecond {
			t.Errorf("a check that was given up: %v after %s", err, time.Since(began))
		}
	})
}

// TestFindingsAreBounded: of many findings and notes the first are listed, findings are counted.
func TestFindingsAreBounded(t *testing.T) {
	c := newChecker(t.Context(), nil, "", CheckOptions{})
	for range findingsMax + 5 {
		c.find(Finding{})
		c.note("note")
	}
	if r := c.report; len(r.Findings) != findingsMax || findingsMax != 1000 || r.Further != 5 || len(r.Notes) != findingsMax || r.Clean() {
		t.Errorf("%d findings and %d more, %d notes", len(r.Findings), r.Further, len(r.Notes))
	}
}

// TestCheckWithoutCatalogue: where the catalogue cannot be read, files and log are still checked.
func TestCheckWithoutCatalogue(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).file(2, files, longs(1000, 7), doubles(1000, 1)).file(3, files, longs(1000, 5))
	d.log(record.TypeBatch, batch(nil, 9)).log(record.TypeDeletion, []byte("abc")).done().flip(blockPath(1), -20)
	d.must(safefile.Replace(d.fs, "data/blocks/notes", []byte("text")))
	names, err := d.fs.List("data/catalogue")
	d.must(err)
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			d.must(d.fs.Remove("data/catalogue/" + name))
		}
	}
	r := d.check()
	if len(r.Findings) != 2 || r.Findings[0].File != "data/catalogue" || r.Findings[0].part != partCatalogue || r.Findings[0].Remedy != catalogueRemedy || r.Findings[1].Problem != "record: cut off" {
		t.Errorf("findings %+v", r.Findings)
	}
	if r.Files != 2 || r.Samples != 13 || r.Chunks != 3 || r.Records != 2 || r.Logged != 0 || r.Bytes != d.change.AddFiles[2].Bytes+d.change.AddFiles[3].Bytes {
		t.Errorf("%+v", r)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], blockPath(1)) {
		t.Errorf("notes %q", r.Notes)
	}
	dir := d.open()
	defer dir.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dir.Check(ended, CheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a check whose context has ended: %v", err)
	}
	for what, err := range map[string]error{
		"overview":  dir.WriteOverview(&strings.Builder{}),
		"catalogue": dir.WriteCatalogue(&strings.Builder{}),
		"file":      dir.WriteFile(&strings.Builder{}, 2, -1),
		"series":    dir.WriteSeries(&strings.Builder{}, "m", nil),
		"log":       dir.WriteLog(&strings.Builder{}, false),
		"space":     errorOf(dir.Space(t.Context(), SpaceOptions{})),
	} {
		if err == nil || !strings.Contains(err.Error(), "the catalogue cannot be read") || !strings.Contains(err.Error(), "varve check reports details") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestOpenRefuses: what holds no store, or one in use, is not opened.
func TestOpenRefuses(t *testing.T) {
	if d, err := Open(vfs.NewMem(), "data"); err == nil || d != nil || !strings.Contains(err.Error(), "data holds no store") {
		t.Errorf("nothing: %v", err)
	}
	d := newData(t).done()
	lock, err := datadir.Lock(d.fs, "data")
	d.must(err)
	if o, err := Open(d.fs, "data"); !errors.As(err, new(*datadir.LockedError)) || o != nil {
		t.Errorf("in use: %v", err)
	}
	d.must(lock.Close())
	o := d.open()
	if _, err := datadir.Lock(d.fs, "data"); err == nil {
		t.Error("it is not locked while it is looked at")
	}
	d.must(o.Close())
	lock, err = datadir.Lock(d.fs, "data")
	d.must(err)
	d.must(lock.Close())
}

// A forbidding file system answers Stat of one file, or Lock of any, with a lack of permission.
type forbidding struct {
	vfs.FS
	stat string
	lock bool
}

func (f forbidding) Stat(name string) (vfs.FileInfo, error) {
	if f.stat == name {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Stat(name)
}

func (f forbidding) Lock(name string) (io.Closer, error) {
	if f.lock {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f.FS.Lock(name)
}

// A directory that this user may not read is neither empty nor in use.
func TestOpenWithoutPermission(t *testing.T) {
	d := newData(t).done()
	if o, err := Open(forbidding{FS: d.fs, stat: "data/catalogue"}, "data"); o != nil || !errors.Is(err, fs.ErrPermission) ||
		strings.Contains(err.Error(), "no store") {
		t.Errorf("no right to look: %v", err)
	}
	r := &repair{fs: forbidding{FS: d.fs, lock: true}, dir: "data", missing: map[uint64][]Finding{1: nil}}
	if err := r.blockFiles(); !errors.Is(err, fs.ErrPermission) || errors.As(err, new(*datadir.LockedError)) {
		t.Errorf("no right to write: %v", err)
	}
}

// running is a store that is open, as the store would lend it.
func (d *data) running(needed func() (wal.ReplayOptions, error)) (*Running, *Directory) {
	d.Helper()
	dir := d.open()
	open, err := dir.openFiles()
	d.must(err)
	return &Running{
		FS: d.fs, Dir: "data", Width: rowtime.Spec{Width: width}, Rows: dir.catalogue.Reader(), Files: open,
		Deletions: d.change.AddDeletions, Log: needed,
	}, dir
}

// TestCheckOfARunningStore: of the log of a running store only complete segments are checked,
// and those again of which some were released meanwhile.
func TestCheckOfARunningStore(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		from    []wal.Segment // the first segment needed at each call; 0: unknown
		records int64
		want    error
	}{
		"all":                 {from: []wal.Segment{1, 1}, records: 2},
		"released meanwhile":  {from: []wal.Segment{1, 2, 2, 2}, records: 1},
		"nothing is needed":   {from: []wal.Segment{3}},
		"not known":           {from: []wal.Segment{0}, want: broken},
		"not known any more":  {from: []wal.Segment{1, 0}, want: broken},
		"released, then gone": {from: []wal.Segment{1, 2, 3}},
	} {
		d := newData(t).file(1, files, longs(1000, 5), piece{id: 4, kind: model.Long, from: 1, n: 3, step: 1})
		d.change.AddDeletions = []*record.Deletion{deletion(1, model.AllTime, 4)}
		d.done()
		log, err := wal.Open(d.fs, "data/log", wal.DefaultConfig(), wal.Options{})
		d.must(err)
		for range 2 {
			log.Append(record.TypeBatch, batch(nil, 0))
			_, err := log.Rotate()
			d.must(err)
		}
		d.must(log.Wait(t.Context(), log.Append(77, []byte("in the segment that is written"))))
		calls := 0
		r, dir := d.running(func() (wal.ReplayOptions, error) {
			calls++
			if calls > len(c.from) {
				t.Fatalf("%s: call %d", name, calls)
			}
			if n := c.from[calls-1]; n > 0 {
				return wal.ReplayOptions{From: n + 1}, nil // the first one was empty
			}
			return wal.ReplayOptions{}, broken
		})
		report, err := r.Check(t.Context(), CheckOptions{Now: now})
		if !errors.Is(err, c.want) || calls != len(c.from) || report.Records != c.records && c.want == nil || !report.Clean() || len(report.Notes) > 0 {
			t.Errorf("%s: %v, %d calls, %+v", name, err, calls, report)
		}
		if report.Files != 1 || report.Samples != 8 || report.Rows == 0 {
			t.Errorf("%s: %+v", name, report)
		}
		closeFiles(r.Files)
		d.must(errors.Join(dir.Close(), log.Close()))
	}
	// One segment is never complete.
	d := newData(t).log(77, nil).done()
	r, dir := d.running(func() (wal.ReplayOptions, error) { t.Error("asked"); return wal.ReplayOptions{}, nil })
	if report, err := r.Check(t.Context(), CheckOptions{}); err != nil || report.Records != 0 || !report.Clean() {
		t.Errorf("one segment: %v, %+v", err, report)
	}
	d.must(dir.Close())
}

// TestCheckEndsWithItsContext, wherever it is.
func TestCheckEndsWithItsContext(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).log(record.TypeBatch, batch(nil, 0)).done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := d.open()
	defer dir.Close()
	if _, err := dir.Check(ctx, CheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("check: %v", err)
	}
	if _, err := dir.Space(ctx, SpaceOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("space: %v", err)
	}
	if _, err := Repair(ctx, d.fs, "data", RepairOptions{}, nil); err == nil {
		t.Error("repair of a directory in use")
	}
}

// TestCheckOfDamagedRows: a row of the catalogue that cannot be one of its table is found.
func TestCheckOfDamagedRows(t *testing.T) {
	d := newData(t).done()
	dir := d.open()
	defer dir.Close()
	c := newChecker(t.Context(), d.fs, "data", CheckOptions{})
	x := d.deletionRecord(deletion(7, model.AllTime, 1))
	key := func(n byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, n} }
	for name, err := range map[string]error{
		"deletion with a short key": c.deletionRow(key(7)[1:], x),
		"deletion with another key": c.deletionRow(key(8), x),
		"deletion that is none":     c.deletionRow(key(7), x[:3]),
		"series with a short key":   c.seriesRow([]byte{1}, nil),
		"series that is none":       c.seriesRow([]byte{0, 0, 0, 1}, []byte{255}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := c.deletionRow(key(7), x); err != nil || len(c.deletions) != 1 || c.deletions[0].Sequence != 7 || c.report.Series != 0 {
		t.Errorf("%v, %d deletions, %d series", err, len(c.deletions), c.report.Series)
	}
	var corruption *store.CorruptionError
	if isDamage(errors.New("x")) || !isDamage(fmt.Errorf("x: %w", &store.CorruptionError{})) || errors.As(errors.New("x"), &corruption) {
		t.Error("damage is not told from other errors")
	}
}
