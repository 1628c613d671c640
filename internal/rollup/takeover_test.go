package rollup

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
	"varve/internal/store/reference"
)

// A task that a node takes over is due one interval after its last run, not after this node read
// it.
func TestTaskThatIsTakenOverIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := newRunBook()
		all := nodes(t, runs, reference.New(nil), nil, "a", "b")
		defer stopAll(all)
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		if who := runs.who("t", 90*time.Minute); len(who) != 1 || who[0] != "a" {
			t.Fatalf("run by %v", who)
		}
		all[0].stop()
		time.Sleep(2 * time.Minute)
		if !all[1].scheduler.shared.owns("t") {
			t.Fatal("nobody has taken the task over")
		}
		runs.mu.Lock()
		want := runs.runs["t"][0].at.Add(time.Hour)
		runs.mu.Unlock()
		if _, due := all[1].scheduled("t"); due.Sub(want).Abs() > time.Second {
			t.Errorf("the task is due at %s, want %s", due, want)
		}
	})
}

// A node hands late points over that it has recorded for the former text of a task, because it has
// not read yet that the task was changed. Their buckets are computed.
func TestHandoverOfChangedTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, newRunBook(), reference.New(nil), nil, "a", "b")
		defer stopAll(all)
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", hour, minute, ""))
		time.Sleep(3 * time.Hour)
		former, _ := all[1].scheduled("t")
		all[1].send("src", "a", 5, at(0, 30, 10))
		all[0].do(200, "PUT", "/api/v1/rollups/t", taskJSON("t", hour, minute, `,"ttl":300000000`))
		if err := all[1].scheduler.late.handOver(t.Context(), former, all[1].scheduler.flush); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		all[0].wantPoints("dst", "{host=a,saved_from=src} 2000-01-01T00:30 5")
	})
}

// A node claims a new task unless it knows of a KairosDB node, or is not listed itself any more.
func TestNewTaskIsNotAlwaysClaimed(t *testing.T) {
	for _, tc := range []struct {
		kairos string
		beat   time.Duration // ago
		want   bool
	}{{"", beatLife - 1, true}, {"", beatLife, false}, {"kairos-1", 0, false}, {"kairos-1", beatLife, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := reference.New(nil)
			a := &assignments{values: s, node: "varve-a", now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
			a.kairos, a.beatAt = tc.kairos, time.Now().Add(-tc.beat)
			if err := a.found(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			_, err := s.Get(t.Context(), service, assignmentKey, "t")
			if a.owns("t") != tc.want || (err == nil) != tc.want {
				t.Errorf("%+v: the task is owned: %t; its assignment: %v", tc, a.owns("t"), err)
			}
		})
	}
}

// An unlistable store cannot list keys.
type unlistable struct{ store.KeyValues }

func (unlistable) Keys(context.Context, string, string, string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { yield("", errBrittle) }
}

// A list that cannot be read is not an empty one.
func TestListsThatCannotBeRead(t *testing.T) {
	c := catalogue{unlistable{reference.New(nil)}}
	for name, list := range map[string]func() error{
		"tasks":     func() error { _, _, err := c.tasks(t.Context()); return err },
		"handed":    func() error { _, err := c.ofNodes(t.Context(), handedKey, "t"); return err },
		"to remove": func() error { return c.remove(t.Context(), "t") },
		"nodes": func() error {
			_, err := (&assignments{values: c.values}).members(t.Context())
			return err
		},
	} {
		if err := list(); !errors.Is(err, errBrittle) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
