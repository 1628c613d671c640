package catalogue

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestLogger: an error is an attribute of its line, so that lines of one fault have one message. What Pebble cannot
// go on from ends the store with the reason.
func TestLogger(t *testing.T) {
	var log bytes.Buffer
	l := Logger{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for want, say := range map[string]func(){
		`level=DEBUG msg="catalogue: opened 3 files"`:                     func() { l.Infof("opened %d files", 3) },
		`level=ERROR msg="catalogue: compaction failed" error="no space"`: func() { l.Errorf("compaction failed: %v", errors.New("no space")) },
		`level=ERROR msg="catalogue: file 3: no space"`:                   func() { l.Errorf("file %d: %v", 3, "no space") },
		`level=ERROR msg="catalogue: no space"`:                           func() { l.Errorf("%v", "no space") },
	} {
		log.Reset()
		if say(); !strings.Contains(log.String(), want) {
			t.Errorf("%s, want %s", &log, want)
		}
	}
	const reason = "the catalogue cannot be written: 10 failures"
	ended := func(l pebble.Logger) (with any) {
		defer func() { with = recover() }()
		l.Fatalf("%d failures", 10)
		return nil
	}
	if got := ended(l); got != reason {
		t.Errorf("ended with %v", got)
	}
	told := ""
	l.Fatal = func(text string) { told = text }
	if got := ended(l); got != reason || told != reason {
		t.Errorf("ended with %v, told %q", got, told)
	}
	if got := ended(Quiet{}); got != "10 failures" {
		t.Errorf("ended with %v", got)
	}
}

// openTested opens a database with a row.
func openTested(t *testing.T, fs vfs.FS, l Logger) *Pebble {
	t.Helper()
	if err := fs.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := OpenPebble(fs, "data/db", true, &pebble.Options{Logger: l})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set([]byte("key"), []byte("value"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	return db
}

// TestFailuresOfTheBackgroundAreTold: the code that opened a database is told of failures in its background.
func TestFailuresOfTheBackgroundAreTold(t *testing.T) {
	var broken atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return errorfs.ErrInjected
		}
		return nil
	}))
	failed := make(chan error, 1)
	l := Logger{Log: slog.New(slog.DiscardHandler), Failed: func(err error) {
		broken.Store(false)
		select {
		case failed <- err:
		default:
		}
	}}
	db := openTested(t, fs, l)
	broken.Store(true)
	done, err := db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody is told")
	}
	<-done // it was tried again
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestCopyThatFails: a copy that cannot be made is an error, regardless of what Pebble does about it.
func TestCopyThatFails(t *testing.T) {
	mem := vfs.NewMem()
	var n, calls atomic.Int32
	var on atomic.Bool
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !on.Load() || op.Kind == errorfs.OpFileClose || !strings.HasPrefix(op.Path, "copy") || calls.Add(1) != n.Load() {
			return nil
		}
		return errorfs.ErrInjected
	}))
	db := openTested(t, fs, Logger{Log: slog.New(slog.DiscardHandler)})
	defer db.Close()
	for n.Store(1); ; n.Add(1) {
		calls.Store(0)
		if err := mem.RemoveAll("copy"); err != nil {
			t.Fatal(err)
		}
		on.Store(true)
		err := db.CopyTo("copy")
		on.Store(false)
		if calls.Load() < n.Load() {
			if err != nil || n.Load() < 5 {
				t.Errorf("after %d calls: %v", n.Load()-1, err)
			}
			break
		}
		if !errors.Is(err, errorfs.ErrInjected) {
			t.Errorf("call %d fails: %v", n.Load(), err)
		}
	}
	copied, err := OpenPebble(mem, "copy", false, &pebble.Options{Logger: Quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	value, closer, err := copied.Get([]byte("key"))
	if err != nil || string(value) != "value" {
		t.Fatalf("%q, %v", value, err)
	}
	closer.Close()
}

// TestOpenOfADamagedDatabase: a database whose list of tables is damaged is not opened.
func TestOpenOfADamagedDatabase(t *testing.T) {
	mem := vfs.NewMem()
	if err := openTested(t, mem, Logger{Log: slog.New(slog.DiscardHandler)}).Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "MANIFEST") {
			continue
		}
		f, err := mem.OpenReadWrite("data/db/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff, 0xff}, 10); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if db, err := OpenPebble(mem, "data/db", false, &pebble.Options{Logger: Quiet{}}); err == nil {
		db.Close()
		t.Error("a damaged database is open")
	}
}

// TestAfter: the end of all keys with a prefix lies before the next key, also if the prefix ends in the largest byte.
func TestAfter(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "ab": "ac", "a\xff": "b", "a\xff\xff": "b", "\x01\xfe": "\x01\xff"} {
		if got := string(after([]byte(prefix))); got != want {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

// TestListsOfKeysEndEarly: a reader may stop at any name, and the list is complete otherwise.
func TestListsOfKeysEndEarly(t *testing.T) {
	v := openValues(t, vfs.NewMem())
	for _, key := range []string{"a", "a\xff", "b", "c"} {
		v.must(t, v.Set(t.Context(), "service", "k\xff", key, "text"))
	}
	v.must(t, v.Set(t.Context(), "service", "l", "z", "text"))
	for most, want := range []string{"", "a", "a a\xff", "a a\xff b", "a a\xff b c", "a a\xff b c"} {
		var got []string
		for key, err := range v.Keys(t.Context(), "service", "k\xff", "") {
			v.must(t, err)
			if len(got) == most {
				break
			}
			got = append(got, key)
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("the first %d: %q, want %q", most, all, want)
		}
	}
	var services []string
	for key, err := range v.ServiceKeys(t.Context(), "service") {
		v.must(t, err)
		services = append(services, key)
	}
	if got := strings.Join(services, " "); got != "k\xff l" {
		t.Errorf("%q", got)
	}
}
