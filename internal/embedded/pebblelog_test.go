package embedded

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// catalogueLog returns the log of a catalogue with several commits.
func catalogueLog(t testing.TB) []byte {
	fs := vfs.NewMem()
	c, err := openCatalogue(fs, "catalogue", DefaultConfig(), quietLog{}, true)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(4) {
		if err := c.commit(change{addFiles: map[uint64]fileMeta{n: {Bytes: int64(n)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.close(); err != nil {
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
