package rollup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/downsample"
	"varve/internal/ingest"
	"varve/internal/kairos"
	"varve/internal/kairos/agg"
	"varve/internal/query"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A node is a scheduler that shares a store with others. Its store can be cut off, and
// records which node writes a status.
type node struct {
	*harness
	link *link
}

// A link is the access of one node to the store's key-values.
type link struct {
	Store
	runs *runBook
	name string

	mu     sync.Mutex
	cut    bool
	random *rand.Rand // how long each call takes; nil: no time
}

// A runBook records which nodes run tasks.
type runBook struct {
	mu   sync.Mutex
	runs map[string][]run // by task
}

type run struct {
	node string
	at   time.Time
}

var errCut = errors.New("the link is cut")

// pass waits for the time of a call, and returns why the call fails, nil if it
// succeeds.
func (l *link) pass(ctx context.Context) error {
	l.mu.Lock()
	var pause time.Duration
	if l.random != nil {
		pause = time.Duration(l.random.IntN(700)*l.random.IntN(700)) * time.Millisecond / 200 // up to 2.5 s
	}
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return errCut
	}
	select {
	case <-time.After(pause):
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) Get(ctx context.Context, service, key, name string) (store.Value, error) {
	if err := l.pass(ctx); err != nil {
		return store.Value{}, err
	}
	return l.Store.Get(ctx, service, key, name)
}

func (l *link) Set(ctx context.Context, of, key, name, text string) error {
	if err := l.pass(ctx); err != nil {
		return err
	}
	if of == service && key == statusKey {
		l.runs.mu.Lock()
		l.runs.runs[name] = append(l.runs.runs[name], run{l.name, time.Now()})
		l.runs.mu.Unlock()
	}
	return l.Store.Set(ctx, of, key, name, text)
}

func (l *link) Unset(ctx context.Context, service, key, name string) error {
	if err := l.pass(ctx); err != nil {
		return err
	}
	return l.Store.Unset(ctx, service, key, name)
}

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

// nodes starts schedulers on one store.
func nodes(t *testing.T, runs *runBook, s *reference.Store, change func(*Config), names ...string) (all []*node) {
	return slowNodes(t, runs, s, nil, change, names...)
}

// slowNodes are nodes for which every access to a key-value takes time, drawn from
// random.
func slowNodes(t *testing.T, runs *runBook, s *reference.Store, random *rand.Rand, change func(*Config), names ...string) (all []*node) {
	for _, name := range names {
		c := DefaultConfig()
		if change != nil {
			change(&c)
		}
		l := &link{Store: s, runs: runs, name: name}
		if random != nil {
			l.random = rand.New(rand.NewPCG(random.Uint64(), 0))
		}
		registry := prometheus.NewRegistry()
		h := &harness{T: t, store: s}
		engine := agg.New(query.New(s, query.DefaultConfig(), registry, time.Now), nil)
		h.pipeline = ingest.New(s, ingest.DefaultConfig(), ingest.Options{Registerer: registry})
		h.scheduler = New(Options{
			Store: l, Engine: engine, Pipeline: h.pipeline, Parser: kairos.New(s, engine, kairos.DefaultConfig(), "test", time.Now),
			Config: c, Registerer: registry, Host: "host-" + name, Node: name,
			Flush:  func(ctx context.Context, _ ...string) error { return l.pass(ctx) },
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		h.mux = newMux(h.scheduler)
		h.start()
		all = append(all, &node{h, l})
	}
	return all
}

func newRunBook() *runBook { return &runBook{runs: map[string][]run{}} }

// who returns the nodes that run a task during the next d, one entry per run.
func (b *runBook) who(id string, d time.Duration) []string {
	from := time.Now()
	time.Sleep(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	var who []string
	for _, r := range b.runs[id] {
		if r.at.After(from) {
			who = append(who, r.node)
		}
	}
	return who
}

// once fails if two nodes ran a task within less than a minute, its interval.
func (b *runBook) once(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, runs := range b.runs {
		for i := 1; i < len(runs); i++ {
			if runs[i].node != runs[i-1].node && runs[i].at.Sub(runs[i-1].at) < 20*time.Second {
				t.Errorf("task %s was run by %v and %v", id, runs[i-1], runs[i])
			}
		}
	}
}

func stopAll(all []*node) {
	for _, n := range all {
		if n.stop != nil {
			n.stop()
		}
	}
}

// Each task runs on one of three nodes, all tasks run, and another node takes over when
// one stops, dies or is cut off.
func TestNodesShareTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		runs := newRunBook()
		all := nodes(t, runs, s, nil, "a", "b", "c")
		defer stopAll(all)
		time.Sleep(time.Second)
		const tasks = 12
		for i := range tasks {
			all[i%3].do(200, "POST", "/api/v1/rollups", taskJSON(fmt.Sprint("t", i), minute, minute, ""))
		}
		time.Sleep(2 * time.Minute)
		check := func(what string, running ...string) {
			t.Helper()
			for i := range tasks {
				id := fmt.Sprint("t", i)
				who := runs.who(id, 5*time.Minute)
				if len(who) < 4 || len(who) > 6 {
					t.Errorf("%s: task %s was run %d times in five minutes, by %v", what, id, len(who), who)
				}
				for _, name := range who {
					if name != who[0] || !slices.Contains(running, name) {
						t.Errorf("%s: task %s was run by %v, want one of %v", what, id, who, running)
					}
				}
			}
			runs.once(t)
		}
		check("three nodes", "a", "b", "c")
		all[0].stop()
		time.Sleep(3 * time.Minute)
		check("a has stopped", "b", "c")
		all[1].link.setCut(true)
		time.Sleep(3 * time.Minute)
		check("b is cut off", "c")
		all[1].link.setCut(false)
		all[2].link.setCut(true)
		time.Sleep(3 * time.Minute)
		check("c is cut off, b is back", "b")
	})
}

// Nodes that start at the same moment on unassigned tasks, repeatedly, with links that
// come and go, never run a task twice.
func TestNodesAtOnce(t *testing.T) {
	for round := range 10 {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(round), 0))
			s := reference.New(nil)
			for i := range 5 {
				id := fmt.Sprint("t", i)
				if err := s.Set(t.Context(), service, configKey, id, taskJSON(id, minute, minute, "")); err != nil {
					t.Fatal(err)
				}
			}
			runs := newRunBook()
			all := slowNodes(t, runs, s, random, nil, "a", "b", "c", "d")
			defer stopAll(all)
			for range 40 {
				time.Sleep(time.Duration(random.IntN(90_000)) * time.Millisecond)
				all[random.IntN(len(all))].link.setCut(random.IntN(2) == 0)
			}
			for _, n := range all {
				n.link.mu.Lock()
				n.link.cut, n.link.random = false, nil
				n.link.mu.Unlock()
			}
			time.Sleep(3 * time.Minute)
			for i := range 5 {
				if who := runs.who(fmt.Sprint("t", i), 5*time.Minute); len(who) < 4 || who[0] != who[len(who)-1] {
					t.Errorf("t%d was run by %v", i, who)
				}
			}
			runs.once(t)
		})
	}
}

// If two nodes claim a task at the same moment, neither runs it before it is known
// which has won, and the loser never does.
func TestClaimAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		one := func(name string) *assignments {
			return &assignments{values: s, node: name, host: name, now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
		}
		a, b := one("varve-a"), one("varve-b")
		alone := func(a *assignments) members { return members{varve: map[string]bool{a.node: true}} }
		beat := func(a *assignments) {
			t.Helper()
			if err := a.beat(t.Context(), []string{"t"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, x := range []*assignments{a, b} { // neither has seen the other
			x.beatAt = time.Now()
			if err := s.Unset(t.Context(), service, assignmentKey, "t"); err != nil {
				t.Fatal(err)
			}
			if err := x.review(t.Context(), "t", alone(x)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		for range 6 {
			if both := a.owns("t") && b.owns("t"); both || time.Since(began) < claimPause && (a.owns("t") || b.owns("t")) {
				t.Fatalf("after %v: run by a: %v, by b: %v", time.Since(began), a.owns("t"), b.owns("t"))
			}
			beat(a)
			beat(b)
			time.Sleep(beatEvery)
		}
		if a.owns("t") == b.owns("t") {
			t.Errorf("run by a: %v, by b: %v", a.owns("t"), b.owns("t"))
		}
		time.Sleep(beatLife)
		if a.owns("t") || b.owns("t") {
			t.Error("a node whose entry is old runs tasks")
		}
	})
}

// While a KairosDB node is listed, tasks do not run, or run where it assigns them.
func TestBesideKairosDB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, participate := range []bool{false, true} {
			s := reference.New(nil)
			runs := newRunBook()
			all := nodes(t, runs, s, func(c *Config) { c.Participate = participate }, "a", "b")
			time.Sleep(time.Second)
			all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
			if who := runs.who("t", 5*time.Minute); len(who) < 4 {
				t.Errorf("before KairosDB came the task was run by %v", who)
			}
			if _, err := s.Get(t.Context(), hostsService, activeKey, "varve-a"); (err == nil) != participate {
				t.Errorf("participate %v: among KairosDB's hosts: %v", participate, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { // a KairosDB node
				defer close(ended)
				for ctx.Err() == nil {
					s.Set(ctx, hostsService, activeKey, "5f0c", "kairos-1")
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Second):
					}
				}
			}()
			time.Sleep(time.Second)
			if err := s.Set(t.Context(), service, assignmentKey, "t", "5f0c"); err != nil {
				t.Fatal(err)
			}
			if who := runs.who("t", 5*time.Minute); len(who) != 0 {
				t.Errorf("participate %v: assigned to KairosDB, and run by %v", participate, who)
			}
			if err := s.Set(t.Context(), service, assignmentKey, "t", "varve-b"); err != nil {
				t.Fatal(err)
			}
			who := runs.who("t", 5*time.Minute)
			switch {
			case !participate && len(who) != 0:
				t.Errorf("run by %v beside KairosDB", who)
			case participate && (len(who) < 3 || strings.Trim(strings.Join(who, ""), "b") != ""):
				t.Errorf("assigned to b, and run by %v", who)
			}
			if err := s.Set(t.Context(), service, assignmentKey, "t", "5f0c"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			cancel()
			<-ended
			time.Sleep(2 * time.Minute)
			if who := runs.who("t", 5*time.Minute); len(who) < 4 {
				t.Errorf("after KairosDB went the task was run by %v", who)
			}
			runs.once(t)
			stopAll(all)
		}
	})
}

// Late points that arrive at a node which does not run the task are in the results,
// even if that node restarts in between.
func TestLatePointsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		runs := newRunBook()
		all := nodes(t, runs, s, nil, "a", "b")
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(3 * time.Hour)
		all[1].send("src", "a", 5, at(-48, 0, 1), at(0, 10, 0), at(0, 10, 59))
		all[0].send("src", "a", 5, at(-24, 0, 1))
		time.Sleep(3 * time.Minute)
		all[0].wantPoints("dst", `
{host=a,saved_from=src} 1999-12-30T00:00 5
{host=a,saved_from=src} 1999-12-31T00:00 5
{host=a,saved_from=src} 2000-01-01T00:10 10`)
		all[1].send("src", "a", 7, at(0, 20, 0))
		all[1].stop()
		all = append(all, nodes(t, runs, s, nil, "b")...)
		time.Sleep(3 * time.Minute)
		all[0].wantPoints("dst", `
{host=a,saved_from=src} 1999-12-30T00:00 5
{host=a,saved_from=src} 1999-12-31T00:00 5
{host=a,saved_from=src} 2000-01-01T00:10 10
{host=a,saved_from=src} 2000-01-01T00:20 7`)
		for who := range slices.Values(runs.who("t", 5*time.Minute)) {
			if who != "a" {
				t.Errorf("run by %s", who)
			}
		}
		for _, key := range []string{lateKey, handedKey} {
			for name := range s.Keys(t.Context(), service, key, "") {
				t.Errorf("%s is left under %s", name, key)
			}
		}
		all[0].do(204, "DELETE", "/api/v1/rollups/t", "")
		stopAll(all)
	})
}

// TestLatePointsOfADeadNode: the notes of a node that never comes back are adopted, and
// those of a running node are not.
func TestLatePointsOfADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reference.New(nil)
		runs := newRunBook()
		all := nodes(t, runs, s, nil, "a", "b", "c")
		time.Sleep(time.Second)
		all[0].do(200, "POST", "/api/v1/rollups", taskJSON("t", minute, minute, ""))
		time.Sleep(3 * time.Hour)
		who := slices.Compact(runs.who("t", 3*time.Minute))
		if len(who) != 1 {
			t.Fatalf("the task runs on %q", who)
		}
		var others []*node
		for _, n := range all {
			if n.link.name != who[0] {
				others = append(others, n)
			}
		}
		dead, cut := others[0], others[1]
		for i, n := range []*node{dead, cut} {
			n.link.setCut(true) // it does not hand over
			n.stop()
			w := newLateNotes(s, n.pipeline, nodePrefix+n.link.name, DefaultConfig(), time.Now)
			key := "t/" + nodePrefix + n.link.name
			span := downsample.Span{FromMS: at(-24*(i+1), 0, 0), UntilMS: at(-24*(i+1), 1, 0)}
			if err := w.catalogue.setJSON(t.Context(), lateKey, key, map[string]downsample.Spans{firstKey(all[0].harness, "t"): {span}}); err != nil {
				t.Fatal(err)
			}
			all[0].put("src", "a", 5, at(-24*(i+1), 0, 1))
		}
		live := nodePrefix + "live" // the node is running, and has notes that it could not hand over
		if err := s.Set(t.Context(), service, lateKey, "t/"+live, "{}"); err != nil {
			t.Fatal(err)
		}
		pass := func(d time.Duration) {
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(nodeLife / 3) {
				if err := s.Set(t.Context(), nodesService, nodesKey, live, "host"); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass(abandonedAfter / 2)
		if err := s.Set(t.Context(), service, lateKey, "t/"+nodePrefix+cut.link.name, "{}"); err != nil { // the node still records notes
			t.Fatal(err)
		}
		if got := all[0].points("dst"); strings.Contains(got, "1999-12-31") {
			t.Errorf("notes were adopted at once: %s", got)
		}
		pass(abandonedAfter/2 + 3*time.Minute)
		if got := all[0].points("dst"); !strings.Contains(got, "{host=a,saved_from=src} 1999-12-31T00:00 5") {
			t.Errorf("the notes of a dead node were not adopted: %s", got)
		}
		var left []string
		for name := range s.Keys(t.Context(), service, lateKey, "") {
			left = append(left, name)
		}
		if !slices.Equal(left, []string{"t/" + nodePrefix + cut.link.name, "t/" + live}) {
			t.Errorf("%q are left", left)
		}
		stopAll(all)
	})
}

// All nodes choose the same node for a task, in whatever order they know each other.
// Tasks are spread over all nodes, and move only from a node that leaves.
func TestChoice(t *testing.T) {
	a := &assignments{}
	m := members{varve: map[string]bool{"a": true, "b": true, "c": true, "d": true}}
	less := members{varve: map[string]bool{"a": true, "b": true, "d": true}}
	per := map[string]int{}
	for i := range 1000 {
		id := fmt.Sprint("task", i)
		first := a.choice(id, m)
		per[first]++
		for range 10 {
			if got := a.choice(id, m); got != first {
				t.Fatalf("%s is for %s and for %s", id, first, got)
			}
		}
		if got := a.choice(id, less); first != "c" && got != first || got == "c" {
			t.Fatalf("without c, %s moves from %s to %s", id, first, got)
		}
	}
	for guid := range m.varve {
		if n := per[guid]; n < 180 || n > 320 {
			t.Errorf("%s has %d of 1000 tasks: %v", guid, n, per)
		}
	}
	if got := a.choice("task", members{}); got != "" {
		t.Errorf("without nodes a task is for %q", got)
	}
}

// TestChoiceStays: nodes of different versions choose the same node for a task.
func TestChoiceStays(t *testing.T) {
	a := &assignments{}
	m := members{varve: map[string]bool{"a": true, "b": true, "c": true, "d": true}}
	var chosen strings.Builder
	for i := range 24 {
		chosen.WriteString(a.choice(fmt.Sprint("task", i), m))
	}
	if got, want := chosen.String(), "bcadaadbbcbbbadaaacbddab"; got != want {
		t.Errorf("the tasks are for %s, want %s", got, want)
	}
}

// TestReleaseOfTasks: a node that stops leaves no task assigned to it. A KairosDB node that starts takes a
// task of a node that is gone only if there are more tasks than KairosDB nodes.
func TestReleaseOfTasks(t *testing.T) { synctest.Test(t, testReleaseOfTasks) }

func testReleaseOfTasks(t *testing.T) {
	s := reference.New(nil)
	defer s.Close()
	a := &assignments{values: s, node: "varve-a", host: "a", now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
	if err := a.beat(t.Context(), []string{"mine", "lost"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(t.Context(), service, assignmentKey, "lost", "varve-b"); err != nil { // and a does not know it yet
		t.Fatal(err)
	}
	a.resign()
	for id, want := range map[string]string{"mine": "", "lost": "varve-b"} {
		if got, err := a.assigned(t.Context(), id); err != nil || got != want {
			t.Errorf("task %s is assigned to %q, %v; want %q", id, got, err, want)
		}
	}
}

// TestReleaseToKairosDB: a node that finds a KairosDB node beside it leaves its tasks to it, and those of Varve
// nodes that are gone. A KairosDB node that starts takes a task of another host only if there are more tasks
// than KairosDB nodes.
func TestReleaseToKairosDB(t *testing.T) { synctest.Test(t, testReleaseToKairosDB) }

func testReleaseToKairosDB(t *testing.T) {
	s := reference.New(nil)
	defer s.Close()
	ids := []string{"mine", "other", "gone", "theirs"}
	for _, participate := range []bool{true, false} {
		a := &assignments{values: s, node: "varve-a", host: "a", participate: participate, now: time.Now, log: slog.New(slog.DiscardHandler), since: map[string]time.Time{}}
		for _, n := range [][3]string{{hostsService, activeKey, "5f0c"}, {nodesService, nodesKey, "varve-b"}} {
			if err := s.Set(t.Context(), n[0], n[1], n[2], "host"); err != nil {
				t.Fatal(err)
			}
		}
		for id, guid := range map[string]string{"mine": "varve-a", "other": "varve-b", "gone": "varve-c", "theirs": "5f0c"} {
			if err := s.Set(t.Context(), service, assignmentKey, id, guid); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.beat(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"mine": "varve-a", "other": "varve-b", "gone": "varve-c", "theirs": "5f0c"}
		if !participate {
			want["mine"], want["gone"] = "", ""
		}
		for _, id := range ids {
			if got, err := a.assigned(t.Context(), id); err != nil || got != want[id] {
				t.Errorf("participation %t: task %s is assigned to %q, %v; want %q", participate, id, got, err, want[id])
			}
		}
	}
}
