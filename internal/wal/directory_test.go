package wal

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
)

// withFree returns a closed log with one segment and files for reuse.
func withFree(t *testing.T, fsys vfs.FS, o Options) *Log {
	t.Helper()
	l, err := Open(fsys, testDir, small, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for i := range uint64(100) {
		wait(t, l, l.Append(1, numbered(i, 200)))
	}
	s, err := l.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(s); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestOpenLeavesOtherFilesAlone: files that are not the log's own are neither reused as segments nor
// removed, however few files the log keeps for reuse.
func TestOpenLeavesOtherFilesAlone(t *testing.T) {
	for _, recycle := range []int{0, 2} {
		fsys := vfs.NewMem()
		writeFile(t, fsys, "notes", []byte("keep"))
		writeFile(t, fsys, "0000000008.txt", []byte("keep"))
		cfg := small
		cfg.RecycleSegments = recycle
		l := open(t, fsys, cfg)
		for i := range uint64(100) {
			wait(t, l, l.Append(1, numbered(i, 200)))
		}
		closeLog(t, l)
		for _, name := range []string{"notes", "0000000008.txt"} {
			f, err := fsys.Open(fsys.PathJoin(testDir, name))
			if err != nil {
				t.Errorf("%d files are kept for reuse: %v", recycle, err)
				continue
			}
			got := make([]byte, 4)
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, []byte("keep")) {
				t.Errorf("%d files are kept for reuse: %s has become %q, %v", recycle, name, got, err)
			}
			_ = f.Close()
		}
	}
}

// TestDiskBytes: the metric is the size of the log's files, including those kept for
// reuse. The mark at the end of a segment does not count.
func TestDiskBytes(t *testing.T) {
	mem, registry := vfs.NewMem(), prometheus.NewRegistry()
	withFree(t, mem, Options{Registerer: registry})
	var bytes, free int64
	names := listFiles(t, mem)
	for _, name := range names {
		info, err := mem.Stat(mem.PathJoin(testDir, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
		if strings.HasSuffix(name, freeSuffix) {
			free += info.Size()
		}
	}
	marks := int64(len(names) * recordHeaderSize)
	if got := int64(metric(t, registry, "varve_wal_disk_bytes")); got > bytes || got < bytes-marks || free == 0 {
		t.Errorf("%d bytes, want %d, %d of them in files for reuse", got, bytes, free)
	}
}

// TestFilesForReuseAtAStart: a start keeps at most RecycleSegments files for reuse, and
// removes the others.
func TestFilesForReuseAtAStart(t *testing.T) {
	for _, recycle := range []int{0, 1, 2, 3} {
		mem := vfs.NewMem()
		closeLog(t, withFree(t, mem, Options{}))
		cfg := small
		cfg.RecycleSegments = recycle
		closeLog(t, open(t, mem, cfg)) // its own segment is begun from one of them
		free := 0
		for _, name := range listFiles(t, mem) {
			if strings.HasSuffix(name, freeSuffix) {
				free++
			}
		}
		if want := max(0, min(recycle, small.RecycleSegments)-1); free != want {
			t.Errorf("%d files are kept for reuse of %d, want %d", free, recycle, want)
		}
	}
}

// TestFilesThatCannotBeRemoved: the failure to remove files for reuse, or segments, is returned. What
// could not be removed is removed by a later call.
func TestFilesThatCannotBeRemoved(t *testing.T) {
	mem := vfs.NewMem()
	var broken atomic.Bool
	fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpRemove {
			return errorfs.ErrInjected
		}
		return nil
	}))
	l := withFree(t, fsys, Options{})
	broken.Store(true)
	if err := l.Trim(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Trim: %v", err)
	}
	closeLog(t, l)
	if _, err := l.Clear(); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("Clear: %v", err)
	}
	broken.Store(false)
	if _, err := l.Clear(); err != nil {
		t.Errorf("Clear again: %v", err)
	}
	if left, err := Segments(mem, testDir); err != nil || len(left) != 0 {
		t.Errorf("segments %v are left, %v", left, err)
	}
	wait(t, open(t, mem, small), Ticket{}) // a later start removes files for reuse beyond the limit
	if left := slices.DeleteFunc(listFiles(t, mem), func(name string) bool { return !strings.HasSuffix(name, freeSuffix) }); len(left) > small.RecycleSegments {
		t.Errorf("files for reuse: %v", left)
	}
}

// A grownFile has zeros after its end.
type grownFile struct {
	vfs.File
	size int64
}

type grownInfo struct {
	vfs.FileInfo
	size int64
}

func (i grownInfo) Size() int64 { return i.size }

func (f grownFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	return grownInfo{info, f.size}, err
}

func (f grownFile) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	if _, err := f.File.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return len(b), nil
}

type grownFS struct {
	vfs.FS
	size int64
}

func (fsys grownFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := fsys.FS.Open(name, o...)
	return grownFile{f, fsys.size}, err
}

// TestSegmentBeyondTheLargest: a segment larger than any that Varve writes is damaged,
// and its offsets still fit their fields.
func TestSegmentBeyondTheLargest(t *testing.T) {
	mem := vfs.NewMem()
	l := open(t, mem, small)
	wait(t, l, l.Append(1, []byte("x")))
	closeLog(t, l)
	for size, want := range map[int64]string{
		maxSegmentBytes:     "",
		maxSegmentBytes + 1: "expected at most 4294967296 bytes, got a file of 4294967297",
	} {
		w, err := openWindow(grownFS{mem, size}, testDir, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		h, err := w.header(1)
		if err := errors.Join(err, w.file.Close()); err != nil {
			t.Fatal(err)
		}
		if h.reason != want || w.size > maxSegmentBytes {
			t.Errorf("a file of %d bytes: %d are read, %q", size, w.size, h.reason)
		}
	}
}
