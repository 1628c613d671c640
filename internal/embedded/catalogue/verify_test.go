package catalogue

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

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
	// Behind it are the record that vouches for the last commit, and the end.
	if found != last+1 || len(b)-last > 100 {
		t.Errorf("found %d of %d bytes, the last at %d", found, len(b), last)
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
	if _, err := f.WriteAt([]byte{0xff}, chunkHeader+1); err != nil {
		t.Fatal(err)
	}
	f.Close()
	var damage *store.CorruptionError
	if err := Verify(fs, "catalogue"); !errors.As(err, &damage) || damage.File != list || damage.Offset != 0 {
		t.Errorf("damage of %s: %v", list, err)
	}
}

// TestVerifyFails: whichever call fails while the files are verified, that is an error. Only a
// directory that cannot be listed is left to who opens it.
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
			return
		}
		if errors.Is(err, errorfs.ErrInjected) == (failed.Kind == errorfs.OpList) {
			t.Errorf("call %d, %s of kind %d, fails: %v", n, failed.Path, failed.Kind, err)
		}
	}
}
