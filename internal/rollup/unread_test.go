package rollup

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/safefile"
)

// emptyNotes gives the node a new data directory.
func emptyNotes(t *testing.T, h *harness) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewCrashableMem()
	if err := errors.Join(fs.MkdirAll("data", 0o755), safefile.SyncDir(fs, "")); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.notes = fs
	h.restart(nil)
	h.start()
	return fs
}

// A node that is started in an outage with an empty data directory does not know what
// tasks there are. It notes late points all the same, and their buckets are computed
// when the store is back, whatever becomes of the node in between.
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
			if n := l.count("", ""); n != 0 || l.unread != nil || l.settling != nil {
				t.Errorf("%d crashes: %d stretches are left, %v, %v", crashes, n, l.unread, l.settling)
			}
			if l.sources["other"] != nil || len(l.refs) != 1 {
				t.Errorf("%d crashes: %d series are watched, of %d metrics", crashes, len(l.refs), len(l.sources))
			}
			if names, err := fs.List("data/rollups"); err != nil || len(names) != 1 || names[0] == unreadName {
				t.Errorf("%d crashes: files %v, %v", crashes, names, err)
			}
			h.stop()
		})
	}
}

// A node that knows some tasks notes for others too, which were made while it was down;
// what it knows is noted once.
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
			if n := h.scheduler.late.count(id, firstKey(h, id)); n != 1 {
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

// Notes without a task are bounded, at all times, and lose no time of any metric.
func TestUnreadIsBounded(t *testing.T) {
	u := &unread{spans: map[string]spans{}}
	const metrics, hours = 2 * unreadMetrics, 3 * unreadSpans
	for m := range metrics {
		for n := range hours {
			u.add(fmt.Sprint(m), unreadSpan(int64(2*n)*unreadGrainMS+1))
		}
	}
	if len(u.spans) > unreadMetrics+1 {
		t.Errorf("%d metrics", len(u.spans))
	}
	for m := range metrics {
		all := u.of(fmt.Sprint(m))
		for n := range hours {
			if left := (spans{unreadSpan(int64(2*n) * unreadGrainMS)}).without(all[0]); len(all) == 1 && len(left) > 0 {
				t.Fatalf("metric %d: hour %d is not noted in %v", m, 2*n, all)
			}
		}
		if len(all) > 2*unreadSpans {
			t.Errorf("metric %d: %d stretches", m, len(all))
		}
	}
	for _, ms := range []int64{math.MinInt64, -1, 0, math.MaxInt64 - 1} {
		if s := unreadSpan(ms); ms > math.MinInt64 && s.fromMS > ms || s.untilMS <= ms || s.untilMS-s.fromMS > unreadGrainMS {
			t.Errorf("the hour of %d is %v", ms, s)
		}
	}
}
