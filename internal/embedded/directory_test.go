package embedded

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/store"
)

// unwritable fails at every change, and at locks that would make a file.
type unwritable struct{ vfs.FS }

func (unwritable) Lock(string) (io.Closer, error) { return nil, errors.New("the disk is read-only") }

func (unwritable) LockToRead(string) (io.Closer, bool, error) { return io.NopCloser(nil), false, nil }

// TestReadingAReadOnlyDirectory checks, inspects and reads a store that a crash has
// left, with series and samples that only the log has, where nothing can be written.
func TestReadingAReadOnlyDirectory(t *testing.T) {
	mem := crashfs.New()
	s := mustOpen(t, mem, quietConfig("fsync"))
	all := newCrashSeries(2)
	all[0].writeOnce(context.Background(), s, 100)
	s.must(t, s.checkpoint())
	all[0].writeOnce(context.Background(), s, 100)
	all[1].writeOnce(context.Background(), s, 100)
	copied := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	s.must(t, s.Close())

	var changes atomic.Int64
	disk := unwritable{errorfs.Wrap(copied, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			t.Errorf("a change: %v of %s", op.Kind, op.Path)
			changes.Add(1)
			return errors.New("the disk is read-only")
		}
		return nil
	}))}
	d, err := offline.Open(disk, "data")
	s.must(t, err)
	report, err := d.Check(context.Background(), offline.CheckOptions{})
	s.must(t, err)
	if len(report.Findings) > 0 || report.Samples != 100 {
		t.Errorf("%d samples, findings %v", report.Samples, report.Findings)
	}
	var text strings.Builder
	s.must(t, d.WriteOverview(&text))
	s.must(t, d.WriteLog(&text, true))
	_, err = d.Space(context.Background(), offline.SpaceOptions{})
	s.must(t, err)
	s.must(t, d.Close())

	read, err := OpenToRead(disk, "data", quietConfig("fsync"), Options{})
	s.must(t, err)
	for _, c := range all {
		if err := c.check(read); err != nil {
			t.Error(err)
		}
	}
	var b store.Batch
	b.Reset(read.Epoch())
	ref, err := read.Create(context.Background(), all[0].Series)
	s.must(t, err)
	b.AddLong(ref, crashOrigin, 1, 0)
	if err := read.Append(context.Background(), &b); err == nil || err.Error() != "the store was opened for reading only" {
		t.Errorf("Append: %v", err)
	}
	if err := read.Delete(context.Background(), store.Deletion{Metric: "crash", Range: model.AllTime}); err == nil {
		t.Error("a delete succeeded")
	}
	s.must(t, read.Close())
}

// TestDirectoryInUse: a directory is in use while a store has it open.
func TestDirectoryInUse(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	if _, err := offline.Open(mem, "data"); !errors.As(err, new(*datadir.LockedError)) {
		t.Errorf("while it is open: %v", err)
	}
	s.must(t, s.Close())
}

// A table of series that a crash has cut off is no damage, also where it cannot be told which
// tables the catalogue consists of.
func TestCheckOfATableThatWasNeverCompleted(t *testing.T) {
	mem := vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	appendTo(t, s, "m", 5)
	s.must(t, s.Close())
	left := "data/" + datadir.Catalogue + "/" + catalogue.NewSeries
	writeFile(t, mem, left, []byte("cut off"))
	for _, lost := range []bool{false, true} {
		if lost {
			names, err := mem.List("data/" + datadir.Catalogue)
			s.must(t, err)
			for _, name := range names {
				if strings.HasPrefix(name, "MANIFEST") {
					s.must(t, mem.Remove("data/"+datadir.Catalogue+"/"+name))
				}
			}
		}
		r := checkOf(t, mem, "data")
		if r.Clean() == lost {
			t.Errorf("catalogue lost: %v, findings %v", lost, r.Findings)
		}
		for _, f := range r.Findings {
			if strings.Contains(f.File, catalogue.NewSeries) {
				t.Errorf("catalogue lost: %v, found %+v", lost, f)
			}
		}
	}
}
