package spool

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/store"
)

// TestDamagedStamps: samples whose write timestamps cannot be read are not given out without
// them, under the timestamp of the generation, where they might win over later writes.
func TestDamagedStamps(t *testing.T) {
	const first = 1_700_000_000_000
	fs := vfs.NewMem()
	s := &Spool{fs: fs, cache: blockfile.NewCache(0)}
	h := head.NewStamped(0)
	for i := range int64(1000) {
		var b store.Batch
		b.Reset(0)
		b.AddLong(7, i, i, 0)
		h.AppendStamped(&b, []model.Kind{model.Long}, first+i%17)
	}
	read := func(damaged bool) (head.Run, error) {
		f, err := s.spillHead(t.Context(), h, "file", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if f.stamps, err = s.spillHead(t.Context(), h, "file"+stampsSuffix, 2, first); err != nil {
			t.Fatal(err)
		}
		if damaged {
			damage(t, fs, "file"+stampsSuffix)
		}
		run := head.Run{Stamps: true}
		_, err = f.snapshot(7, model.AllTime, &run)
		return run, errors.Join(err, s.removeFile(f))
	}
	run, err := read(true)
	if !errors.As(err, new(*store.CorruptionError)) {
		t.Errorf("with damaged stamps: %d samples with %d stamps, %v", run.Open.Len(), len(run.Open.Stamps), err)
	}
	if run, err = read(false); err != nil || len(run.Open.Stamps) != 1000 || run.Open.Stamps[20] != first+3 {
		t.Errorf("undamaged: %d stamps, %v", len(run.Open.Stamps), err)
	}
}

// damage changes the bytes in the first half of a file.
func damage(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	half := make([]byte, info.Size()/2)
	if _, err := f.ReadAt(half, 0); err != nil {
		t.Fatal(err)
	}
	for i := range half {
		half[i] ^= 0x55
	}
	if _, err := f.WriteAt(half, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
