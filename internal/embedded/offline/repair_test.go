package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/safefile"
	"varve/internal/wal"
)

// broken is a store with a file of which a page is damaged, one that is gone, one that is
// sound, and a damaged log.
func broken(t *testing.T) *data {
	d := newData(t)
	d.file(2, blockfile.Origin{Sequence: 5, Deletions: 3}, longs(1000, 50), piece{id: aString, kind: model.String, from: 1, n: 1, step: 1, value: big(1)}, piece{id: aString, kind: model.String, from: 2, n: 1, step: 1, value: big(2)})
	d.file(4, files, longs(1000, 7)).file(7, files, doubles(1000, 3))
	d.log(record.TypeBatch, batch(nil, 0)).log(record.TypeBatch, batch(nil, 0, 0)).done()
	d.must(d.fs.Remove(blockPath(4)))
	d.must(safefile.Replace(d.fs, "data/blocks/notes", []byte("text")))
	return d.flip(blockPath(2), 40).flip("data/log/0000000001.wal", 50)
}

// salvageLog is what a store would do with a damaged log, but for its samples.
func (d *data) salvageLog() (SalvagedLog, error) {
	if err := d.fs.RemoveAll("data/log"); err != nil {
		return SalvagedLog{}, err
	}
	return SalvagedLog{Records: 1, Samples: 2, SkippedBytes: 21, Damages: 1, Unusable: 4}, d.fs.MkdirAll("data/log", 0o755)
}

// read returns the content of a file.
func (d *data) read(path string) string {
	d.Helper()
	f, err := d.disk.Open(path)
	d.must(err)
	b, err := io.ReadAll(f)
	d.must(errors.Join(err, f.Close()))
	return string(b)
}

// write changes bytes of a file.
func (d *data) write(path string, offset int64, b []byte) {
	d.Helper()
	f, err := d.disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	d.must(err)
	_, err = f.WriteAt(b, offset)
	d.must(errors.Join(err, f.Close()))
}

// replace changes a text in a file to one of the same length.
func (d *data) replace(path, old, text string) *data {
	d.Helper()
	at := strings.Index(d.read(path), old)
	if at < 0 {
		d.Fatalf("%s has no %q", path, old)
	}
	d.write(path, int64(at), []byte(text))
	return d
}

// samples counts the samples of each series in the files on the list, by file.
func (d *data) samples() string {
	d.Helper()
	dir := d.open()
	defer dir.Close()
	numbers, manifest, err := dir.manifest()
	d.must(err)
	text := ""
	for _, n := range numbers {
		f, err := blockfile.Open(d.fs, blockPath(n), n, blockfile.NewCache(0))
		d.must(err)
		counts := map[model.SeriesNumber]int{}
		d.must(f.Scan(d.Context(), func(e *chunk.Entry) { counts[e.Series] += e.Count }))
		m := manifest[n]
		text += fmt.Sprintf("%d: sequence %d and %d, deletions %d and %d, step %d, whole %t, samples %v\n",
			n, m.Sequence, f.Sequence, m.Deletions, f.Deletions, f.StepMS, m.Bytes == f.Bytes, counts)
		d.must(f.Close())
	}
	return text
}

// TestRepair: damaged files are put aside, with a text, and what can be read of them takes
// their place; what is gone is taken off the list. What is done is said before.
func TestRepair(t *testing.T) {
	d := broken(t)
	damaged := d.read(blockPath(2))
	log := d.read("data/log/0000000001.wal")
	var said []string
	say := func(line string) { said = append(said, line) }
	plan := []string{
		"to do:",
		"  blocks/0000000002.blk: write what can be read of it to a new file, move it to quarantine",
		"  blocks/0000000004.blk: is missing; remove it from the list",
		"  data/log/0000000001.wal: copy it to quarantine, write every record of the log that can be read to block files",
	}
	r, err := Repair(t.Context(), d.fs, "data", RepairOptions{DryRun: true, Say: say, Now: now}, nil)
	if err != nil || len(r.Findings) != 3 || !slices.Equal(said, plan) {
		t.Errorf("dry run: %v, findings\n%s\nsaid %q", err, findings(r), said)
	}
	if names, _ := d.fs.List("data"); slices.Contains(names, datadir.Quarantine) || d.read(blockPath(2)) != damaged {
		t.Error("a dry run changes something")
	}

	said = nil
	r, err = Repair(t.Context(), d.fs, "data", RepairOptions{Say: say, Now: now}, d.salvageLog)
	if err != nil || !r.Clean() || r.Samples != 1+3 {
		t.Errorf("%v, findings\n%s", err, findings(r))
	}
	want := append(plan,
		"blocks/0000000004.blk: removed from the list",
		"blocks/0000000002.blk: 1 samples in 1 chunks are now in blocks/0000000008.blk; 51 of 52 samples are lost; where a lost sample had replaced an older one, the older one reappears",
		"log: 1 records were read, their 2 samples are now in block files; 21 bytes in 1 places could not be read, 4 records could not be used in full because the series they name were introduced there",
		"check again")
	if !slices.Equal(said, want) {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if got, want := d.samples(), "7: sequence 1 and 1, deletions 0 and 0, step 0, whole true, samples map[1:3]\n8: sequence 5 and 5, deletions 3 and 3, step 0, whole true, samples map[2:1]\n"; got != want {
		t.Errorf("there is\n%s\nwant\n%s", got, want)
	}
	if d.read("data/quarantine/0000000002.blk") != damaged || d.read("data/quarantine/0000000001.wal") != log {
		t.Error("the copies in quarantine differ")
	}
	text := d.read("data/quarantine/0000000002.blk.txt")
	for _, want := range []string{
		"data/blocks/0000000002.blk, put here by varve repair at 1970-01-01T02:46:40Z.\n\nat offset 16: page 0: chunk: page checksum mismatch",
		"\ncost: 51 samples of m{host=a}", "\n\nresult: 1 samples in 1 chunks are now in",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if text := d.read("data/quarantine/0000000001.wal.txt"); strings.Contains(text, "result") || !strings.Contains(text, "at offset 40") {
		t.Errorf("of the log: %s", text)
	}

	// What is sound is left alone.
	said = nil
	if r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Say: say}, nil); err != nil || !r.Clean() || len(said) > 0 {
		t.Errorf("again: %v, %+v, said %q", err, r, said)
	}
}

// TestRepairKeepsWhatIsInQuarantine: a second repair that sets a file of the same number aside
// overwrites nothing of the first one. Only a file of the same content takes the place of the other.
func TestRepairKeepsWhatIsInQuarantine(t *testing.T) {
	d := broken(t)
	d.must(d.fs.MkdirAll("data/quarantine", 0o750))
	damaged := d.read(blockPath(2))
	earlier := map[string]string{"0000000002.blk": strings.Repeat("x", len(damaged)), "0000000002.blk.txt": "text of it", "0000000001.wal": d.read("data/log/0000000001.wal"), "0000000001.wal.tmp": "half"}
	for name, text := range earlier {
		d.must(safefile.Replace(d.fs, "data/quarantine/"+name, []byte(text)))
	}
	if r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Now: now}, d.salvageLog); err != nil || !r.Clean() {
		t.Fatalf("%v, %+v", err, r)
	}
	if d.read("data/quarantine/0000000002.blk") != earlier["0000000002.blk"] {
		t.Error("the file of the earlier repair was overwritten")
	}
	if got := d.read("data/quarantine/0000000002.blk.txt"); got != "text of it" {
		t.Errorf("the text of the earlier repair is now %q", got)
	}
	names, err := d.fs.List("data/quarantine")
	slices.Sort(names)
	if want := []string{"0000000001.wal", "0000000001.wal.txt", "0000000002.blk", "0000000002.blk.2", "0000000002.blk.2.txt", "0000000002.blk.txt"}; err != nil || !slices.Equal(names, want) {
		t.Fatalf("quarantine has %q, %v", names, err)
	}
	if d.read("data/quarantine/0000000002.blk.2") != damaged || d.read("data/quarantine/0000000001.wal") != earlier["0000000001.wal"] {
		t.Error("the copies in quarantine differ")
	}
	if text := d.read("data/quarantine/0000000002.blk.2.txt"); !strings.Contains(text, "at offset 16: page 0") {
		t.Errorf("the text is %q", text)
	}
}

// TestRepairOfPartOfTheStore: where only files or only the log are damaged the other is left.
func TestRepairOfPartOfTheStore(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 50)).log(record.TypeBatch, batch(nil, 0)).done().flip(blockPath(1), 20)
	var said []string
	r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Say: func(s string) { said = append(said, s) }}, func() (SalvagedLog, error) {
		return SalvagedLog{}, errors.New("the log is not damaged")
	})
	if err != nil || !r.Clean() || r.Records != 1 {
		t.Errorf("files: %v, %+v", err, r)
	}
	if got := d.samples(); got != "" || !slices.Contains(said, "blocks/0000000001.blk: nothing of it could be read; all 50 samples are lost") {
		t.Errorf("files %q, said %q", got, said)
	}

	d = newData(t).file(1, files, longs(1000, 50)).log(record.TypeBatch, batch(nil, 0)).log(record.TypeBatch, batch(nil, 0)).done().flip("data/log/0000000001.wal", 50)
	failure := errors.New("no space")
	_, err = Repair(t.Context(), d.fs, "data", RepairOptions{}, func() (SalvagedLog, error) { return SalvagedLog{}, failure })
	if !errors.Is(err, failure) || !strings.Contains(err.Error(), "repair the log (run it again to continue)") {
		t.Errorf("log: %v", err)
	}
	names, err := d.fs.List("data/quarantine")
	slices.Sort(names)
	if want := []string{"0000000001.wal", "0000000001.wal.txt"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("quarantine has %q, %v", names, err)
	}
	if _, err := Repair(t.Context(), d.fs, "data", RepairOptions{}, d.salvageLog); err != nil || d.samples() == "" {
		t.Errorf("log, again: %v, files %q", err, d.samples())
	}
}

// TestRepairOfAnOldList: where the list has a file that is not there, the list may be old, so a file that is not
// on it is kept in quarantine: the next start would remove it.
func TestRepairOfAnOldList(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).file(2, files, longs(2000, 5))
	delete(d.change.AddFiles, 2)
	d.done()
	d.must(d.fs.Remove(blockPath(1)))
	newer := d.read(blockPath(2))
	r, err := Repair(t.Context(), d.fs, "data", RepairOptions{}, nil)
	if err != nil || !r.Clean() || d.samples() != "" {
		t.Errorf("%v, findings\n%s\nfiles %q", err, findings(r), d.samples())
	}
	if d.read("data/quarantine/0000000002.blk") != newer {
		t.Error("the copy in quarantine differs")
	}
}

// TestRepairWithoutAnIndex: a file whose index is damaged keeps its place in time, by its header
// or by the list, and buckets stay buckets.
func TestRepairWithoutAnIndex(t *testing.T) {
	for name, c := range map[string]struct {
		origin  blockfile.Origin
		unlist  bool // the list says nothing of it, as in old stores
		pieces  []piece
		want    string
		unknown bool
	}{
		"trailer": {blockfile.Origin{Sequence: 5, Deletions: 3}, false, []piece{longs(1000, 5)}, "2: sequence 5 and 5, deletions 3 and 3, step 0, whole true, samples map[0:5]\n", false},
		"buckets": {blockfile.Origin{Sequence: 5, StepMS: 60_000}, false, []piece{bucketsFrom(60_000, aggregate())}, "2: sequence 5 and 5, deletions 0 and 0, step 60000, whole true, samples map[1:3]\n", false},
		"old":     {blockfile.Origin{Sequence: 5, Deletions: 3}, true, []piece{longs(1000, 5)}, "2: sequence 0 and 0, deletions 0 and 0, step 0, whole true, samples map[0:5]\n", true},
	} {
		d := newData(t).file(1, c.origin, c.pieces...)
		if c.unlist {
			d.change.AddFiles[1] = catalogue.File{Bytes: d.change.AddFiles[1].Bytes}
		}
		d.done().flip(blockPath(1), -10)
		if c.unknown {
			d.replace(blockPath(1), `"sequence"`, `"whatever"`)
		}
		said := ""
		r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Say: func(s string) { said += s + "\n" }}, nil)
		if err != nil || !r.Clean() || d.samples() != c.want {
			t.Errorf("%s: %v, findings %s\n%s\nwant\n%s", name, err, findings(r), d.samples(), c.want)
		}
		if unknown := strings.Contains(said, "; its age could not be read, so it counts as older than all others"); unknown != c.unknown {
			t.Errorf("%s: said\n%s", name, said)
		}
	}
}

// TestRepairWhereThereIsNoEnd: a repair ends with its context wherever it is, also within a damaged
// file. What it was about to replace is still there, or in quarantine.
func TestRepairWhereThereIsNoEnd(t *testing.T) {
	const pages = 20 // that are sound: two checks and the salvage ask before each
	pieces := []piece{longs(1000, 50)}
	for i := range pages {
		pieces = append(pieces, piece{id: aString, kind: model.String, from: int64(i), n: 1, step: 1, value: big(uint64(i))})
	}
	for n := 1; ; n++ {
		d := newData(t).file(2, files, pieces...).done().flip(blockPath(2), 40)
		damaged := d.read(blockPath(2))
		ctx := &counted{Context: t.Context(), left: n}
		say := func(line string) {
			if ctx.left <= 0 && strings.Contains(line, "samples are lost") {
				t.Errorf("given up the %d. time that it is asked, it goes on: %s", n, line)
			}
		}
		_, err := Repair(ctx, d.fs, "data", RepairOptions{Say: say, Now: now}, d.salvageLog)
		if ctx.left > 0 {
			if err != nil || n < 3*pages {
				t.Errorf("after it was asked %d times: %v", n, err)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up the %d. time that it is asked: %v", n, err)
		}
		path := blockPath(2)
		if _, err := d.fs.Stat(path); err != nil {
			path = "data/quarantine/" + datadir.BlockName(2)
		}
		if d.read(path) != damaged {
			t.Errorf("given up the %d. time that it is asked: the damaged file is not the same", n)
		}
	}
}

// TestUnrepairable: what only a backup or a newer build helps for is refused, and named.
func TestUnrepairable(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).file(2, files, longs(1000, 5)).done().flip(blockPath(2), 20)
	names, err := d.fs.List("data/catalogue")
	d.must(err)
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST") {
			d.must(d.fs.Remove("data/catalogue/" + name))
		}
	}
	_, err = Repair(t.Context(), d.fs, "data", RepairOptions{}, d.salvageLog)
	var refused *UnrepairableError
	if !errors.As(err, &refused) || len(refused.Findings) != 1 ||
		!strings.HasPrefix(err.Error(), "the catalogue is damaged, which cannot be repaired: nothing was changed\n  data/catalogue: ") || !strings.HasSuffix(err.Error(), "\n    "+catalogueRemedy) {
		t.Errorf("catalogue: %v", err)
	}

	d = newData(t).file(1, files, longs(1000, 5)).done().replace(blockPath(1), `"chunks"`, `"others"`)
	d.write(blockPath(1), 8, []byte{200})
	_, err = Repair(t.Context(), d.fs, "data", RepairOptions{}, d.salvageLog)
	if !errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "block files were written by a newer build") || !strings.Contains(err.Error(), newerRemedy) {
		t.Errorf("newer file: %v", err)
	}
	if NewerRemedy(d.fs, blockPath(1)) != newerRemedy || NewerRemedy(d.fs, blockPath(2)) != "" {
		t.Error("newer files are not told from others")
	}
	if names, _ := d.fs.List("data"); slices.Contains(names, datadir.Quarantine) {
		t.Error("something was changed")
	}

	// Timelines are not repaired, which is said.
	d = newData(t).done()
	d.must(d.fs.MkdirAll("data/timelines", 0o755))
	d.must(safefile.Replace(d.fs, "data/timelines/000001.sst", []byte("text")))
	said := ""
	r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Say: func(s string) { said += s + "\n" }}, d.salvageLog)
	if err != nil || len(r.Findings) != 1 || !strings.Contains(said, "data/timelines/000001.sst: not repaired: "+timelinesRemedy) {
		t.Errorf("timelines: %v, %+v, said %q", err, r, said)
	}
}

// TestRepairOnAFailingDisk: whichever call fails, a repair says so, and one that is run again
// comes to what one without a failure comes to.
func TestRepairOnAFailingDisk(t *testing.T) {
	whole := broken(t)
	if _, err := Repair(t.Context(), whole.fs, "data", RepairOptions{Now: now}, whole.salvageLog); err != nil {
		t.Fatal(err)
	}
	// The new file's number differs if an interrupted repair has left one.
	content := func(d *data) string {
		lines := strings.Split(strings.TrimSpace(d.samples()), "\n")
		for i := range lines {
			lines[i] = lines[i][strings.Index(lines[i], ":"):]
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	want := content(whole)
	for n := int32(1); ; n++ {
		d := broken(t)
		damaged := d.read(blockPath(2))
		var calls atomic.Int32
		var failed atomic.Pointer[errorfs.Op]
		d.fs = errorfs.Wrap(d.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.HasPrefix(op.Path, "data/catalogue") || op.Kind == errorfs.OpFilePreallocate || calls.Add(1) != n {
				return nil
			}
			failed.Store(&op)
			return errorfs.ErrInjected
		}))
		r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Now: now}, d.salvageLog)
		op := failed.Load()
		if op == nil {
			if err != nil || n < 30 {
				t.Errorf("after %d calls: %v", n-1, err)
			}
			return
		}
		harmless := op.Path == "data/LOCK" && op.Kind == errorfs.OpStat || // it is locked anyway
			op.Kind == errorfs.OpGetDiskUsage || !strings.HasPrefix(op.Path, "data/") || // both of Pebble
			op.Path == blockPath(2) && op.Kind.ReadOrWrite() == errorfs.OpIsRead // what cannot be read is lost
		if err == nil && r.Clean() && !harmless {
			t.Errorf("call %d, of kind %d for %s, fails without a word", n, op.Kind, op.Path)
		}
		d.fs = d.disk
		if r, err := Repair(t.Context(), d.fs, "data", RepairOptions{Now: now}, d.salvageLog); err != nil || !r.Clean() {
			t.Fatalf("call %d, of kind %d for %s: again: %v, %+v", n, op.Kind, op.Path, err, r)
		}
		if got := content(d); got != want {
			t.Errorf("call %d, of kind %d for %s: there is\n%s\nwant\n%s", n, op.Kind, op.Path, got, want)
		}
		if d.read("data/quarantine/0000000002.blk") != damaged {
			t.Errorf("call %d, of kind %d for %s: the copy in quarantine differs", n, op.Kind, op.Path)
		}
	}
}

// TestKeeper: of a page chunks are kept that can be decoded, come in order, and are what the
// file holds.
func TestKeeper(t *testing.T) {
	mem := vfs.NewMem()
	var b chunk.PageBuilder
	page := func(pieces ...piece) chunk.Page {
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
	w, err := blockfile.Create(mem, "f", chunk.Best, blockfile.Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	k := &keeper{writer: w, salvaged: &salvaged{}, last: -1}
	for _, p := range []chunk.Page{
		page(longs(1000, 3)),
		page(longs(3000, 2), longs(5000, 2)), // the first begins where the one before ends
		page(doubles(1000, 2), bucketsFrom(60_000, aggregate())),
		page(longs(9000, 4)), // an earlier series
		page(doubles(70_000, 5)),
	} {
		if err := k.page(p); err != nil {
			t.Fatal(err)
		}
	}
	if k.chunks != 4 || k.samples != 3+2+2+5 || k.lostChunks != 3 {
		t.Errorf("%d samples in %d chunks are kept, %d chunks lost", k.samples, k.chunks, k.lostChunks)
	}
}

// TestBackup: a backup has the files, and the part of the log that is asked for, and is
// there as a whole or not at all.
func TestBackup(t *testing.T) {
	make := func() (*data, []*blockfile.File) {
		d := newData(t).file(1, files, longs(1000, 5)).file(3, files, longs(1000, 50)).done()
		for _, name := range []string{"0000000002.wal", "0000000003.wal", "0000000004.wal"} {
			d.must(safefile.Replace(d.fs, "data/log/"+name, []byte("segment "+name[:10])))
		}
		dir := d.open()
		open, err := dir.openFiles()
		d.must(errors.Join(err, dir.Close()))
		return d, open
	}
	source := func(d *data, open []*blockfile.File, steps *[]string) BackupSource {
		step := func(s string) { *steps = append(*steps, s) }
		return BackupSource{
			Dir: "data", Series: 3,
			Checkpoint: func() error { step("checkpoint"); return nil },
			Pin: func(dir string, log func(from, end wal.Segment) error) ([]*blockfile.File, func(), error) {
				step("pin")
				if err := d.fs.MkdirAll(dir, 0o755); err != nil {
					return nil, nil, err
				}
				return open, func() { step("release") }, log(2, 4)
			},
			Beside:  map[string]func(string) error{"beside": func(dir string) error { step("beside"); return d.fs.MkdirAll(dir, 0o755) }},
			Explain: func(err error) error { return fmt.Errorf("explained: %w", err) },
		}
	}
	d, open := make()
	var steps []string
	bytes := d.change.AddFiles[1].Bytes + d.change.AddFiles[3].Bytes
	want := BackupReport{Dir: "backups/daily", Files: 2, FileBytes: bytes, Samples: 55, Series: 3, Segments: 2, LogBytes: 36, Copied: 36}
	d.must(d.fs.MkdirAll("backups/daily.tmp/left", 0o755)) // by a crash
	if r, err := Backup(t.Context(), d.fs, "backups", "daily", source(d, open, &steps)); err != nil || *r != want || !slices.Equal(steps, []string{"checkpoint", "pin", "beside", "release"}) {
		t.Errorf("%v, %+v\nwant %+v; %q", err, r, want, steps)
	}
	var there []string
	for _, dir := range []string{"", "/blocks", "/log"} {
		names, err := d.fs.List("backups/daily" + dir)
		d.must(err)
		slices.Sort(names)
		there = append(there, names...)
	}
	if want := []string{"beside", "blocks", "catalogue", "log", "0000000001.blk", "0000000003.blk", "0000000002.wal", "0000000003.wal"}; !slices.Equal(there, want) {
		t.Errorf("there are %q, want %q", there, want)
	}
	if d.read("backups/daily/log/0000000003.wal") != "segment 0000000003" || d.read("backups/daily/blocks/0000000003.blk") != d.read(blockPath(3)) {
		t.Error("the copies differ")
	}

	// Where files cannot be linked they are copied.
	d.fs = noLinks{d.disk}
	want.Dir, want.Copied = "backups/copied", bytes+36
	if r, err := Backup(t.Context(), d.fs, "backups", "copied", source(d, open, &steps)); err != nil || *r != want {
		t.Errorf("copied: %v, %+v\nwant %+v", err, r, want)
	}
	d.fs = d.disk
	for name, reason := range map[string]string{
		"daily": "backup daily: backups/daily exists; choose another name, or remove it", "": "1 to 100 letters", ".x": "1 to 100 letters", "a/b": "1 to 100 letters",
		"tenants":                "backup tenants: below backups/tenants are the backups of tenants; choose another name",
		strings.Repeat("x", 101): "1 to 100 letters", strings.Repeat("x", 100): "",
	} {
		if _, err := Backup(t.Context(), d.fs, "backups", name, source(d, open, &steps)); (err == nil) != (reason == "") || err != nil && !strings.Contains(err.Error(), reason) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, files := range [][]*blockfile.File{open, nil} {
		for n := 1; ; n++ {
			ctx := &counted{Context: t.Context(), left: n}
			_, err := Backup(ctx, d.fs, "backups", fmt.Sprint("late", len(files)), source(d, files, &steps))
			if ctx.left > 0 {
				if err != nil || n != len(files)+2+1 { // before each file and segment
					t.Errorf("after it was asked %d times: %v", n-1, err)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("given up the %d. time that it is asked: %v", n, err)
			}
		}
	}
	closeFiles(open)
}

// TestBackupThatFails: whichever step or call fails, that is an error, which is explained, what
// was held is released, and nothing is left.
func TestBackupThatFails(t *testing.T) {
	d := newData(t).file(1, files, longs(1000, 5)).done()
	d.must(d.fs.MkdirAll("backups", 0o755))
	dir := d.open()
	open, err := dir.openFiles()
	d.must(errors.Join(err, dir.Close()))
	defer closeFiles(open)
	for _, links := range []bool{true, false} {
		for n := int32(1); ; n++ {
			var calls atomic.Int32
			var failed atomic.Pointer[errorfs.Op]
			var fs vfs.FS = errorfs.Wrap(d.disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFilePreallocate || calls.Add(1) != n {
					return nil
				}
				failed.Store(&op)
				return errorfs.ErrInjected
			}))
			if !links {
				fs = noLinks{fs}
			}
			held := 0
			step := func() error { // as a step that fails
				_, err := fs.Stat("data")
				return err
			}
			r, err := Backup(t.Context(), fs, "backups", "b", BackupSource{
				Dir: "data", Checkpoint: step, Explain: func(err error) error { return fmt.Errorf("explained: %w", err) },
				Pin: func(dir string, log func(from, end wal.Segment) error) ([]*blockfile.File, func(), error) {
					if err := fs.MkdirAll(dir, 0o755); err != nil {
						return nil, nil, err
					}
					if err := log(1, 2); err != nil {
						return nil, nil, err
					}
					held++
					return open, func() { held-- }, nil
				},
				Beside: map[string]func(string) error{"beside": func(dir string) error { return fs.MkdirAll(dir, 0o755) }},
			})
			names, _ := d.disk.List("backups")
			op := failed.Load()
			if op == nil {
				if err != nil || n < 30 || !slices.Equal(names, []string{"b"}) || held != 0 {
					t.Errorf("after %d calls: %v, %q, %d held", n-1, err, names, held)
				}
				d.must(d.disk.RemoveAll("backups/b"))
				break
			}
			if err == nil && op.Kind == errorfs.OpLink { // it is copied instead
				d.must(d.disk.RemoveAll("backups/b"))
				continue
			}
			if !errors.Is(err, errorfs.ErrInjected) || r != nil || !strings.HasPrefix(err.Error(), "backup b: ") || held != 0 || slices.Contains(names, "b") {
				t.Errorf("call %d, of kind %d for %s: %v, %+v, %q, %d held", n, op.Kind, op.Path, err, r, names, held)
			}
			// The directory of an unfinished backup may belong to another server if its lock fails.
			if len(names) > 0 && op.Kind != errorfs.OpLock && op.Kind != errorfs.OpRemove && op.Kind != errorfs.OpRemoveAll {
				t.Errorf("call %d, of kind %d for %s: %q are left", n, op.Kind, op.Path, names)
			}
			// What a failed removal has left would make the next backup begin with other calls.
			d.must(d.disk.RemoveAll("backups"))
			d.must(d.disk.MkdirAll("backups", 0o755))
		}
	}
}

// TestUnfinishedBackupThatStays: whichever call fails, an unfinished backup is removed, or the error says why
// it is not.
func TestUnfinishedBackupThatStays(t *testing.T) {
	for n := 1; ; n++ {
		disk, calls := vfs.NewMem(), 0
		var failed *errorfs.Op
		for _, name := range []string{unfinished + "a", abandoned + "b"} {
			if err := disk.MkdirAll("backups/"+name+"/blocks", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		b := &backup{parent: "backups", fs: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if calls++; calls != n {
				return nil
			}
			failed = &op
			return &fs.PathError{Op: "use", Path: op.Path, Err: errorfs.ErrInjected}
		}))}
		err := b.removeUnfinished()
		left, _ := disk.List("backups")
		if failed == nil {
			if err != nil || len(left) > 0 || n < 10 {
				t.Errorf("after %d calls: %v, %q are left", calls, err, left)
			}
			return
		}
		if err == nil && failed.Kind != errorfs.OpStat || err != nil && !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("call %d, of kind %d for %s: %v, %q are left", n, failed.Kind, failed.Path, err, left)
		}
	}
}

// TestBackupsAreBounded: no more backups are kept than a directory should hold.
func TestBackupsAreBounded(t *testing.T) {
	mem := vfs.NewMem()
	for i := range MaxBackups - 1 {
		if err := mem.MkdirAll(fmt.Sprint("backups/b", i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b := &backup{fs: mem, parent: "backups"}
	if err := b.room(); err != nil || MaxBackups != 1000 {
		t.Errorf("the last one of %d: %v", MaxBackups, err)
	}
	if err := mem.MkdirAll("backups/last", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.room(); err == nil || !strings.Contains(err.Error(), "limit backups of 1000 reached, at least 1001 needed: keep backups in backups; remove old ones") {
		t.Errorf("one too many: %v", err)
	}
}

// noLinks is a file system that cannot link, as between two disks.
type noLinks struct{ vfs.FS }

func (noLinks) Link(string, string) error { return errors.ErrUnsupported }
