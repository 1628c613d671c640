package catalogue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// filled makes a catalogue with a row or more in each table, and closes it.
func filled(t *testing.T, fs vfs.FS) {
	t.Helper()
	v := openValues(t, fs)
	v.must(t, v.catalogue.Commit(Change{
		AddFiles:     map[uint64]File{7: {Bytes: 70, Sequence: 3, Deletions: 1}},
		Define:       definitions("m", 1, 3),
		AddDeletions: []*record.Deletion{{Sequence: 1, Range: model.TimeRange{StartMS: 5, EndMS: 9}, IDs: roaring.BitmapOf(2)}},
		Meta:         func(m *Meta) { *m = Meta{LogFrom: 4, LogBegun: true, NextSeries: 5, Deletions: 1} },
	}))
	v.must(t, v.Set(t.Context(), "s", "k", "n", "text"))
	v.must(t, v.catalogue.db.Flush())
	v.must(t, v.catalogue.Close())
}

// A use is one way to read a catalogue, and says what it has read.
type use struct {
	name string
	run  func(ctx context.Context, v *Values) (string, error)
	want string
}

func uses() []use {
	list := func(seq func(func(string, error) bool)) (all string, err error) {
		for name, e := range seq {
			all, err = all+name, errors.Join(err, e)
		}
		return all, err
	}
	return []use{
		{"get s/k/n", func(ctx context.Context, v *Values) (string, error) {
			value, err := v.Get(ctx, "s", "k", "n")
			return value.Text, err
		}, "text"},
		{"modification time of s/k", func(ctx context.Context, v *Values) (string, error) {
			at, err := v.Modified(ctx, "s", "k")
			return fmt.Sprint(!at.IsZero()), err
		}, "true"},
		{"list keys", func(ctx context.Context, v *Values) (string, error) {
			return list(v.Keys(ctx, "s", "k", ""))
		}, "n"},
		{"list keys", func(ctx context.Context, v *Values) (string, error) {
			return list(v.ServiceKeys(ctx, "s"))
		}, "k"},
		{"count metadata", func(ctx context.Context, v *Values) (string, error) {
			v.mu.Lock()
			defer v.mu.Unlock()
			err := v.count(ctx)
			return fmt.Sprint(v.keys, " of ", v.bytes), err
		}, "1 of 20"},
		{"list keys", func(ctx context.Context, v *Values) (string, error) {
			last, err := v.isLast("s", "k", "n")
			return fmt.Sprint(last), err
		}, "true"},
		{"get s/k/n", func(_ context.Context, v *Values) (string, error) {
			size, err := v.valueBytes("s", "k", "n")
			return fmt.Sprint(size), err
		}, "20"},
		{"read catalogue", func(_ context.Context, v *Values) (s string, err error) {
			err = v.catalogue.Series(func(d record.Definition, _ model.Series) { s += fmt.Sprint(d.ID) })
			return s, err
		}, "123"},
		{"read catalogue", func(_ context.Context, v *Values) (string, error) {
			files, err := v.catalogue.Files()
			return fmt.Sprint(files), err
		}, "map[7:{70 3 1}]"},
		{"read catalogue", func(_ context.Context, v *Values) (s string, err error) {
			deletions, err := v.catalogue.Deletions()
			for _, d := range deletions {
				s += fmt.Sprint(d.Sequence, d.Range, d.IDs.ToArray())
			}
			return s, err
		}, "1 {5 9} [2]"},
		{"", func(_ context.Context, v *Values) (string, error) {
			m, err := v.catalogue.SavedMeta()
			return fmt.Sprint(m), err
		}, "{4 true 5 1 false}"},
		{"", func(_ context.Context, v *Values) (string, error) {
			name := SeriesName(v.catalogue.Reader(), 2)
			if name == "series 2" {
				return "", errorfs.ErrInjected
			}
			return name, nil
		}, "m{host=1} (kairos_long)"},
	}
}

// TestUnreadableTables: whatever is read from a catalogue whose tables cannot be read is an
// error that says what was read. Once they can be read again, the rows are the same.
func TestUnreadableTables(t *testing.T) {
	mem := vfs.NewMem()
	filled(t, mem)
	for i, u := range uses() {
		var broken atomic.Bool
		v := openValues(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return errorfs.ErrInjected
			}
			return nil
		})))
		broken.Store(true)
		if got, err := u.run(t.Context(), v); !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), u.name) {
			t.Errorf("%d: read %q, error %v, want one of %q", i, got, err, u.name)
		}
		broken.Store(false)
		if got, err := u.run(t.Context(), v); got != u.want || err != nil {
			t.Errorf("%d, %s: read %q and %v, want %q", i, u.name, got, err, u.want)
		}
		v.must(t, v.catalogue.Close())
	}
}

// TestChangesOfUnreadableTables: whichever read fails, of how many key-values there are, how
// long the old text is, or whether it is the last one, a key-value is not changed.
func TestChangesOfUnreadableTables(t *testing.T) {
	other := "other"
	for name, text := range map[string]*string{"set": &other, "unset": nil} {
		for n := int32(1); ; n++ {
			mem := vfs.NewMem()
			filled(t, mem)
			var on atomic.Bool
			var reads atomic.Int32
			v := openValues(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if on.Load() && strings.HasSuffix(op.Path, ".sst") && op.Kind.ReadOrWrite() == errorfs.OpIsRead && reads.Add(1) == n {
					return errorfs.ErrInjected
				}
				return nil
			})))
			on.Store(true)
			err := v.change(t.Context(), "s", "k", "n", text)
			on.Store(false)
			failed := reads.Load() >= n
			want := "text"
			if err == nil { // a read of Pebble's own, in the background, may have failed
				want = *cmp.Or(text, new(string))
			} else if !failed || !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("%s, read %d fails: %t: %v", name, n, failed, err)
			}
			v.must(t, v.count(t.Context()))
			got, err := v.Get(t.Context(), "s", "k", "n")
			if got.Text != want || err != nil && (want != "" || !errors.Is(err, store.ErrNotFound)) {
				t.Errorf("%s, read %d fails: there is %q, %v, want %q", name, n, got.Text, err, want)
			}
			keys, size := 0, int64(0)
			if want != "" {
				keys, size = 1, int64(16+len(want))
			}
			if rows := modifiedRows(t, v); v.keys != keys || v.bytes != size || rows != keys {
				t.Errorf("%s, read %d fails: %d keys of %d bytes are counted, with %d modification times, want %d of %d", name, n, v.keys, v.bytes, rows, keys, size)
			}
			v.must(t, v.catalogue.Close())
			if !failed {
				if n < 3 {
					t.Errorf("%s: only %d reads failed", name, n-1)
				}
				break
			}
		}
	}

	// Nothing is counted for a client that has left.
	mem := vfs.NewMem()
	filled(t, mem)
	v := openValues(t, mem)
	defer v.catalogue.Close()
	v.options.Check = func(context.Context) error { return nil }
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := v.Set(ctx, "s", "k", "n", other); !errors.Is(err, context.Canceled) || v.known {
		t.Errorf("set by a client that has left: %v, counted %t", err, v.known)
	}
}

// TestDamagedRows: a row that cannot be what its table has is corruption of the catalogue,
// not an empty answer.
func TestDamagedRows(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		key, value []byte
		read       func(v *Values) error
	}{
		"value": {valueKey("s", "k", "n"), make([]byte, valueHead-1), func(v *Values) error {
			_, err := v.Get(ctx, "s", "k", "n")
			return err
		}},
		"modification time": {modifiedKey("s", "k"), make([]byte, 7), func(v *Values) error {
			_, err := v.Modified(ctx, "s", "k")
			return err
		}},
		"longer modification time": {modifiedKey("s", "k"), make([]byte, 9), func(v *Values) error {
			_, err := v.Modified(ctx, "s", "k")
			return err
		}},
		"meta": {MetaKey("store"), []byte("{"), func(v *Values) error {
			_, err := v.catalogue.SavedMeta()
			return err
		}},
		"key of a series": {[]byte{TableSeries, 0, 0, 1}, nil, func(v *Values) error {
			return v.catalogue.Series(func(record.Definition, model.Series) {})
		}},
		"series": {seriesKey(9), []byte{255}, func(v *Values) error {
			return v.catalogue.Series(func(d record.Definition, _ model.Series) {
				if d.ID == 9 {
					t.Error("a series that cannot be read was read")
				}
			})
		}},
		"key of a file": {[]byte{TableFile, 1}, []byte("{}"), func(v *Values) error {
			_, err := v.catalogue.Files()
			return err
		}},
		"file": {numberKey(TableFile, 1), []byte("{"), func(v *Values) error {
			_, err := v.catalogue.Files()
			return err
		}},
		"deletion": {numberKey(TableDeletion, 1), []byte{1}, func(v *Values) error {
			_, err := v.catalogue.Deletions()
			return err
		}},
	} {
		mem := vfs.NewMem()
		filled(t, mem)
		v := openValues(t, mem)
		v.must(t, c.read(v))
		v.must(t, v.catalogue.db.Set(c.key, c.value, pebble.Sync))
		var damage *store.CorruptionError
		if err := c.read(v); !errors.As(err, &damage) || damage.File != "catalogue" || damage.Reason == "" {
			t.Errorf("%s: %v", name, err)
		}
		if got := SeriesName(v.catalogue.Reader(), 9); got != "series 9" {
			t.Errorf("%s: series 9 is %q", name, got)
		}
		v.must(t, v.catalogue.Close())
	}
}

// TestChecksOfValues: a row of the key-values is right if its key has two names and its value
// a time.
func TestChecksOfValues(t *testing.T) {
	key := valueKey("s", "k", "n")[1:]
	for _, c := range []struct {
		name       string
		key, value []byte
		ok         bool
	}{
		{"empty text", key, make([]byte, valueHead), true},
		{"a text", key, make([]byte, valueHead+1), true},
		{"no time", key, make([]byte, valueHead-1), false},
		{"no service key", appendName(nil, "s"), make([]byte, valueHead), false},
		{"no service", []byte("s"), make([]byte, valueHead), false},
	} {
		if err := CheckValue(c.key, c.value); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for n, ok := range map[int]bool{valueHead - 1: false, valueHead: true, valueHead + 1: false} {
		if err := CheckModified(key, make([]byte, n)); (err == nil) != ok {
			t.Errorf("modification time of %d bytes: %v", n, err)
		}
	}
}

// TestOpenRefuses: a catalogue that is not there is created only for a fresh store, and one
// that cannot be this build's is not opened, for reading neither.
func TestOpenRefuses(t *testing.T) {
	set := func(key, value string) func(*Pebble) error {
		return func(db *Pebble) error { return db.Set(MetaKey(key), []byte(value), pebble.Sync) }
	}
	for name, c := range map[string]struct {
		change func(*Pebble) error
		want   string
	}{
		"later version":  {set("spec", fmt.Sprintf(`{"version": %d}`, Version+1)), "use a newer build"},
		"damaged spec":   {set("spec", "{"), `value of "spec"`},
		"damaged meta":   {set("store", "{"), `value of "store"`},
		"spec is absent": {func(db *Pebble) error { return db.Delete(MetaKey("spec"), pebble.Sync) }, "expected a catalogue"},
		"meta is absent": {func(db *Pebble) error { return db.Delete(MetaKey("store"), pebble.Sync) }, "expected the state of the store"},
	} {
		mem := vfs.NewMem()
		filled(t, mem)
		v := openValues(t, mem)
		v.must(t, errors.Join(c.change(v.catalogue.db), v.catalogue.Close()))
		for range 2 { // a call that refuses leaves the catalogue closed and unchanged
			for way, open := range map[string]func() (*Catalogue, error){
				"to read": func() (*Catalogue, error) { return OpenToRead(mem, "catalogue") },
				"open":    func() (*Catalogue, error) { return Open(mem, "catalogue", Options{Logger: Quiet{}}) },
			} {
				if o, err := open(); err == nil || o != nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %s: %v, want %q", name, way, err, c.want)
				}
			}
		}
	}

	mem := vfs.NewMem()
	if c, err := OpenToRead(mem, "catalogue"); err == nil || c != nil {
		t.Errorf("no catalogue is opened to read: %v", err)
	}
	if c, err := Open(mem, "catalogue", Options{Logger: Quiet{}}); !errors.Is(err, errGone) || c != nil {
		t.Errorf("no catalogue beside old files: %v, want %v", err, errGone)
	}
}

// TestCreationThatFails: a catalogue whose directory cannot be made, or made durable, is not
// opened. As soon as it can be, it is created.
func TestCreationThatFails(t *testing.T) {
	for what, fails := range map[string]func(errorfs.Op) bool{
		"directory": func(op errorfs.Op) bool { return op.Kind == errorfs.OpMkdirAll },
		"parent":    func(op errorfs.Op) bool { return op.Path == "." },
		"database":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate },
	} {
		mem := vfs.NewMem()
		var broken atomic.Bool
		broken.Store(true)
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && fails(op) {
				return errorfs.ErrInjected
			}
			return nil
		}))
		open := func() (*Catalogue, error) { return Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true}) }
		if c, err := open(); !errors.Is(err, errorfs.ErrInjected) || c != nil {
			t.Fatalf("%s: %v", what, err)
		}
		broken.Store(false)
		c, err := open()
		if err != nil {
			t.Fatalf("%s: after that: %v", what, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldTablesAreRemoved: a catalogue that is written for a long time has few files.
func TestOldTablesAreRemoved(t *testing.T) {
	mem := vfs.NewMem()
	v := openValues(t, mem)
	for i := range 50 {
		v.must(t, v.Set(t.Context(), "s", "k", fmt.Sprint(i), "text"))
		v.must(t, v.catalogue.db.Flush())
	}
	v.must(t, v.catalogue.db.Compact(t.Context(), []byte{0}, []byte{255}, false))
	v.must(t, v.catalogue.Close())
	names, err := mem.List("catalogue")
	v.must(t, err)
	if len(names) > 15 {
		t.Errorf("after 50 tables were merged there are %d files: %q", len(names), names)
	}
}

// TestMarkersNeedTheirDirectory: what says which list of tables counts is neither made nor
// removed while the changes before it are not on the disk; a catalogue then does not start.
func TestMarkersNeedTheirDirectory(t *testing.T) {
	for _, change := range []func(*fileSystem, string) error{
		func(fs *fileSystem, name string) error { _, err := fs.Create(name, "test"); return err },
		func(fs *fileSystem, name string) error { return fs.Remove(name) },
	} {
		mem := vfs.NewMem()
		var broken atomic.Bool
		fs := &fileSystem{FS: errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken.Load() && op.Kind == errorfs.OpFileSync {
				return errorfs.ErrInjected
			}
			return nil
		})), dir: "d", log: Quiet{}}
		if err := mem.MkdirAll("d", 0o777); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"d/marker.old", "d/other"} {
			f, err := mem.Create(name, "test")
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		broken.Store(true)
		if err := change(fs, "d/other"); err != nil {
			t.Errorf("no marker: %v", err)
		}
		before, _ := mem.List("d")
		for _, name := range []string{"d/marker.old", "d/marker.new"} {
			if err := change(fs, name); !errors.Is(err, errorfs.ErrInjected) {
				t.Errorf("%s: %v", name, err)
			}
		}
		after, _ := mem.List("d")
		slices.Sort(before)
		slices.Sort(after)
		if !slices.Equal(before, after) {
			t.Errorf("files %q have become %q", before, after)
		}
	}
	mem := vfs.NewMem()
	if err := (&fileSystem{FS: mem, dir: "d", log: Quiet{}}).Remove("d/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there is removed: %v", err)
	}
}

// fatalLog notes the first reason for which the process would end.
type fatalLog struct {
	Quiet
	reason string
}

func (l *fatalLog) Fatalf(format string, args ...any) { l.reason = fmt.Sprintf(format, args...) }

// TestUnsyncedDirectory: a directory of the catalogue that cannot be synced is fatal, another
// one is an error.
func TestUnsyncedDirectory(t *testing.T) {
	mem := vfs.NewMem()
	broken := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync {
			return errorfs.ErrInjected
		}
		return nil
	}))
	for name, fatal := range map[string]bool{"catalogue": true, "backup": false} {
		log := &fatalLog{}
		fs := &fileSystem{FS: broken, dir: "catalogue", log: log}
		if err := mem.MkdirAll(name, 0o777); err != nil {
			t.Fatal(err)
		}
		d, err := fs.OpenDir(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); !errors.Is(err, errorfs.ErrInjected) || (log.reason != "") != fatal || fatal && !strings.Contains(log.reason, name) {
			t.Errorf("%s: %v, fatal %q", name, err, log.reason)
		}
	}
}

// TestBackgroundErrors: the tenth failure in a row ends the process, unless space is missing.
// Before that there is a pause that grows.
func TestBackgroundErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		fatal bool
	}{{"broken disk", errors.New("broken"), true}, {"full disk", syscall.ENOSPC, false}} {
		synctest.Test(t, func(t *testing.T) {
			log := &fatalLog{}
			b := &backgroundErrors{log: log}
			l := b.listener()
			began := time.Now()
			fail := func(n int) {
				for range n {
					l.BackgroundError(c.err)
				}
			}
			fail(9)
			if paused := time.Since(began); log.reason != "" || paused != 900*time.Millisecond {
				t.Errorf("%s: after nine failures and %s: %q", c.name, paused, log.reason)
			}
			for _, done := range []func(error){
				func(err error) { l.FlushEnd(pebble.FlushInfo{Err: err}) },
				func(err error) { l.CompactionEnd(pebble.CompactionInfo{Err: err}) },
			} {
				done(nil)
				fail(9)
				done(c.err)
				if log.reason != "" {
					t.Errorf("%s: not in a row: %q", c.name, log.reason)
				}
			}
			fail(1)
			if (log.reason != "") != c.fatal || c.fatal && !strings.Contains(log.reason, "10 failures in a row") {
				t.Errorf("%s: after ten failures: %q", c.name, log.reason)
			}
			began = time.Now()
			if fail(5); !c.fatal && time.Since(began) != time.Second {
				t.Errorf("%s: five more take %s", c.name, time.Since(began))
			}
		})
	}
}

// A command ends on a full disk, because it cannot wait for somebody who frees space. Its log names
// the error, without the stack that Pebble's errors have.
func TestFullDiskEndsACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		reason := ""
		l := Logger{Log: slog.New(slog.NewTextHandler(&out, nil)), EndWhenFull: true, Fatal: func(r string) { reason = r }}
		b := &backgroundErrors{log: l}
		for range 9 {
			b.failed(verbose{syscall.ENOSPC})
		}
		if reason != "" || strings.Count(out.String(), "\n") != 9 || strings.Contains(out.String(), "stack trace") {
			t.Errorf("after nine failures: %q, log %s", reason, &out)
		}
		defer func() {
			if recover() == nil || !strings.Contains(reason, "10 failures in a row, the last: no space left on device") {
				t.Errorf("after ten failures: %q", reason)
			}
		}()
		b.failed(syscall.ENOSPC)
	})
}

// verbose is an error with a stack, as Pebble's are.
type verbose struct{ error }

func (e verbose) Unwrap() error { return e.error }

func (e verbose) Format(f fmt.State, _ rune) {
	io.WriteString(f, e.Error())
	if f.Flag('+') {
		io.WriteString(f, "stack trace")
	}
}

// TestLimitsOfKeyValues are those that docs/errors.md promises.
func TestLimitsOfKeyValues(t *testing.T) {
	v := openValues(t, vfs.NewMem())
	defer v.catalogue.Close()
	v.known = true
	for _, c := range []struct {
		keys  int
		bytes int64
		limit string
	}{
		{1_000_000 - 1, 1<<30 - 16, ""},
		{1_000_000, 0, "metadata keys"},
		{0, 1<<30 - 16 + 1, "bytes of metadata"},
	} {
		v.keys, v.bytes = c.keys, c.bytes
		err := v.Set(t.Context(), "s", "k", "n", "")
		var l *store.LimitError
		if errors.As(err, &l) != (c.limit != "") || l != nil && l.Limit != c.limit {
			t.Errorf("%d keys of %d bytes before: %v", c.keys, c.bytes, err)
		}
		v.must(t, v.catalogue.db.Delete(valueKey("s", "k", "n"), pebble.Sync))
	}
}

// TestRefusals: nothing is read that the store refuses to read, nothing written that it
// refuses to write or that has no name.
func TestRefusals(t *testing.T) {
	mem := vfs.NewMem()
	filled(t, mem)
	v := openValues(t, mem)
	defer v.catalogue.Close()
	ctx := t.Context()
	for _, names := range [][3]string{{"", "k", "n"}, {"s", "", "n"}, {"s", "k", ""}} {
		var input *store.InputError
		for _, err := range []error{v.Set(ctx, names[0], names[1], names[2], "x"), v.Unset(ctx, names[0], names[1], names[2])} {
			if !errors.As(err, &input) {
				t.Errorf("%q: %v", names, err)
			}
		}
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		check, writable error
	}{{refused, nil}, {nil, refused}} {
		v.options.Check = func(context.Context) error { return c.check }
		v.options.Writable = func() error { return c.writable }
		for _, err := range []error{v.Set(ctx, "s", "k", "n", "x"), v.Set(ctx, "_Rollups", "k", "n", "x"), v.Unset(ctx, "s", "k", "n")} {
			if err != refused {
				t.Errorf("%+v: write: %v", c, err)
			}
		}
		for i, u := range uses()[:4] {
			if got, err := u.run(ctx, v); !errors.Is(err, c.check) || c.check == nil && got != u.want {
				t.Errorf("%+v: read %d: %q, %v", c, i, got, err)
			}
		}
	}
	v.options.Check = func(context.Context) error { return nil }
	if _, err := v.Get(ctx, "s", "k", "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	if at, err := v.Modified(ctx, "s", "none"); !at.IsZero() || err != nil {
		t.Errorf("a service key that is not there: %v, %v", at, err)
	}
}

// TestFailedCommit: after a commit whose effect on the disk is unknown there is no
// other, also not one that would succeed.
func TestFailedCommit(t *testing.T) {
	mem := vfs.NewMem()
	filled(t, mem)
	readOnly, err := pebble.Open("catalogue", &pebble.Options{FS: mem, ReadOnly: true, Logger: &fatalLog{}})
	if err != nil {
		t.Fatal(err)
	}
	failed := Catalogue{db: &Pebble{DB: readOnly}}
	failure := failed.Commit(Change{DropFiles: []uint64{7}})
	if err := readOnly.Close(); err != nil {
		t.Fatal(err)
	}
	v := openValues(t, mem)
	defer v.catalogue.Close()
	c := v.catalogue
	c.failed.Store(failed.failed.Load())
	if err := c.Commit(Change{DropFiles: []uint64{7}}); !errors.Is(failure, pebble.ErrReadOnly) || err != failure || c.Broken() != failure {
		t.Errorf("%v, then %v, %v", failure, err, c.Broken())
	}
	c.failed.Store(nil)
	if err := c.Commit(Change{DropFiles: []uint64{7}, DropDeletions: []uint64{1}, Forget: []model.SeriesNumber{2}}); err != nil || c.Broken() != nil {
		t.Fatalf("%v, %v", err, c.Broken())
	}
	files, err := c.Files()
	v.must(t, err)
	deletions, err := c.Deletions()
	v.must(t, err)
	if n := c.metrics(t)["m"]; n != 2 || len(files) != 0 || len(deletions) != 0 {
		t.Errorf("%d series, files %v, deletions %v", n, files, deletions)
	}
}

// TestFailedSet: a key-value that cannot be stored or removed is an error, and does not count.
func TestFailedSet(t *testing.T) {
	ctx, mem := t.Context(), vfs.NewMem()
	v := openValues(t, mem)
	v.must(t, v.Set(ctx, "s", "k", "old", "x"))
	v.must(t, v.Set(ctx, "_Rollups", "k", "old", "x"))
	keys, size := v.keys, v.bytes
	v.must(t, v.catalogue.Close())
	readOnly, err := pebble.Open("catalogue", &pebble.Options{FS: mem, ReadOnly: true, Logger: &fatalLog{}})
	v.must(t, err)
	defer readOnly.Close()
	v.catalogue.db = &Pebble{DB: readOnly}
	for _, service := range []string{"s", "_Rollups"} {
		for what, err := range map[string]error{
			"set": v.Set(ctx, service, "k", "new", "x"), "set again": v.Set(ctx, service, "k", "old", "longer"), "unset": v.Unset(ctx, service, "k", "old"),
		} {
			if !errors.Is(err, pebble.ErrReadOnly) || !strings.HasPrefix(err.Error(), "store "+service+"/k/") {
				t.Errorf("%s, %s: %v", service, what, err)
			}
		}
		if got, err := v.Get(ctx, service, "k", "old"); got.Text != "x" || err != nil {
			t.Errorf("%s: the old text is %q, %v", service, got.Text, err)
		}
	}
	if v.keys != keys || v.bytes != size {
		t.Errorf("%d keys of %d bytes count, %d of %d before", v.keys, v.bytes, keys, size)
	}
}

// TestSeriesThatCannotBeAdded: a commit that fails before its series are there has changed
// nothing, and is tried again.
func TestSeriesThatCannotBeAdded(t *testing.T) {
	for name, fails := range map[string]func(errorfs.Op) bool{
		"write": func(op errorfs.Op) bool { return op.Kind.ReadOrWrite() == errorfs.OpIsWrite },
		"sync":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
	} {
		t.Run(name, func(t *testing.T) { seriesThatCannotBeAdded(t, fails) })
	}
}

func seriesThatCannotBeAdded(t *testing.T, fails func(errorfs.Op) bool) {
	mem := vfs.NewMem()
	filled(t, mem)
	var broken atomic.Bool
	v := openValues(t, errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.HasSuffix(op.Path, NewSeries) && fails(op) {
			return errorfs.ErrInjected
		}
		return nil
	})))
	defer v.catalogue.Close()
	ch := Change{Define: definitions("new", 100, manySeries), DropFiles: []uint64{7}, Meta: func(m *Meta) { m.LogFrom = 9 }}
	broken.Store(true)
	if err := v.catalogue.Commit(ch); !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), "add series") || v.catalogue.Broken() != nil {
		t.Errorf("%v, broken %v", err, v.catalogue.Broken())
	}
	files, err := v.catalogue.Files()
	v.must(t, err)
	if m, err := v.catalogue.SavedMeta(); len(files) != 1 || m.LogFrom != 4 || v.catalogue.Meta.LogFrom != 4 || err != nil || v.catalogue.metrics(t)["new"] != 0 {
		t.Errorf("after a commit that failed: files %v, %+v, %v", files, m, err)
	}
	broken.Store(false)
	v.must(t, v.catalogue.Commit(ch))
	files, err = v.catalogue.Files()
	v.must(t, err)
	if m, err := v.catalogue.SavedMeta(); len(files) != 0 || m.LogFrom != 9 || v.catalogue.Meta.LogFrom != 9 || err != nil || v.catalogue.metrics(t)["new"] != manySeries {
		t.Errorf("after the next one: files %v, %+v, %v", files, m, err)
	}
}

// TestLogThatCannotBeSynced: what may not be durable is not acknowledged. Pebble ends the process.
func TestLogThatCannotBeSynced(t *testing.T) {
	var broken atomic.Bool
	v := openValues(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		syncs := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
		if broken.Load() && syncs && strings.HasSuffix(op.Path, ".log") {
			return errorfs.ErrInjected
		}
		return nil
	})))
	broken.Store(true)
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, errorfs.ErrInjected.Error()) {
			t.Errorf("the process ends with %q", said)
		}
	}()
	err := v.Set(t.Context(), "s", "k", "n", "text")
	t.Errorf("the value is acknowledged, error %v", err)
}
