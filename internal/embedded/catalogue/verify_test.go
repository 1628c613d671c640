package catalogue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/safefile"
	"varve/internal/store"
)

// catalogueLog returns the log of a catalogue with several commits.
func catalogueLog(t testing.TB) []byte {
	fs := vfs.NewMem()
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(4) {
		if err := c.Commit(Change{AddFiles: map[uint64]File{n: {Bytes: int64(n)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return onlyLog(t, fs)
}

// onlyLog returns the one log of a catalogue that has records.
func onlyLog(t testing.TB, fs vfs.FS) []byte {
	names, _ := fs.List("catalogue")
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		f, err := fs.Open("catalogue/" + name)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := f.Stat()
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if len(b) > 100 {
			return b
		}
	}
	t.Fatal("no log")
	return nil
}

// TestCatalogueFormat pins the version of Pebble's files, and that of the chunks
// of its log, which are what verifyLog can read. A library with a newer format must
// not change either of them.
func TestCatalogueFormat(t *testing.T) {
	fs := vfs.NewMem()
	for range 2 { // created, and opened again
		c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.db.FormatMajorVersion(); got != 24 || format != 24 {
			t.Errorf("the catalogue has format %d, want 24, which is in docs/formats/catalogue.md", got)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b := catalogueLog(t)
	chunks := 0
	for at := 0; at < len(b); {
		end, ok := readChunk(b, at)
		if !ok {
			break
		}
		if len(b[at:end]) >= chunkHeader && (b[at+6] < chunkTypeSync || b[at+6] > chunkTypeMax) && !allZero(b[at:end]) {
			t.Errorf("the chunk at %d has type %d, want %d to %d: one that says what was synced", at, b[at+6], chunkTypeSync, chunkTypeMax)
		}
		at = end
		chunks++
	}
	if chunks < 8 { // four commits, each with an empty record behind
		t.Errorf("%d chunks could be read", chunks)
	}
}

// logNumber is in each of its chunks.
func logNumber(b []byte) uint32 { return uint32(b[chunkHeader]) }

// Damage to any byte up to the last commit is found. A log that ends anywhere
// was cut off.
func TestVerifyLog(t *testing.T) {
	b := catalogueLog(t)
	number := logNumber(b)
	found, last := 0, 0
	for at := range b {
		b[at] ^= 1 << (at % 8)
		err := verifyLog("log", number, b)
		b[at] ^= 1 << (at % 8)
		if damage := (*store.CorruptionError)(nil); errors.As(err, &damage) {
			found, last = found+1, at
		}
		if err := verifyLog("log", number, b[:at]); err != nil {
			t.Errorf("cut off at %d: %v", at, err)
		}
	}
	if err := verifyLog("log", number, b); err != nil {
		t.Error(err)
	}
	// Behind it are the mark that vouches for the last commit, and the end.
	if found != last+1 || len(b)-last > 100 {
		t.Errorf("found %d of %d bytes, the last at %d", found, len(b), last)
	}
}

// TestVerifyLogOfManyBlocks: Pebble's own offsets of what was synced fall behind with each block
// that is written at once.
func TestVerifyLogOfManyBlocks(t *testing.T) {
	fs := vfs.NewMem()
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 40 { // ends of commits lie anywhere in a block
		var series []record.Definition
		for id := range random.IntN(300) {
			series = append(series, record.Definition{ID: model.SeriesNumber(n*300 + id), Key: strings.Repeat("k", 1+random.IntN(200))})
		}
		if err := c.Commit(Change{Define: series, AddFiles: map[uint64]File{uint64(n): {}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b := onlyLog(t, fs)
	if len(b) < 8*chunkBlock {
		t.Fatalf("the log has %d bytes", len(b))
	}
	number := logNumber(b)
	for at := 0; at < len(b)-100; at += 1 + random.IntN(300) {
		b[at] ^= 1
		var damage *store.CorruptionError
		if err := verifyLog("log", number, b); !errors.As(err, &damage) && !allZero(b[at+1:min(len(b), at/chunkBlock*chunkBlock+chunkBlock)]) {
			t.Errorf("damage at %d of %d: %v", at, len(b), err)
		}
		b[at] ^= 1
	}
	if err := verifyLog("log", number, b); err != nil {
		t.Error(err)
	}
}

// logChunk is a chunk of a log: of a type that says what was synced, or of an older one
// that has only the number of the log.
func logChunk(typ byte, number uint32, synced uint64, payload string) []byte {
	b := append(make([]byte, 4), byte(len(payload)), byte(len(payload)>>8), typ)
	b = binary.LittleEndian.AppendUint32(b, number)
	if typ >= chunkTypeSync {
		b = binary.LittleEndian.AppendUint64(b, synced)
	}
	b = append(b, payload...)
	sum := crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(b, (sum>>15|sum<<17)+0xa282ead8)
	return b
}

// TestVerifyLogOfOlderChunks: chunks of all types of a log are read, so damage is told from
// what a crash has cut off also in a log that begins with older ones.
func TestVerifyLogOfOlderChunks(t *testing.T) {
	for typ := byte(chunkTypeLog); typ <= chunkTypeMax; typ++ {
		first := logChunk(typ, 2, 0, "first")
		whole := append(slices.Clone(first), logChunk(max(typ, chunkTypeSync), 2, uint64(len(first)), "second")...)
		if end, ok := readChunk(whole, 0); end != len(first) || !ok {
			t.Errorf("a chunk of type %d and %d bytes: %d bytes are read, %t", typ, len(first), end, ok)
		}
		if err := verifyLog("log", 2, whole); err != nil {
			t.Errorf("type %d: %v", typ, err)
		}
		whole[len(first)-1] ^= 1
		var damage *store.CorruptionError
		if err := verifyLog("log", 2, whole); !errors.As(err, &damage) || damage.Offset != 0 {
			t.Errorf("type %d, damaged: %v", typ, err)
		}
		if err := verifyLog("log", 3, whole); err != nil {
			t.Errorf("type %d, of a log that had the file before: %v", typ, err)
		}
	}
}

func FuzzVerifyCatalogue(f *testing.F) {
	f.Add(catalogueLog(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = verifyLog("log", 2, b)
		_ = verifyManifest("manifest", 0, b)
	})
}

// TestVerifyManifest: damage in the list of tables is found in the file that the
// marker names, not in one that is left from before.
func TestVerifyManifest(t *testing.T) {
	fs := vfs.NewMem()
	for n := range uint64(2) { // each start begins a list
		c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Commit(Change{AddFiles: map[uint64]File{n: {Bytes: 1}}}), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := Verify(fs, "catalogue"); err != nil {
		t.Fatal(err)
	}
	names, err := fs.List("catalogue")
	if err != nil {
		t.Fatal(err)
	}
	list := ""
	for _, name := range names {
		if strings.HasPrefix(name, "marker.manifest.") {
			list = "catalogue/" + name[strings.LastIndexByte(name, '.')+1:]
		}
	}
	f, err := fs.OpenReadWrite(list, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, info.Size())
	if _, err := f.ReadAt(whole, 0); err != nil {
		t.Fatal(err)
	}
	for n := range whole { // where a crash may have cut it off
		if err := verifyManifest(list, 0, whole[:n]); err != nil {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if err := verifyManifest(list, 0, append(slices.Clone(whole), make([]byte, 100)...)); err != nil {
		t.Errorf("with zeros behind it: %v", err)
	}
	for flip := range 8 * len(whole) { // also of a length, whose chunk then seems to be cut off
		whole[flip/8] ^= 1 << (flip % 8)
		if err := verifyManifest(list, 0, whole); !errors.As(err, new(*store.CorruptionError)) {
			t.Errorf("bit %d of byte %d of %d: %v", flip%8, flip/8, len(whole), err)
		}
		whole[flip/8] ^= 1 << (flip % 8)
	}
	if _, err := f.WriteAt([]byte{0xff}, chunkHeader+1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var damage *store.CorruptionError
	if err := Verify(fs, "catalogue"); !errors.As(err, &damage) || damage.File != list || damage.Offset != 0 {
		t.Errorf("damage of %s: %v", list, err)
	}
}

// TestVerifyFails: whichever call fails while the files are verified, that is an error. A
// directory that is not there has no damage.
func TestVerifyFails(t *testing.T) {
	mem := vfs.NewMem()
	filled(t, mem)
	for n := int32(1); ; n++ {
		var calls atomic.Int32
		var failed errorfs.Op
		err := Verify(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if calls.Add(1) != n {
				return nil
			}
			failed = op
			return errorfs.ErrInjected
		})), "catalogue")
		if calls.Load() < n {
			if err != nil || n < 6 {
				t.Errorf("after %d calls: %v", n-1, err)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("call %d, %s of kind %d, fails: %v", n, failed.Path, failed.Kind, err)
		}
	}
	if err := Verify(mem, "none"); err != nil {
		t.Errorf("no directory: %v", err)
	}
}

// TestVerifyMissingFiles: without one of its markers, the list of tables, or all logs, a
// database is damaged, from its first open on and after later ones. It would otherwise be opened
// as an empty one, without its last rows, or not at all, for a reason that only Pebble understands.
func TestVerifyMissingFiles(t *testing.T) {
	for opens := 1; opens <= 3; opens++ {
		for pattern, damaged := range map[string]bool{
			"": false, "LOCK": false, "marker.manifest.": true, "MANIFEST-": true, "marker.format-version.": true, ".log": true, "OPTIONS-": false,
		} {
			fs := vfs.NewMem()
			for range opens {
				c, err := Open(fs, "db", Options{Logger: Quiet{}, Fresh: true})
				if err == nil {
					err = errors.Join(c.Commit(Change{AddFiles: map[uint64]File{1: {}}}), c.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			names, err := fs.List("db")
			for _, name := range names {
				if pattern != "" && strings.Contains(name, pattern) {
					err = errors.Join(err, fs.Remove("db/"+name))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			err = Verify(fs, "db")
			var damage *store.CorruptionError
			if errors.As(err, &damage) != damaged || !damaged && err != nil || damaged && damage.Offset != -1 {
				t.Errorf("opened %d times, without %q: %v, want damage %v of a whole file", opens, pattern, err, damaged)
			}
		}
	}
}

// TestVerifyMixture: a copy of a database that was copied over a database, of which it is a copy or
// not, is noticed. Pebble opens one of them, or a mixture. The copy by itself is fine.
func TestVerifyMixture(t *testing.T) {
	for opens := 2; opens <= 4; opens++ {
		fs := vfs.NewMem()
		for i := range opens {
			c, err := Open(fs, "db", Options{Logger: Quiet{}, Fresh: true})
			if err == nil {
				err = c.Commit(Change{AddFiles: map[uint64]File{uint64(i): {}}})
			}
			if err == nil && i == opens-2 {
				err = c.CopyTo("copy")
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(Verify(fs, "db"), Verify(fs, "copy")); err != nil {
			t.Fatal(err)
		}
		names, err := fs.List("copy")
		for _, name := range names {
			err = errors.Join(err, safefile.Copy(fs, "copy/"+name, "db/"+name))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(fs, "db"); !errors.As(err, new(*store.CorruptionError)) || !strings.Contains(err.Error(), "copied over") {
			t.Errorf("opened %d times, and a copy copied over it: %v", opens, err)
		}
		c, err := Open(fs, "copy", Options{Logger: Quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Close(), Verify(fs, "copy")); err != nil {
			t.Errorf("a copy that was opened: %v", err)
		}
	}
}

// TestVerifyAfterEachStep cuts the power, and ends the process, before each change of the file system
// while a database is created, opened again, filled so that its memory goes to tables, and
// closed. None of that is taken for damage, and the database opens.
func TestVerifyAfterEachStep(t *testing.T) {
	mem := crashfs.New()
	var mu sync.Mutex
	var cut []*crashfs.FS
	rng := rand.New(rand.NewPCG(3, 5))
	disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		cut = append(cut, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * rng.IntN(3), RNG: rng}))
		return nil
	}))
	text := strings.Repeat("x", 200<<10)
	for range 3 {
		v := openValues(t, disk)
		for n := range 8 { // more than the 1 MiB that is kept in memory
			v.must(t, v.Set(t.Context(), "service", "key", fmt.Sprint(n), text))
		}
		v.must(t, v.catalogue.Close())
	}
	if len(cut) < 50 {
		t.Errorf("%d moments, want more", len(cut))
	}
	for i, fs := range cut {
		if err := Verify(fs, "catalogue"); err != nil {
			t.Fatalf("moment %d of %d: %v", i, len(cut), err)
		}
		c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
		if err != nil {
			t.Fatalf("moment %d of %d: open: %v", i, len(cut), err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyIsNotSynced: what a copy makes durable is not what is durable of the log itself. A log
// that is used again is copied with the old bytes behind its end.
func TestCopyIsNotSynced(t *testing.T) {
	fs := vfs.NewMem()
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	define := []record.Definition{{ID: 1, Key: strings.Repeat("k", 3*chunkBlock)}}
	for range 4 { // the last log is the file of a former one
		if err := c.Commit(Change{Define: define, AddFiles: map[uint64]File{1: {}}}); err != nil {
			t.Fatal(err)
		}
		if err := c.db.Flush(); err != nil {
			t.Fatal(err)
		}
		define = nil
	}
	if err := c.Commit(Change{AddFiles: map[uint64]File{1: {}}}); err != nil {
		t.Fatal(err)
	}
	before := *c.db.fs.synced.Load()
	if err := c.CopyTo("copy"); err != nil {
		t.Fatal(err)
	}
	after := *c.db.fs.synced.Load()
	if after.log != before.log || after.offset < before.offset || after.offset > before.offset+1000 {
		t.Errorf("%+v was synced before the copy, %+v after it", before, after)
	}
}

// TestMarkInSeveralChunks: a mark is found wherever the end of a block divides its batch, also if
// no byte of it fits into the first block, and only from its first chunk on.
func TestMarkInSeveralChunks(t *testing.T) {
	want := syncMark{log: 2, offset: 12345}
	batch := string(make([]byte, batchHead)) + string(markHead[:2]) + string(want.encode())
	if got := markIn(logChunk(chunkFull, 2, 0, batch), 0); got != want {
		t.Errorf("whole: %+v, want %+v", got, want)
	}
	for cut := range len(batch) + 1 {
		first, last := logChunk(chunkFirst, 2, 0, batch[:cut]), logChunk(chunkTypeMax, 2, 0, batch[cut:])
		if got := markIn(slices.Concat(first, last), 0); got != want {
			t.Errorf("divided after %d bytes: %+v, want %+v", cut, got, want)
		}
		if got := markIn(slices.Concat(first, last), len(first)); got != (syncMark{}) {
			t.Errorf("divided after %d bytes, from the second chunk on: %+v", cut, got)
		}
	}
}
