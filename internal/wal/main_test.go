package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"varve/internal/diskfs/crashfs"
	"varve/internal/safefile"
	"varve/internal/units"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "data/wal"

// small makes segments of a few records.
var small = Config{SegmentBytes: 4 * units.KiB, BufferBytes: 64 * units.KiB, RecycleSegments: 2}

func open(t testing.TB, fsys vfs.FS, cfg Config) *Log {
	t.Helper()
	l, err := Open(fsys, testDir, cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// crashable returns a file system that can lose what was not synced. The
// directory that holds the log's is durable.
func crashable(t testing.TB) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	if err := fsys.MkdirAll(fsys.PathDir(testDir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := safefile.SyncDir(fsys, "/"); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func wait(t testing.TB, l *Log, k Ticket) {
	t.Helper()
	if err := l.Wait(context.Background(), k); err != nil {
		t.Fatal(err)
	}
}

// entry is a record as replayed.
type entry struct {
	segment Segment
	typ     byte
	payload string
}

func replayWith(fsys vfs.FS, o ReplayOptions) ([]entry, ReplayStats, error) {
	var got []entry
	stats, err := Replay(fsys, testDir, o, func(s Segment, typ byte, payload []byte) error {
		got = append(got, entry{s, typ, string(payload)})
		return nil
	})
	return got, stats, err
}

func replay(t testing.TB, fsys vfs.FS) ([]entry, ReplayStats) {
	t.Helper()
	got, stats, err := replayWith(fsys, ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got, stats
}

// numbered is a payload that names its place and checks itself: n, then length
// pseudo-random bytes that depend on n.
func numbered(n uint64, length int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, n)
	r := rand.New(rand.NewPCG(n, uint64(length)))
	for range length {
		b = append(b, byte(r.Uint32()))
	}
	return b
}

func checkNumbered(payload string) (uint64, error) {
	n := binary.LittleEndian.Uint64([]byte(payload))
	if want := string(numbered(n, len(payload)-8)); payload != want {
		return n, fmt.Errorf("record %d is not what was written", n)
	}
	return n, nil
}

// checkPrefix fails unless got is the records 0, 1, 2 ... and returns how many.
func checkPrefix(t testing.TB, got []entry) uint64 {
	t.Helper()
	for i, e := range got {
		n, err := checkNumbered(e.payload)
		if err != nil {
			t.Fatal(err)
		}
		if n != uint64(i) {
			t.Fatalf("record %d at place %d", n, i)
		}
	}
	return uint64(len(got))
}

func readFile(t testing.TB, fsys vfs.FS, s Segment) []byte {
	t.Helper()
	f, err := fsys.Open(fsys.PathJoin(testDir, s.FileName()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := fsys.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Create(fsys.PathJoin(testDir, name), writeCategory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(b)); err != nil { // which may change what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func listFiles(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
