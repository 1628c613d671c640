package blockfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/chunk"
	"varve/internal/model"
)

// salvageAll returns all chunks that Salvage finds in b.
func salvageAll(t testing.TB, b []byte) (pieces []piece, lost int64) {
	t.Helper()
	fs := vfs.NewMem()
	content(t, fs, path, b)
	return salvageOn(t, fs)
}

// salvageOn returns all chunks that Salvage finds in the file of a file system.
func salvageOn(t testing.TB, fs vfs.FS) (pieces []piece, lost int64) {
	t.Helper()
	var d chunk.Decoder
	lost, err := Salvage(fs, path, 0, func(_ int64, p chunk.Page) error {
		entries := p.Iter()
		for e := (chunk.Entry{}); entries.Next(&e); {
			got := piece{Series: e.Series, Kind: e.Kind}
			if err := d.DecodeEntry(&e, &got.Columns); err != nil {
				return err
			}
			pieces = append(pieces, got)
		}
		return entries.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return pieces, lost
}

// severalPages is a file and the chunks of each page.
func severalPages(t testing.TB) (b []byte, all []string, largest int) {
	fs := vfs.NewMem()
	writeFile(t, fs, path, mixed())
	f := openFile(t, fs, path)
	for i := range f.Pages() {
		p, err := f.Page(i)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		entries := p.Iter()
		for e := (chunk.Entry{}); entries.Next(&e); n++ {
		}
		largest = max(largest, n)
	}
	b = readContent(t, fs, path)
	pieces, lost := salvageAll(t, b)
	if lost != 0 {
		t.Errorf("%d bytes lost of a sound file", lost)
	}
	return b, dumpAll(pieces), largest
}

// Of a file with one flipped bit all is found but at most one page, whether the
// bit is in a page, the header, the index or the trailer.
func TestSalvageFlipped(t *testing.T) {
	b, all, largest := severalPages(t)
	for at := 0; at < len(b); at += max(1, len(b)/150) {
		checkSalvaged(t, b, at, all, largest)
	}
	for at := len(b) - trailerLen; at < len(b); at++ {
		checkSalvaged(t, b, at, all, largest)
	}
}

func checkSalvaged(t *testing.T, b []byte, at int, all []string, largest int) {
	t.Helper()
	damaged := slices.Clone(b)
	damaged[at] ^= 1 << (at % 8)
	pieces, _ := salvageAll(t, damaged)
	found := dumpAll(pieces)
	if len(found) < len(all)-largest {
		t.Errorf("byte %d of %d: only %d of %d chunks", at, len(b), len(found), len(all))
	}
	next := 0
	for _, one := range found { // a subsequence of what was written
		i := slices.Index(all[next:], one)
		if i < 0 {
			t.Fatalf("byte %d of %d: a chunk that was not written: %.100s", at, len(b), one)
		}
		next += i + 1
	}
}

// Of a file with a sector that cannot be read, all is found but the pages in that sector, with
// an index and without. A read that fails only once costs nothing.
func TestSalvageUnreadable(t *testing.T) {
	whole, all, largest := severalPages(t)
	for _, b := range [][]byte{whole, whole[:len(whole)-trailerLen]} {
		_, index := salvageAll(t, b) // bytes of an index that cannot be told from pages
		for bad := int64(headerSize); bad < int64(len(b))-4*sector; bad += sector {
			for _, forGood := range []bool{false, true} {
				mem, failed := vfs.NewMem(), 0
				content(t, mem, path, b)
				fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind != errorfs.OpFileReadAt || op.Offset < bad && op.Offset != headerSize || op.Offset >= bad+sector || failed > 0 && !forGood {
						return nil
					}
					failed++
					return syscall.EIO
				}))
				pieces, lost := salvageOn(t, fs)
				missing := len(all) - len(dumpAll(pieces))
				if lost > int64(len(b)) || (lost > index) != (missing > 0) {
					t.Errorf("sector at %d of %d, for good %v: %d chunks are missing, and %d bytes are lost", bad, len(b), forGood, missing, lost)
				}
				if missing > 3*largest || !forGood && missing > 0 {
					t.Errorf("sector at %d of %d, for good %v: %d of %d chunks are missing", bad, len(b), forGood, missing, len(all))
				}
			}
		}
	}
}

// TestSalvageTellsTheIndexApart: damage to the index costs no bytes of pages, and the index does
// not count as lost.
func TestSalvageTellsTheIndexApart(t *testing.T) {
	b, all, _ := severalPages(t)
	indexAt := binary.LittleEndian.Uint64(b[len(b)-trailerLen:])
	b[indexAt+3] ^= 1
	pieces, lost := salvageAll(t, b)
	if !slices.Equal(dumpAll(pieces), all) || lost != 0 {
		t.Errorf("%d of %d chunks, %d bytes lost", len(pieces), len(all), lost)
	}
}

// TestSalvageIgnoresWhatWasAdded: bytes beyond the length that a file should have are no loss.
func TestSalvageIgnoresWhatWasAdded(t *testing.T) {
	b, all, _ := severalPages(t)
	fs := vfs.NewMem()
	content(t, fs, path, append(b, make([]byte, 64<<10)...))
	chunks := 0
	lost, err := Salvage(fs, path, int64(len(b)), func(_ int64, p chunk.Page) error {
		entries := p.Iter()
		for e := (chunk.Entry{}); entries.Next(&e); chunks++ {
		}
		return entries.Err()
	})
	if err != nil || lost != 0 || chunks != len(all) {
		t.Errorf("%d of %d chunks, %d bytes lost, %v", chunks, len(all), lost, err)
	}
}

// TestSalvageReadsOnce: a search for pages does not read the same bytes for each page.
func TestSalvageReadsOnce(t *testing.T) {
	b, _, _ := severalPages(t)
	b = b[:len(b)-trailerLen]
	mem, reads := vfs.NewMem(), 0
	content(t, mem, path, b)
	salvageOn(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			reads++
		}
		return nil
	})))
	if most := 10 + len(b)/(salvageWindow/2); reads > most {
		t.Errorf("%d reads of a file of %d bytes, want at most %d", reads, len(b), most)
	}
}

// TestPageWithinAValue: of a damaged page, nothing is found that only looks like a page, such as
// the value of a sample, as long as the index can be read.
func TestPageWithinAValue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	inner := piece{Series: 1, Kind: model.Double}
	for ms := range int64(100) {
		inner.AppendFixed(ms, rng.Uint64(), 0)
	}
	fs := vfs.NewMem()
	writeFile(t, fs, path, []piece{inner})
	f := openFile(t, fs, path)
	at, length := f.Ref(0).Offset, f.Ref(0).Length
	value := readContent(t, fs, path)[at:][:length]

	outer := piece{Series: 2, Kind: model.String}
	outer.add(1, "before", 0)
	outer.add(2, string(value), 0)
	writeFile(t, fs, path, []piece{outer})
	b := readContent(t, fs, path)
	within := bytes.Index(b, value)
	if within < 0 {
		t.Fatal("the file does not have the value as it is")
	}
	b[within-1] ^= 1
	if pieces, lost := salvageAll(t, b); len(pieces) > 0 || lost < length {
		t.Errorf("found %q, %d bytes lost", dumpAll(pieces), lost)
	}
}

// TestPageWithinAValueWithoutSoundIndex: the same in a file with several pages of which, in addition to
// that page, any one byte of header, index, properties or trailer is damaged. The other pages are found.
func TestPageWithinAValueWithoutSoundIndex(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	double := func(series model.SeriesNumber) piece {
		p := piece{Series: series, Kind: model.Double}
		for ms := range int64(100) {
			p.AppendFixed(ms, rng.Uint64(), 0)
		}
		return p
	}
	fs := vfs.NewMem()
	writeFile(t, fs, path, []piece{double(7)})
	f := openFile(t, fs, path)
	at, length := f.Ref(0).Offset, f.Ref(0).Length
	value := readContent(t, fs, path)[at:][:length]

	var want []model.SeriesNumber
	var all []piece
	for series := model.SeriesNumber(1); series <= 6; series++ {
		p := piece{Series: series, Kind: model.String}
		long := make([]byte, 20<<10) // a page of its own
		for i := range long {
			long[i] = byte(rng.Uint32())
		}
		if series == 3 {
			copy(long[1000:], value)
		} else {
			want = append(want, series)
		}
		p.add(1, string(long), 0)
		all = append(all, p)
	}
	writeFile(t, fs, path, all)
	f = openFile(t, fs, path)
	if f.Pages() != len(all) {
		t.Fatalf("%d pages, want %d", f.Pages(), len(all))
	}
	b := readContent(t, fs, path)
	within := bytes.Index(b, value)
	if within < 0 {
		t.Fatal("the file does not have the value as it is")
	}
	b[within-1] ^= 1
	indexAt := int(binary.LittleEndian.Uint64(b[len(b)-trailerLen:]))
	for at := range b {
		if at >= headerSize && at < indexAt {
			continue
		}
		b[at] ^= 1 << (at % 8)
		pieces, lost := salvageAll(t, b)
		var got []model.SeriesNumber
		for i := range pieces {
			got = append(got, pieces[i].Series)
		}
		if !slices.Equal(got, want) || lost < length {
			t.Errorf("byte %d of %d, index at %d: found series %d, want %d; %d bytes lost", at, len(b), indexAt, got, want, lost)
		}
		b[at] ^= 1 << (at % 8)
	}
}

// Of a file that was cut off, whole pages are found, up to damage in one of them
// and beyond it.
func TestSalvageCutOff(t *testing.T) {
	b, all, largest := severalPages(t)
	cut := slices.Clone(b[:len(b)*2/3])
	cut[headerSize+100] ^= 1
	pieces, lost := salvageAll(t, cut)
	if n := len(pieces); n < len(all)/3-largest || lost == 0 {
		t.Errorf("%d of %d chunks, %d bytes lost", n, len(all), lost)
	}
}

func TestSalvageProperties(t *testing.T) {
	fs := vfs.NewMem()
	want := writeFile(t, fs, path, mixed())
	b := readContent(t, fs, path)
	b[len(b)-10] ^= 1
	content(t, fs, path, b)
	if got, err := SalvageProperties(fs, path); err != nil || got != want {
		t.Errorf("%v: got %+v, want %+v", err, got, want)
	}
	content(t, fs, path, b[:len(b)/2])
	if _, err := SalvageProperties(fs, path); err == nil {
		t.Error("properties of a file that has none")
	}
}

// TestSalvageOfNoFile: a file that is not there is an error, not a file without pages.
func TestSalvageOfNoFile(t *testing.T) {
	lost, err := Salvage(vfs.NewMem(), path, 0, func(int64, chunk.Page) error { return nil })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%d bytes lost, %v", lost, err)
	}
}

// TestSeriesOutOfOrder: a set of series that is not sorted is refused, since look-ups in it would
// miss some.
func TestSeriesOutOfOrder(t *testing.T) {
	b, err := roaring.BitmapOf(1, 2, 3).ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := parseSeries(b); err != nil || ids.GetCardinality() != 3 {
		t.Fatalf("%v, %v", ids, err)
	}
	if !bytes.HasSuffix(b, []byte{1, 0, 2, 0, 3, 0}) {
		t.Fatalf("%x does not end with three numbers", b)
	}
	copy(b[len(b)-6:], []byte{3, 0, 1, 0, 2, 0})
	if ids, err := parseSeries(b); err == nil {
		t.Errorf("%x was taken for %v", b, ids)
	}
}

func TestTally(t *testing.T) {
	fs := vfs.NewMem()
	want := writeFile(t, fs, path, mixed())
	pieces, _ := salvageAll(t, readContent(t, fs, path))
	var tally Tally
	for i := range pieces {
		tally.Add(pieces[i].Series, &pieces[i].Columns)
	}
	got := tally.Properties()
	got.Sequence, got.Deletions = want.Sequence, want.Deletions
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var none Tally
	if p := none.Properties(); p.Samples != 0 {
		t.Errorf("%+v", p)
	}
}

func FuzzSalvage(f *testing.F) {
	f.Add(small(f))
	f.Add(small(f)[3:])
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		content(t, fs, path, b)
		lost, err := Salvage(fs, path, 0, func(int64, chunk.Page) error { return nil })
		if err != nil || lost < 0 || lost > int64(len(b)) {
			t.Errorf("%d bytes lost of %d: %v", lost, len(b), err)
		}
		_, _ = SalvageProperties(fs, path)
	})
}

// TestSalvageStops lets the caller end at each page, of a file whose index can be
// read and of one where pages are looked for: nothing comes after.
func TestSalvageStops(t *testing.T) {
	b, _, _ := severalPages(t)
	stop := errors.New("stop")
	for name, b := range map[string][]byte{"index": b, "no index": b[:len(b)-10]} {
		for last := 1; ; last++ {
			fs := vfs.NewMem()
			content(t, fs, path, b)
			calls := 0
			_, err := Salvage(fs, path, 0, func(int64, chunk.Page) error {
				if calls++; calls >= last {
					return stop
				}
				return nil
			})
			if calls < last && err == nil && last > 2 {
				break // it has fewer pages
			}
			if calls != last || !errors.Is(err, stop) {
				t.Fatalf("%s: stopped at page %d: %d calls, %v", name, last, calls, err)
			}
		}
	}
}

// TestHeadOfAnUnreadableFile: nothing is known of a file without a header, or that is missing.
func TestHeadOfAnUnreadableFile(t *testing.T) {
	fs := vfs.NewMem()
	content(t, fs, path, []byte("short"))
	for _, name := range []string{path, "missing"} {
		if p := SalvageHead(fs, name); p != (Properties{}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
