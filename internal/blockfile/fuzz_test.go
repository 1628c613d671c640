package blockfile

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/store"
)

// FuzzOpen opens and reads arbitrary bytes, as they are and with the checksum
// of the index put right. They are read or reported as damaged, in memory that
// is bounded by the size of the file.
func FuzzOpen(f *testing.F) {
	b := small(f)
	f.Add(b)
	f.Add(b[:len(b)-trailerLen])
	f.Add(append([]byte(magicHead), version, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		tryRead(t, fs, b)
		if fixIndex(b) {
			tryRead(t, fs, b)
		}
	})
}

// fixIndex makes the index' checksum right. It is false when the trailer does
// not say where the index is.
func fixIndex(b []byte) bool {
	if len(b) < headerSize+trailerLen {
		return false
	}
	trailer := b[len(b)-trailerLen:]
	at := binary.LittleEndian.Uint64(trailer)
	if at > uint64(len(b)-trailerLen) {
		return false
	}
	binary.LittleEndian.PutUint32(trailer[20:], crc32.Checksum(b[at:len(b)-12], castagnoli))
	return true
}

func tryRead(t *testing.T, fs vfs.FS, b []byte) {
	content(t, fs, path, b)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := readThrough(fs)
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+100*len(b)); got > most {
		t.Fatalf("%d bytes allocated for a file of %d", got, len(b))
	}
	var damage *store.CorruptionError
	if err != nil && !errors.As(err, &damage) {
		t.Fatalf("not reported as damage: %v", err)
	}
}

// readThrough opens a file and goes through its chunks, without decoding them:
// that is fuzzed where the codec is.
func readThrough(fs vfs.FS) error {
	f, err := Open(fs, path, 1, NewCache(0))
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Scan(context.Background(), func(*chunk.Entry) {})
	it := f.Iter(false)
	for ids, n := f.Series.Iterator(), 0; ids.HasNext() && n < 20; n++ {
		it.Seek(model.SeriesNumber(ids.Next()), model.AllTime, n%2 == 1)
		for {
			e, iterErr := it.Next()
			err = errors.Join(err, iterErr)
			if e == nil {
				break
			}
		}
	}
	return err
}
