package rollup

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"varve/internal/store"
	"varve/internal/store/reference"
)

// A watched store reports each read of a task's assignment.
type watched struct {
	store.KeyValues
	look func()
}

func (w *watched) Get(ctx context.Context, of, key, name string) (store.Value, error) {
	if of == service && key == assignmentKey {
		w.look()
	}
	return w.KeyValues.Get(ctx, of, key, name)
}

// A node that was suspended while another one claimed its task does not own it when it
// resumes, not even before it has read the assignment.
func TestNodeThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		one := func(name string) *assignments {
			return &assignments{values: s, node: name, host: name, now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
		}
		a, b := one("varve-a"), one("varve-b")
		beat := func(x *assignments) {
			t.Helper()
			if err := x.beat(t.Context(), []string{"t"}); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			beat(a)
			time.Sleep(beatEvery)
		}
		if !a.owns("t") {
			t.Fatal("a node that is alone does not run the task")
		}
		for range 12 { // a stands still
			beat(b)
			time.Sleep(beatEvery)
		}
		if a.owns("t") || !b.owns("t") {
			t.Fatalf("after two minutes: run by a: %v, by b: %v", a.owns("t"), b.owns("t"))
		}
		looks := 0
		a.values = &watched{s, func() {
			looks++
			if a.owns("t") {
				t.Error("it owns the task before it has looked who runs it")
			}
		}}
		beat(a)
		if looks == 0 || a.owns("t") {
			t.Errorf("after %d looks: run by a: %v", looks, a.owns("t"))
		}
	})
}

// A skewed store has the entry of a node with the time of that node's clock.
type skewed struct {
	store.KeyValues
	node  string
	ahead time.Duration
}

func (s *skewed) Get(ctx context.Context, of, key, name string) (store.Value, error) {
	v, err := s.KeyValues.Get(ctx, of, key, name)
	if name == s.node {
		v.Modified = v.Modified.Add(s.ahead)
	}
	return v, err
}

// A node whose clock is hours ahead keeps its tasks while it renews its entry. When it
// is gone, they are taken over as soon as those of any other node.
func TestNodeAheadThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &skewed{reference.New(nil), "varve-a", 3 * time.Hour}
		one := func(name string) *assignments {
			return &assignments{values: s, node: name, host: name, now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
		}
		a, b := one("varve-a"), one("varve-b")
		beat := func(x *assignments) {
			t.Helper()
			if err := x.beat(t.Context(), []string{"t"}); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			beat(a)
			time.Sleep(beatEvery)
		}
		for range 30 {
			beat(a)
			beat(b)
			time.Sleep(beatEvery)
			if !a.owns("t") || b.owns("t") {
				t.Fatalf("while both are there: run by a: %v, by b: %v", a.owns("t"), b.owns("t"))
			}
		}
		for range 12 {
			beat(b)
			time.Sleep(beatEvery)
		}
		if !b.owns("t") {
			t.Error("two minutes after it was gone nobody runs its task")
		}
	})
}

// A node that was suspended and still finds its guid at the task continues at once.
func TestNodeThatNobodyMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		a := &assignments{values: s, node: "varve-a", host: "a", now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
		for range 5 {
			if err := a.beat(t.Context(), []string{"t"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(beatEvery)
		}
		time.Sleep(10 * time.Minute)
		if err := a.beat(t.Context(), []string{"t"}); err != nil {
			t.Fatal(err)
		}
		if !a.owns("t") {
			t.Error("it does not run the task")
		}
	})
}

// What a node has read before it was suspended does not overwrite what another one has
// computed since, and the status stays that of the other one.
func TestResultsAfterAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		runs := newRunBook()
		all := nodes(t, runs, s, nil, "a")
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(5 * time.Minute)
		scheduler := all[0].scheduler
		task, _ := all[0].scheduled("t")
		all[0].stop()
		before, err := s.Get(t.Context(), service, statusKey, "t")
		if err != nil {
			t.Fatal(err)
		}
		all[0].send("src", "a", 5, at(0, 3, 0))
		run := func() error {
			return scheduler.run(t.Context(), task, func() bool { return true }, func(bool) time.Time { return time.Now() })
		}
		scheduler.shared.beatAt = time.Now().Add(-beatLife)
		if err := run(); !errors.Is(err, errElsewhere) {
			t.Errorf("it ran: %v", err)
		}
		all[0].wantPoints("dst", "")
		if after, err := s.Get(t.Context(), service, statusKey, "t"); err != nil || after.Text != before.Text {
			t.Errorf("the status was %s, now it is %s, %v", before.Text, after.Text, err)
		}
		scheduler.shared.beatAt = time.Now()
		if err := run(); err != nil {
			t.Error(err)
		}
		all[0].wantPoints("dst", `
{host=a,saved_from=src} 2000-01-01T00:03 5`)
	})
}
