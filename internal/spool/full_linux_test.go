package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/units"
)

// TestStartOnAFullFileSystem is TestStartOnAFullDisk on a real file system without a
// byte left. Drained, the log makes the room in which writing goes on.
func TestStartOnAFullFileSystem(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("A START ON A FULL DISK IS NOT TESTED: mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Errorf("unmount %s: %v", disk, err)
		}
	})
	cfg := tinyConfig()
	cfg.MaxMemory = 64 * units.MiB
	cfg.Log.SegmentBytes = units.MiB
	open := func(o Options) *Spool {
		t.Helper()
		s, err := Open(vfs.Default, filepath.Join(disk, "spool"), cfg, quickRetries(o))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(Options{})
	want := content{}
	if _, err := fill(s, want, 8000); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fillUp(t, filepath.Join(disk, "ballast"))

	s = open(Options{})
	if s.Healthy() == nil {
		t.Error("a full disk is healthy")
	}
	sink := newRemote()
	if err := seen(t, s, sink, want); err != nil {
		t.Errorf("before it drains: %v", err)
	}
	t.Logf("%d bytes of log wait on a full disk", s.Health().LogBytes)
	s.Start(sink)
	until(t, "writes are taken", func() bool { return s.Healthy() == nil })
	if _, err := fill(s, want, 30); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(Options{Sink: sink})
	defer s.Close()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
}

// fillUp takes the last byte of a file system.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(fmt.Errorf("fill the disk: %w", err))
		}
	}
}
