package rollup

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/diskfs/crashfs"
	"varve/internal/safefile"
)

// emptyNotes gives the node a new data directory.
func emptyNotes(t *testing.T, h *harness) *crashfs.FS {
	t.Helper()
	fs := crashfs.New()
	if err := errors.Join(fs.MkdirAll("data", 0o755), safefile.SyncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.notes = fs
	h.restart(nil)
	h.start()
	return fs
}

// A node that starts in an outage with an empty data directory does not know the tasks.
// It records late points all the same, and their buckets are computed when the store is
// back, whatever happens to the node in between.
func TestLatePointsBeforeTheTasksAreKnown(t *testing.T) {
	for _, crashes := range []int{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			h, o, _ := outageHarness(t)
			h.send("src", "a", 1, at(0, 59, 0))
			o.away.Store(true)
			fs := emptyNotes(t, h)
			h.send("src", "a", 5, at(-48, 0, 1))
			h.send("other", "a", 5, at(-72, 0, 1)) // which no task reads
			for range crashes {
				fs = h.crash(fs)
			}
			h.send("src", "a", 7, at(-24, 0, 1))
			time.Sleep(time.Hour)
			o.away.Store(false)
			time.Sleep(2 * time.Hour)
			got := h.points("dst")
			for _, want := range []string{"1999-12-30T00:00 5", "1999-12-31T00:00 7"} {
				if !strings.Contains(got, want) {
					t.Errorf("%d crashes: there is no %q in\n%s", crashes, want, got)
				}
			}
			l := h.scheduler.late
			if n := l.Count("", ""); n != 0 || l.Series() != 1 {
				t.Errorf("%d crashes: %d stretches are left, and %d series are watched", crashes, n, l.Series())
			}
			if names, err := fs.List("data/rollups"); err != nil || len(names) != 1 || names[0] == "unread" {
				t.Errorf("%d crashes: files %v, %v", crashes, names, err)
			}
			h.stop()
		})
	}
}

// A node that knows some tasks also records for others, which were made while it was
// down; for known tasks nothing is recorded twice.
func TestLatePointsOfATaskThatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o, fs := outageHarness(t)
		h.stop()
		text := strings.NewReplacer("src", "src2", "dst", "dst2").Replace(taskJSON("u", hour, minute, ""))
		if err := h.store.Set(t.Context(), service, configKey, "u", text); err != nil {
			t.Fatal(err)
		}
		o.away.Store(true)
		h.crash(fs)
		h.send("src", "a", 5, at(-48, 0, 1))
		h.send("src2", "a", 6, at(-48, 0, 1))
		o.away.Store(false)
		h.scheduler.Load(t.Context())
		for _, id := range []string{"t", "u"} {
			if n := h.scheduler.late.Count(id, firstKey(h, id)); n != 1 {
				t.Errorf("task %s: %d stretches", id, n)
			}
		}
		time.Sleep(3 * time.Hour)
		if got := h.points("dst2"); !strings.Contains(got, "1999-12-30T00:00 6") {
			t.Errorf("of the task that is new:\n%s", got)
		}
		h.stop()
	})
}
