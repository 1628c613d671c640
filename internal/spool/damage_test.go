package spool

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// TestDamagedLog: a spool does not open with a damaged log, in whichever segment, and says how to
// start without it. What waits is there once the file is put back.
func TestDamagedLog(t *testing.T) {
	healthy := vfs.NewMem()
	want := waiting(t, healthy, patient(tinyConfig()), true)
	all := segments(t, healthy)
	if len(all) < 3 {
		t.Fatalf("segments %v are too few", all)
	}
	for _, segment := range []int{0, len(all) / 2, len(all) - 1} {
		disk := vfs.NewMem()
		if ok, err := vfs.Clone(healthy, disk, "spool", "spool"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		log := disk.PathJoin("spool", logName)
		damage(t, disk, disk.PathJoin(log, all[segment].FileName()))
		_, err := Open(disk, "spool", tinyConfig(), Options{})
		if advice := fmt.Sprintf("move %s away as a whole", log); !errors.As(err, new(*store.CorruptionError)) || !strings.Contains(err.Error(), advice) {
			t.Fatalf("segment %d is damaged: %v", all[segment], err)
		}
		damage(t, disk, disk.PathJoin(log, all[segment].FileName())) // which undoes it
		checkWaiting(t, disk, want)
		damage(t, disk, disk.PathJoin(log, all[segment].FileName()))
		if err := disk.Rename(log, "away"); err != nil {
			t.Fatal(err)
		}
		checkWaiting(t, disk, content{})
	}
}

// TestDamagedLogThatIsDrained: a segment of which all samples are drained, and which is there again
// after a power cut, is not read.
func TestDamagedLogThatIsDrained(t *testing.T) {
	disk := vfs.NewMem()
	waiting(t, disk, patient(tinyConfig()), false)
	log := disk.PathJoin("spool", logName)
	first := disk.PathJoin(log, segments(t, disk)[0].FileName())
	if err := vfs.Copy(disk, first, "again"); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, disk, patient(tinyConfig()), Options{Sink: newRemote()})
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	put(t, s, testSeries("later", 1), 7, 1, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Stat(first); err == nil {
		t.Fatalf("%s is still there", first)
	}
	if err := disk.Rename("again", first); err != nil {
		t.Fatal(err)
	}
	damage(t, disk, first)
	want, key := content{}, string(testSeries("later", 1).AppendKey(nil))
	want.set(key, 1, longText(7))
	want.set(key, 2, longText(7))
	sink := newRemote()
	s = mustOpen(t, disk, patient(tinyConfig()), Options{Sink: sink})
	defer s.Close()
	if _, err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := sink.content().diff(want); err != nil {
		t.Error(err)
	}
}

// checkWaiting opens a spool and compares what it holds.
func checkWaiting(t *testing.T, disk vfs.FS, want content) {
	t.Helper()
	s := mustOpen(t, disk, patient(tinyConfig()), Options{})
	if err := seen(t, s, newRemote(), want); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A spoilt disk damages spilled files before they are read.
type spoilt struct {
	vfs.FS
	t *testing.T
}

func (s *spoilt) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if strings.HasSuffix(name, ".blk") {
		damage(s.t, s.FS, name)
	}
	return s.FS.Open(name, options...)
}

// TestDamagedSpilledFile: if a file that the start has spilled is damaged, the error does not tell to
// move the log away, which is healthy.
func TestDamagedSpilledFile(t *testing.T) {
	disk := vfs.NewMem()
	want := waiting(t, disk, patient(tinyConfig()), true)
	_, err := Open(&spoilt{disk, t}, "spool", patient(tinyConfig()), Options{})
	if !errors.As(err, new(*store.CorruptionError)) || strings.Contains(err.Error(), "move") {
		t.Errorf("the start failed: %v", err)
	}
	checkWaiting(t, disk, want)
}
