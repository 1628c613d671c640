package embedded

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/downsample"
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// TestCallsAfterClose: a store that is closed does nothing more, and says so.
func TestCallsAfterClose(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, crashfs.New(), quietConfig("fsync"))
	newCrashSeries(1)[0].writeOnce(ctx, s, 10)
	v, err := s.View(ctx)
	s.must(t, err)
	s.must(t, v.Close())
	if err := v.Close(); err != store.ErrClosed {
		t.Errorf("a view that is closed twice: %v", err)
	}
	s.must(t, s.Close())
	for what, call := range map[string]func() error{
		"Close":   s.Close,
		"Compact": func() error { return s.Compact(ctx) },
		"View":    func() error { _, err := s.View(ctx); return err },
		"Backup":  func() error { _, err := s.Backup(ctx, "late"); return err },
		"Check":   func() error { _, err := s.Check(ctx, offline.CheckOptions{}); return err },
		"Space":   func() error { _, err := s.Space(ctx, offline.SpaceOptions{}); return err },
		"pin": func() error { // of a backup that began before
			_, err := s.pin(ctx, "copy", nil)
			return err
		},
	} {
		if err := call(); err != store.ErrClosed {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSettingsAreChecked: a store with settings that make no sense is not opened, and nothing is created.
func TestSettingsAreChecked(t *testing.T) {
	mem := crashfs.New()
	cfg := quietConfig("fsync")
	cfg.RowWidth = -1
	for what, open := range map[string]func(vfs.FS, string, Config, Options) (*Store, error){"Open": Open, "OpenToRead": OpenToRead} {
		if _, err := open(mem, "data", cfg, Options{}); err == nil || !strings.HasPrefix(err.Error(), "settings of the embedded store: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := mem.Stat("data"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
}

// TestTimelinesBeside: a directory of timelines that is gone is noticed, once the store knows of it. A
// store that takes no writes does not learn of it.
func TestTimelinesBeside(t *testing.T) {
	mem := crashfs.New()
	var broken atomic.Bool
	disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpStat {
			return errorfs.ErrInjected
		}
		return nil
	}))
	s := mustOpen(t, disk, quietConfig("fsync"))
	want := func(when string, gone bool) {
		t.Helper()
		if got, err := s.TimelinesGone(); got != gone || err != nil {
			t.Errorf("%s: gone %v, %v, want %v", when, got, err, gone)
		}
	}
	want("of a new store", false)
	s.log.Fail("no space", syscall.ENOSPC)
	s.must(t, s.SaveTimelines())
	want("saved while the store takes no writes", false)
	s.must(t, s.Close())

	s = mustOpen(t, disk, quietConfig("fsync"))
	s.must(t, s.SaveTimelines())
	s.must(t, s.SaveTimelines())
	want("saved", true)
	s.must(t, s.Close())
	s = mustOpen(t, disk, quietConfig("fsync"))
	defer s.Close()
	want("after a restart", true)
	s.must(t, mem.MkdirAll("data/"+datadir.Timelines, 0o755))
	want("there again", false)
	broken.Store(true)
	if gone, err := s.TimelinesGone(); gone || !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("on a broken disk: gone %v, %v", gone, err)
	}
}

// TestBackupOfWhatIsBeside: a backup has a copy of the files beside the store, and fails without it.
func TestBackupOfWhatIsBeside(t *testing.T) {
	mem := crashfs.New()
	s := mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	var fails error
	for _, name := range []string{"one", "two"} {
		s.AlsoBackUp(name, func(dir string) error { return errors.Join(fails, mem.MkdirAll(dir, 0o755)) })
	}
	report, err := s.Backup(t.Context(), "good")
	s.must(t, err)
	names, err := mem.List(report.Dir)
	s.must(t, err)
	if !slices.Contains(names, "one") || !slices.Contains(names, "two") {
		t.Errorf("the backup has %v", names)
	}
	fails = errors.New("cannot be copied")
	if _, err := s.Backup(t.Context(), "bad"); !errors.Is(err, fails) {
		t.Errorf("without what is beside: %v", err)
	}
}

// TestHealthOfAFailedLog: a log that has failed makes the store unhealthy before any writer has met it, and no
// backup is made of it. So does a checkpoint that fails, until one succeeds.
func TestHealthOfAFailedLog(t *testing.T) {
	var broken atomic.Bool
	s := mustOpen(t, errorfs.Wrap(crashfs.New(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.Contains(op.Path, "/"+datadir.Log+"/") && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.EIO
		}
		return nil
	})), quietConfig("fsync"))
	defer s.Close()
	s.must(t, s.Healthy())
	unhealthy := func(reason string, cause error) {
		t.Helper()
		var unavailable *store.UnavailableError
		if err := s.Healthy(); !errors.As(err, &unavailable) || unavailable.Reason != reason || !errors.Is(err, cause) {
			t.Errorf("Healthy() = %v, want %s", err, reason)
		}
	}
	failure := errors.New("no room for a file")
	s.checkpointFailed.Store(&failure)
	unhealthy("samples cannot be written to files; will retry", failure)
	s.must(t, s.checkpoint())
	s.must(t, s.Healthy())

	broken.Store(true)
	s.order.Lock()
	s.log.AppendRecord('?', nil)
	s.order.Unlock()
	<-s.log.Current().Failed()
	if s.log.Failure() != nil {
		t.Fatal("somebody has met the failure")
	}
	unhealthy("the write-ahead log failed; fix the disk, then restart the server", syscall.EIO)
	if _, err := s.freeze("data/copy"); !errors.Is(err, syscall.EIO) {
		t.Errorf("a copy of a store whose log has failed: %v", err)
	}
}

// countedFS counts open block files.
type countedFS struct {
	vfs.FS
	open *atomic.Int64
}

type countedFile struct {
	vfs.File
	open *atomic.Int64
}

func (c countedFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.Open(name, o...)
	if err != nil || !strings.Contains(name, "/"+datadir.Blocks+"/") {
		return f, err
	}
	c.open.Add(1)
	return countedFile{f, c.open}, nil
}

func (c countedFile) Close() error {
	c.open.Add(-1)
	return c.File.Close()
}

// TestFilesAreClosed: a store that is closed holds no file open, but for those of views.
func TestFilesAreClosed(t *testing.T) {
	ctx := t.Context()
	var open atomic.Int64
	s := mustOpen(t, countedFS{crashfs.New(), &open}, quietConfig("fsync"))
	c := newCrashSeries(1)[0]
	c.writeOnce(ctx, s, 10)
	s.must(t, s.checkpoint())
	v, err := s.View(ctx)
	s.must(t, err)
	c.writeOnce(ctx, s, 10)
	if open.Load() == 0 {
		t.Fatal("no file is open")
	}
	s.must(t, s.Close())
	if n := open.Load(); n != 1 {
		t.Errorf("%d files are open for a view of one", n)
	}
	s.must(t, v.Close())
	if n := open.Load(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestFilesOfAnotherStore: block files that the catalogue cannot have named are damage, not samples.
func TestFilesOfAnotherStore(t *testing.T) {
	ctx := t.Context()
	made := func(samples int64) *crashfs.FS {
		mem := crashfs.New()
		s := mustOpen(t, mem, quietConfig("fsync"))
		newCrashSeries(1)[0].writeOnce(ctx, s, samples)
		s.must(t, s.Close())
		return mem
	}
	few, many := made(10), made(1000)
	names, err := few.List("data/" + datadir.Blocks)
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	file := "data/" + datadir.Blocks + "/" + names[0]
	other := readImage(t, many, "data")
	for name, b := range other {
		if strings.HasSuffix(name, names[0]) {
			writeFile(t, few, file, b)
		}
	}
	var damage *store.CorruptionError
	if _, err := Open(few, "data", quietConfig("fsync"), Options{}); !errors.As(err, &damage) || damage.File != file || !strings.HasPrefix(damage.Reason, "expected a file of ") {
		t.Errorf("a file of another size: %v", err)
	}

	s := newStore(many, "data", quietConfig("fsync"), Options{})
	if s.lock, err = datadir.LockToRead(many, "data"); err != nil {
		t.Fatal(err)
	}
	if s.catalogue, err = catalogue.OpenToRead(many, "data/"+datadir.Catalogue); err != nil {
		t.Fatal(err)
	}
	s.useCatalogue()
	damage = nil
	if err := s.openFiles(); !errors.As(err, &damage) || damage.File != datadir.Catalogue || !strings.Contains(damage.Reason, "has samples of series 0, but the catalogue has assigned only 0 ids") {
		t.Errorf("a file of series that do not exist: %v", err)
	}
	if err := s.undo(); err != nil {
		t.Error(err)
	}
}

// TestOrphans: a block file that a crash has left is removed when the store is opened. If that fails the store is
// not opened. Files that are none are left alone.
func TestOrphans(t *testing.T) {
	mem := crashfs.New()
	s := mustOpen(t, mem, quietConfig("fsync"))
	newCrashSeries(1)[0].writeOnce(t.Context(), s, 10)
	s.must(t, s.Close())
	orphan, notes := "data/"+datadir.Blocks+"/"+datadir.BlockName(77), "data/"+datadir.Blocks+"/notes"
	writeFile(t, mem, orphan, []byte("unfinished"))
	writeFile(t, mem, notes, []byte("keep"))
	disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRemove && op.Path == orphan {
			return errorfs.ErrInjected
		}
		return nil
	}))
	if _, err := Open(disk, "data", quietConfig("fsync"), Options{}); !errors.Is(err, errorfs.ErrInjected) {
		t.Errorf("an unfinished file that cannot be removed: %v", err)
	}
	s = mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	if _, err := mem.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished file: %v", err)
	}
	if _, err := mem.Stat(notes); err != nil {
		t.Errorf("a file that is none: %v", err)
	}
	if number, _ := s.nextPath(); number <= 77 {
		t.Errorf("number %d is given again", number)
	}
}

// TestWaitForRoom: a caller that waits for room in the head continues after a checkpoint, and gets an error when
// the store closes or its context ends.
func TestWaitForRoom(t *testing.T) {
	for _, c := range []struct {
		name string
		ends func(s *Store, cancel func()) error
		want error // nil: it continues
	}{
		{"checkpoint", func(s *Store, _ func()) error { return s.checkpoint() }, nil},
		{"close", func(s *Store, _ func()) error { return s.Close() }, store.ErrClosed},
		{"cancel", func(_ *Store, cancel func()) error { cancel(); return nil }, context.Canceled},
	} {
		s := mustOpen(t, crashfs.New(), quietConfig("fsync"))
		newCrashSeries(1)[0].writeOnce(t.Context(), s, 100)
		s.cfg.HeadBytesMax = 1 // full from here on
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.waitForRoom(ctx) }()
		for counted64(t, s.metrics.stalls) == 0 {
			time.Sleep(time.Millisecond)
		}
		s.must(t, c.ends(s, cancel))
		if err := <-done; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		cancel()
		_ = s.Close()
	}
}

// TestWhatDeletionsHide: a deletion hides samples of the series and times that it names, if they are older than it.
func TestWhatDeletionsHide(t *testing.T) {
	st := &state{}
	if st.hidden(1, 0, model.AllTime) || st.covered(1, 0, model.TimeRange{}) {
		t.Error("there is no deletion")
	}
	st.setDeletions([]*record.Deletion{{Sequence: 5, Range: model.TimeRange{StartMS: 10, EndMS: 20}, IDs: setOf([]model.SeriesNumber{1})}})
	for _, c := range []struct {
		id              model.SeriesNumber
		applied         uint64
		from, to        int64
		hidden, covered bool
	}{
		{1, 4, 10, 20, true, true},
		{1, 4, 11, 19, true, true},
		{1, 4, 9, 20, true, false},
		{1, 4, 10, 21, true, false},
		{1, 4, 20, 30, true, false},
		{1, 4, 0, 10, true, false},
		{1, 4, 21, 30, false, false},
		{1, 4, 0, 9, false, false},
		{1, 5, 10, 20, false, false}, // applied already
		{1, 6, 10, 20, false, false},
		{2, 4, 10, 20, false, false},
	} {
		r := model.TimeRange{StartMS: c.from, EndMS: c.to}
		if hidden, covered := st.hidden(c.id, c.applied, r), st.covered(c.id, c.applied, r); hidden != c.hidden || covered != c.covered {
			t.Errorf("series %d in %v, of which %d deletions are applied: hidden %v, covered %v, want %v, %v", c.id, r, c.applied, hidden, covered, c.hidden, c.covered)
		}
	}
}

// TestUnnotedHours: hours that are handed to the store are those that it returns.
func TestUnnotedHours(t *testing.T) {
	s := mustOpen(t, crashfs.New(), quietConfig("fsync"))
	defer s.Close()
	h := &downsample.Hours{}
	h.Add("m", 5)
	s.AddUnnoted(h)
	if got := string(s.Unnoted().Text()); got != `{"m":[[0,3600000]]}` {
		t.Errorf("hours %s", got)
	}
}
