package local

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
	"varve/internal/timeline"
)

// A follower is a test's reader of timeline "t".
type follower struct {
	t     *testing.T
	after []byte
}

func (f *follower) read(s *Shelf) (ids []string, err error) {
	a, err := s.Arrivals(f.t.Context(), "t", f.after, timeline.Limit{Entries: 100, Bytes: 1 << 20})
	if err != nil {
		return nil, err
	}
	f.after = a.Next
	for _, e := range a.Entries {
		ids = append(ids, e.ID)
	}
	return ids, nil
}

func putIDs(t *testing.T, s *Shelf, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := s.Put(t.Context(), []timeline.Placed{{Part: timeline.Part{Timeline: "t"}, Entry: timeline.Entry{Event: timeline.Event{Time: 1, ID: id}}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowARestoredBackup: after a backup was restored, a cursor that was made since the backup
// is refused, or continues without a gap, however often the store was opened on either side.
// Cursors from before the backup continue.
func TestFollowARestoredBackup(t *testing.T) {
	for _, lost := range []int{0, 1, 2} { // restarts after the backup
		for _, since := range []int{0, 1, 2, 3} { // restarts after the restore
			t.Run(fmt.Sprint(lost, " lost ", since, " since"), func(t *testing.T) {
				fs := vfs.NewMem()
				s := open(t, fs, Options{})
				if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
					t.Fatal(err)
				}
				early, late := &follower{t: t}, &follower{t: t}
				if _, err := early.read(s); err != nil {
					t.Fatal(err)
				}
				putIDs(t, s, "in the backup")
				if err := s.CopyTo("backup"); err != nil {
					t.Fatal(err)
				}
				for range lost {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, fs, Options{})
				}
				if _, err := late.read(s); err != nil {
					t.Fatal(err)
				}
				putIDs(t, s, "lost 1", "lost 2")
				if ids, err := late.read(s); err != nil || len(ids) != 2 {
					t.Fatal(ids, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}

				restored := func() *Shelf {
					s, err := Open(fs, "backup", Options{})
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s = restored()
				var arrived []string
				for i := range since + 1 {
					if i > 0 {
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
						s = restored()
					}
					ids := []string{fmt.Sprint("new ", i), fmt.Sprint("newer ", i)}
					putIDs(t, s, ids...)
					arrived = append(arrived, ids...)
				}
				ids, err := late.read(s)
				if !errors.As(err, new(*store.InputError)) && (err != nil || !slices.Equal(ids, arrived)) {
					t.Errorf("a cursor that was made since the backup: %q, %v; want %q", ids, err, arrived)
				}
				ids, err = early.read(s)
				if want := append([]string{"in the backup"}, arrived...); err != nil || !slices.Equal(ids, want) {
					t.Errorf("a cursor from before the backup: %q, %v; want %q", ids, err, want)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestCursorsOfOtherStores: a cursor of another store, for example of another tenant, is refused,
// although both were opened as often.
func TestCursorsOfOtherStores(t *testing.T) {
	one, other := open(t, vfs.NewMem(), Options{}), open(t, vfs.NewMem(), Options{})
	for _, s := range []*Shelf{one, other} {
		if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
			t.Fatal(err)
		}
		putIDs(t, s, "a", "b")
	}
	f := &follower{t: t}
	if _, err := f.read(one); err != nil {
		t.Fatal(err)
	}
	whole := f.after
	if _, err := f.read(other); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a cursor of another store: %v", err)
	}
	for n := range len(whole) {
		f.after = whole[:n:n]
		if _, err := f.read(one); !errors.As(err, new(*store.InputError)) {
			t.Errorf("%d bytes of a cursor: %v", n, err)
		}
	}
	f.after = one.cursor(place{one.durable.Load() + 1, 0})
	if _, err := f.read(one); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a cursor behind all that is durable: %v", err)
	}
	f.after = append(slices.Clone(whole), 0)
	if _, err := f.read(one); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a cursor with a byte too many: %v", err)
	}
	for _, s := range []*Shelf{one, other} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldCursors: a cursor that an older build made, which had no ids of openings, continues.
func TestOldCursors(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, fs, Options{})
	if err := s.SetHistory(t.Context(), "t", 0, timeline.History{Version: 1}); err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t}
	if _, err := f.read(s); err != nil {
		t.Fatal(err)
	}
	f.after = f.after[:placeBytes:placeBytes]
	putIDs(t, s, "a")
	if _, err := (&follower{t, f.after}).read(s); !errors.As(err, new(*store.InputError)) {
		t.Errorf("a cursor without an id of an opening that has one: %v", err)
	}
	if err := errors.Join(s.db.Delete(metaKey(openingName(1)), nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs, Options{})
	putIDs(t, s, "b")
	for _, want := range [][]string{{"a", "b"}, nil} {
		if ids, err := f.read(s); err != nil || !slices.Equal(ids, want) {
			t.Errorf("arrived %q, %v, want %q", ids, err, want)
		}
	}
	if len(f.after) != cursorBytes {
		t.Errorf("the cursor has %d bytes, want %d", len(f.after), cursorBytes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
