package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// copied returns a copy of testdata/older, which an older version wrote, with events as
// key-values.
func copied(t *testing.T) (dir string) {
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS("testdata/older/data")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lines prints all events.
func lines(t *testing.T, l *Log) string {
	var out bytes.Buffer
	for _, e := range all(t, l, Search{Until: endExcl - 1}) {
		e.Tags = append([]string{}, e.Tags...)
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(text, '\n'))
	}
	return out.String()
}

func wantOlder(t *testing.T) string {
	want, err := os.ReadFile("testdata/older/events.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(want)
}

// left lists the key-values of events that are not moved yet.
func left(t *testing.T, l *Log) (all []string) {
	days, err := l.keys(t.Context(), daysKey)
	if err != nil || len(days) == 0 {
		t.Fatal(days, err)
	}
	for _, day := range days {
		keys, err := l.keys(t.Context(), day)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, keys...)
	}
	return all
}

// TestOlder: the events of an older version keep their ids, also after a restart, and new ones
// follow them.
func TestOlder(t *testing.T) {
	dir, want := copied(t), wantOlder(t)
	for range 2 {
		s := openEmbedded(t, vfs.Default, dir)
		l := s.newLog(t, 1000)
		if got := lines(t, l); got != want {
			t.Errorf("there are\n%swant\n%s", got, want)
		}
		if keys := left(t, l); len(keys) > 0 {
			t.Errorf("not moved: %q", keys)
		}
		s.close()
	}
	l := openEmbedded(t, vfs.Default, dir).newLog(t, 1000)
	if err := l.Add(t.Context(), Event{When: 1710071700, What: "new", Tags: []string{"gone"}}); err != nil {
		t.Fatal(err)
	}
	// Event 0 of the second has numbers 0 to 2.
	if e, err := l.ByID(t.Context(), 1710071700<<numberBits|3); err != nil || e.What != "new" {
		t.Errorf("%+v, %v", e, err)
	}
	if got := found(t, l, Search{Until: endExcl, Tags: []string{"gone", "deploy"}}); got != "" {
		t.Errorf("an event with both tags: %q", got) // the tag of a deleted event is known
	}
}

// TestOlderTwice: a server is stopped after it has copied an event and before it removes the
// key-value, and a server of an older version adds events.
func TestOlderTwice(t *testing.T) {
	want := wantOlder(t)
	s := openEmbedded(t, vfs.Default, copied(t))
	values := s.values
	s.values = &failing{KeyValues: values}
	if err := s.newLog(t, 1000).Find(t.Context(), Search{}, nil); !errors.Is(err, errUnset) {
		t.Errorf("a look that fails: %v", err)
	}
	s.values = values
	l := s.newLog(t, 1000)
	if keys := left(t, l); len(keys) == 0 {
		t.Error("all was moved, though no key could be removed")
	}
	if got := lines(t, l); got != want {
		t.Errorf("there are\n%swant\n%s", got, want)
	}
	const day, key = "2024-03-10", "1710071702.000000.00000001 a b"
	if err := values.Set(t.Context(), service, day, key, `{"what":"late","data":"of late"}`); err != nil {
		t.Fatal(err)
	}
	later := Search{From: 1710071702, Until: 1710071702}
	if got := found(t, l, later); got != "" {
		t.Errorf("looked again at once: %q", got)
	}
	l.looked.Store(l.looked.Load() - int64(lookAgain.Seconds()))
	if got := all(t, l, later); len(got) != 1 || got[0].What != "late" || !slices.Equal(got[0].Tags, []string{"a", "b"}) || got[0].ID != 1710071702<<numberBits {
		t.Errorf("after an hour: %+v", got)
	}
	l.looked.Store(time.Now().Add(24 * time.Hour).Unix())
	if l.lookedLately() {
		t.Error("a clock that was set back by a day keeps the server from looking for that day")
	}
}

// TestOlderSettled: days whose events were moved are checked for some time, and then no more.
func TestOlderSettled(t *testing.T) {
	s := openEmbedded(t, vfs.Default, copied(t))
	l := s.newLog(t, 1000)
	l.settledAfter = time.Hour
	entered := func() []string {
		t.Helper()
		days, err := l.keys(t.Context(), daysKey)
		if err != nil {
			t.Fatal(err)
		}
		return days
	}
	again := func() {
		t.Helper()
		l.looked.Store(0)
		if got, want := lines(t, l), wantOlder(t); got != want {
			t.Errorf("there are\n%swant\n%s", got, want)
		}
	}
	before := entered()
	again()
	again()
	if days := entered(); len(days) == 0 || !slices.Equal(days, before) {
		t.Errorf("entered %q directly after the move, %q before", days, before)
	}
	l.settledAfter = 0
	const late, key = "2024-03-10", "1710071700.000009.00000001 a"
	if err := s.values.Set(t.Context(), service, late, key, "no JSON"); err != nil { // it cannot be moved
		t.Fatal(err)
	}
	again()
	if days := entered(); !slices.Equal(days, []string{late}) {
		t.Errorf("entered %q, want the day that has a key", days)
	}
	if err := s.values.Unset(t.Context(), service, late, key); err != nil {
		t.Fatal(err)
	}
	again()
	if days := entered(); len(days) > 0 {
		t.Errorf("entered %q", days)
	}
}

var errUnset = errors.New("cannot remove")

type failing struct{ store.KeyValues }

func (f *failing) Unset(context.Context, string, string, string) error { return errUnset }

// TestOlderDamaged: an event that cannot be parsed does not affect others.
func TestOlderDamaged(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	set := func(serviceKey, key, text string) {
		if err := s.values.Set(t.Context(), service, serviceKey, key, text); err != nil {
			t.Fatal(err)
		}
	}
	const day, sound = "1970-01-01", `{"what":"a","data":"of a"}`
	set(daysKey, day, "")
	bad := []string{"0000000001", "0000000001.00001.01234567", "000000000x.000001.01234567", "0000000001.00000x.01234567 a", "-000000001.000001.01234567", "0000000001.-00001.01234567", "0000000001.524288.01234567", "0000000002.000000.01234567"}
	for _, key := range bad[:len(bad)-1] {
		set(day, key, sound)
	}
	set(day, bad[len(bad)-1], "no JSON")
	set(day, "0000000001.000001.01234567 x", sound)
	l := s.newLog(t, 1000)
	if got := found(t, l, Search{Until: 9}); got != "a" {
		t.Errorf("found %q", got)
	}
	slices.Sort(bad)
	if keys := left(t, l); !slices.Equal(keys, bad) {
		t.Errorf("left: %s; want %s", strings.Join(keys, ", "), strings.Join(bad, ", "))
	}
}

func FuzzParseOlder(f *testing.F) {
	f.Add("1710071700.000001.9f86d081 deploy web", `{"what":"a","data":"b"}`)
	f.Add("0000000000.524287. ", `{"tags":["x"],"id":-1}`)
	f.Fuzz(func(t *testing.T, key, text string) {
		a, err := parseOlder(key, text)
		if err != nil {
			return
		}
		e, err := parseStored(&a.Event)
		if err != nil || timeOf(e.ID) != a.Time || a.ID == "" || len(a.ID) > 20 {
			t.Fatalf("%q %q is %+v, then %+v, %v", key, text, a, e, err)
		}
	})
}
