package embedded

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/store"
)

// appendTo stores a sample of a metric.
func appendTo(t *testing.T, s *Store, metric string, ms int64) {
	t.Helper()
	ref, err := s.Create(t.Context(), model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	b := &store.Batch{}
	b.Reset(s.Epoch())
	b.AddLong(ref, ms, 1, 0)
	if err := s.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// After a crash, the store reports the metrics and hours of the samples that were in its
// log, until Settle is called: even after the log was released, and after further
// crashes.
func TestReplayedHours(t *testing.T) {
	const hour = 3_600_000
	fs := crashfs.New()
	s := mustOpen(t, fs, quietConfig("fsync"))
	wantReplayed := func(want string) {
		t.Helper()
		if got := string(s.Unnoted().Text()); got != want {
			t.Errorf("replayed are %s, want %s", got, want)
		}
	}
	crash := func() {
		t.Helper()
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		fs = after
		s = mustOpen(t, fs, quietConfig("fsync"))
	}
	appendTo(t, s, "m", 5)
	wantReplayed("null")
	crash()
	wantReplayed(`{"m":[[0,3600000]]}`)
	appendTo(t, s, "m", 3*hour)
	appendTo(t, s, "n", -1)
	if err := s.checkpoint(); err != nil {
		t.Fatal(err)
	}
	crash()
	wantReplayed(`{"m":[[0,3600000]]}`) // notes of the others are stored before the log is given up
	appendTo(t, s, "n", -1)
	appendTo(t, s, "m", 3*hour)
	appendTo(t, s, "m", 3*hour+1)
	crash()
	wantReplayed(`{"m":[[0,3600000],[10800000,14400000]],"n":[[-3600000,0]]}`)
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoint(); err != nil {
		t.Fatal(err)
	}
	crash()
	wantReplayed("null")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is to be stored before the log is given up is stored before: an error keeps the log.
func TestNotesBeforeALogIsGivenUp(t *testing.T) {
	fs := crashfs.New()
	s := mustOpen(t, fs, quietConfig("fsync"))
	errNotes := errors.New("not now")
	fails := true
	s.BeforeTrim(func(ctx context.Context, values store.KeyValues) error {
		if fails {
			return errNotes
		}
		return values.Set(ctx, "_s", "k", "n", "text")
	})
	appendTo(t, s, "m", 5)
	from := s.catalogue.LogFrom()
	if err := s.checkpoint(); !errors.Is(err, errNotes) || s.catalogue.LogFrom() != from {
		t.Errorf("%v, the log begins at %d after %d", err, s.catalogue.LogFrom(), from)
	}
	if files, err := fs.List("data/" + datadir.Blocks); err != nil || len(files) > 0 {
		t.Errorf("the checkpoint that failed has left %v, %v", files, err)
	}
	fails = false
	if err := s.Close(); err != nil { // Close makes a checkpoint when the store accepts nothing else any more
		t.Fatal(err)
	}
	s = mustOpen(t, fs, quietConfig("fsync"))
	if v, err := s.Get(t.Context(), "_s", "k", "n"); err != nil || v.Text != "text" || s.catalogue.LogFrom() == from {
		t.Errorf("%q, %v, the log begins at %d", v.Text, err, s.catalogue.LogFrom())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Notes are not written to the catalogue, which ends the process on a full disk, as long as a
// checkpoint has no space for its files.
func TestNotesOnAFullDisk(t *testing.T) {
	var full atomic.Bool
	s := mustOpen(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && strings.Contains(op.Path, datadir.Blocks) {
			return syscall.ENOSPC
		}
		return nil
	})), quietConfig("fsync"))
	stored := 0
	s.BeforeTrim(func(context.Context, store.KeyValues) error { stored++; return nil })
	appendTo(t, s, "m", 5)
	full.Store(true)
	if err := s.checkpoint(); err == nil || stored > 0 {
		t.Errorf("%v, notes were stored %d times", err, stored)
	}
	full.Store(false)
	if err := s.checkpoint(); err != nil || stored != 1 {
		t.Errorf("%v, notes were stored %d times", err, stored)
	}
	s.must(t, s.Close())
}

// What is stored as a key-value tells of samples that were acknowledged before: the watermark of a
// roll-up says that results are there. With durability interval a power cut may take samples that
// were acknowledged, but not if it leaves a key-value that came after them.
func TestValuesComeAfterSamples(t *testing.T) {
	for _, durability := range []string{"fsync", "interval"} {
		for name, change := range map[string]func(*Store) error{
			"set":   func(s *Store) error { return s.Set(t.Context(), "_Rollups", "Watermark", "t", "{}") },
			"unset": func(s *Store) error { return s.Unset(t.Context(), "_Rollups", "Late", "t") },
		} {
			t.Run(durability+" "+name, func(t *testing.T) {
				fs := crashfs.New()
				c := quietConfig(durability) // the log is synced once a minute
				s := mustOpen(t, fs, c)
				if err := s.Set(t.Context(), "_Rollups", "Late", "t", "[]"); err != nil {
					t.Fatal(err)
				}
				appendTo(t, s, "m", 5)
				if err := change(s); err != nil {
					t.Fatal(err)
				}
				after := fs.CrashClone(vfs.CrashCloneCfg{})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = mustOpen(t, after, c)
				if got := string(s.Unnoted().Text()); got != `{"m":[[0,3600000]]}` {
					t.Errorf("the key-values have changed, and the samples are of the hours %s", got)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
