package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/embedded"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/store"
	"varve/internal/timeline"
)

// TestBesideTheStore: a backup of the embedded store has the timelines, and a check finds
// damage to them.
func TestBesideTheStore(t *testing.T) {
	fs := vfs.NewMem()
	data, err := embedded.Open(fs, "data", embedded.DefaultConfig(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(fs, fs.PathJoin("data", datadir.Timelines), Options{})
	if err != nil {
		t.Fatal(err)
	}
	data.AlsoBackUp(datadir.Timelines, s.CopyTo)
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	put := func(id string) {
		t.Helper()
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: timeline.Event{Time: 1, ID: id}}}}); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	if err := s.db.Flush(); err != nil { // one event in a table, one in the log
		t.Fatal(err)
	}
	put("b")
	report, err := data.Backup(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	put("after the backup")
	check := func(clean bool) {
		t.Helper()
		r, err := data.Check(t.Context(), offline.CheckOptions{})
		if err != nil || r.Clean() != clean {
			t.Errorf("check of the running store: %+v, %v", r, err)
		}
	}
	check(true)

	copied, err := Open(fs, fs.PathJoin(report.Dir, datadir.Timelines), Options{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := copied.Slice(t.Context(), timeline.Everything("t"), timeline.All(), timeline.Ascending, timeline.Limit{Entries: 9, Bytes: 1 << 20})
	if err != nil || len(out.Entries) != 2 {
		t.Errorf("in the backup: %+v, %v", out, err)
	}
	if err := copied.Close(); err != nil {
		t.Fatal(err)
	}

	flip(t, fs, fs.PathJoin("data", datadir.Timelines), ".sst", 10)
	check(false)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	for path, clean := range map[string]bool{"data": false, report.Dir: true} {
		d, err := offline.Open(fs, path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Check(t.Context(), offline.CheckOptions{})
		if err != nil || r.Clean() != clean {
			t.Errorf("check of %s: %+v, %v", path, r, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamagedLog: damage to events that only the log has is found, also in a log whose requests
// are longer than Pebble's blocks. Otherwise these events and all later ones would be missing.
func TestDamagedLog(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 4 {
		e := timeline.Event{Time: 1, ID: fmt.Sprint(i), Data: make([]byte, 100<<10)}
		for j := range e.Data {
			e.Data[j] = byte(random.Uint32()) // which cannot be compressed
		}
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: e}}}); err != nil {
			t.Fatal(err)
		}
	}
	dir := s.dir
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, fs, dir, ".log", 390<<10) // in the last event
	var damage *store.CorruptionError
	if s, err := Open(fs, dir, Options{}); !errors.As(err, &damage) {
		t.Errorf("a log with damage was opened: %v", err)
		s.Close()
	}
}

// TestDamagedTable: if events cannot be read because a table is damaged, that is damage, which a
// repetition does not help. A table that is missing or cut off is damage when timelines are opened.
func TestDamagedTable(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		e := timeline.Event{Time: int64(i), ID: "a", Data: fmt.Appendf(nil, "%01000d", i)}
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: e}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	dir, reopen := s.dir, func() (*Shelf, error) { return Open(fs, s.dir, Options{}) }
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	table := fs.PathJoin(dir, theFile(t, fs, dir, ".sst"))
	info, err := fs.Stat(table)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, fs, dir, ".sst", int(info.Size()/2))
	if s, err = reopen(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Slice(t.Context(), timeline.Everything("t"), timeline.All(), timeline.Ascending, timeline.Limit{Entries: 900, Bytes: 1 << 20})
	if !errors.As(err, new(*store.CorruptionError)) || strings.Contains(err.Error(), "\n") || !strings.HasSuffix(err.Error(), "varve check reports what is damaged, and what to do") {
		t.Errorf("read a damaged table: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(table); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "cut off"} {
		if text != "" {
			f, err := fs.Create(table, vfs.WriteCategoryUnspecified)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Write([]byte(text))
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := reopen(); !errors.As(err, new(*store.CorruptionError)) {
			t.Errorf("opened with a table that has %q: %v", text, err)
		}
	}
}

// TestCheckFindsWhyTimelinesDoNotOpen: a check finds a file that is missing, and options that cannot
// be read, although all checksums that there are are right.
func TestCheckFindsWhyTimelinesDoNotOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(fs vfs.FS, dir string) error
		clean  bool
	}{
		{"none", func(vfs.FS, string) error { return nil }, true},
		{"no database", func(fs vfs.FS, dir string) error { return errors.Join(fs.RemoveAll(dir), fs.MkdirAll(dir, 0o755)) }, true},
		{"no table", func(fs vfs.FS, dir string) error { return fs.Remove(fs.PathJoin(dir, theFile(t, fs, dir, ".sst"))) }, false},
		{"options", func(fs vfs.FS, dir string) error {
			flip(t, fs, dir, theFile(t, fs, dir, "OPTIONS-"), 0)
			return nil
		}, false},
	} {
		fs := vfs.NewMem()
		data, err := embedded.Open(fs, "data", embedded.DefaultConfig(), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		dir := fs.PathJoin("data", datadir.Timelines)
		s, err := Open(fs, dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1})
		if err := errors.Join(err, s.db.Flush(), s.Close(), data.Close(), c.damage(fs, dir)); err != nil {
			t.Fatal(err)
		}
		d, err := offline.Open(fs, "data")
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Check(t.Context(), offline.CheckOptions{})
		if err := errors.Join(err, d.Close()); err != nil || r.Clean() != c.clean {
			t.Errorf("%s: %+v, %v", c.name, r.Findings, err)
		}
		s, err = Open(fs, dir, Options{})
		if (err == nil) != c.clean {
			t.Errorf("%s: open: %v", c.name, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// theFile returns the name of the first file with a part in its name.
func theFile(t *testing.T, fs vfs.FS, dir, part string) string {
	t.Helper()
	names, err := fs.List(dir)
	i := slices.IndexFunc(names, func(name string) bool { return strings.Contains(name, part) })
	if err != nil || i < 0 {
		t.Fatalf("no file %s in %v: %v", part, names, err)
	}
	return names[i]
}

// flip changes a bit in the first file with a suffix and the byte at an offset. The file is
// written again, so that hard links keep what they had.
func flip(t *testing.T, fs vfs.FS, dir, suffix string, at int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		path := fs.PathJoin(dir, name)
		f, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := f.Stat()
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if at >= len(b) {
			continue
		}
		b[at] ^= 1
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		g, err := fs.Create(path, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Write(b); err != nil {
			t.Fatal(err)
		}
		g.Close()
		return
	}
	t.Fatalf("no file %s in %v", suffix, names)
}
