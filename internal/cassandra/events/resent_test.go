package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
)

// apartIn proposes timelines whose data is stored separately.
func apartIn(t *testing.T, e *timeline.Engine, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := e.Propose(t.Context(), name, timeline.Proposal{Mode: timeline.Index}); err != nil {
			t.Fatal(err)
		}
	}
}

// payloadsOf counts the payloads that timelines refer to, and those that are stored and that
// none refers to.
func payloadsOf(t *testing.T, session *cql.Session, all map[timeline.PayloadKey]bool) (referred, stray int) {
	t.Helper()
	count := &cql.Statement{Name: "count", Text: "SELECT count(*) FROM timeline_payloads WHERE key = ? AND piece >= 0"}
	for key := range all {
		var name string
		var n int64
		found, err := session.One(t.Context(), readReference, []any{key[:]}, &name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.One(t.Context(), count, []any{key[:]}, &n); err != nil {
			t.Fatal(err)
		}
		switch {
		case found:
			referred++
		case n > 0:
			stray++
		}
	}
	return referred, stray
}

// A spying shelf notes the keys of what it is given.
type spying struct {
	timeline.Shelf
	mu   *sync.Mutex
	keys map[timeline.PayloadKey]bool
}

func (s *spying) Put(ctx context.Context, entries []timeline.Placed) error {
	s.mu.Lock()
	for i := range entries {
		if entries[i].Payload != nil {
			s.keys[entries[i].Pointer] = true
		}
	}
	s.mu.Unlock()
	return s.Shelf.Put(ctx, entries)
}

// Several servers send two data of an event in turn. The event always has its data.
func testResentToServers(t *testing.T, session *cql.Session) {
	keys := map[timeline.PayloadKey]bool{}
	var mu sync.Mutex
	var engines []*timeline.Engine
	for i := range 3 {
		engines = append(engines, openEngine(t, &spying{openShelf(t, session, Options{Node: fmt.Sprint("node", i)}), &mu, keys}, nil))
	}
	a, b := t.Name()+"/a", t.Name()+"/b"
	apartIn(t, engines[0], a, b)
	at := time.Now().Add(-time.Minute).UnixMicro()
	data := []string{strings.Repeat("one ", 200), strings.Repeat("two ", 200)}
	appendAll(t, engines[0], event(at, "e", data[0], a, b))
	look := func(e *timeline.Engine) {
		p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{a, b}})
		if err != nil || len(p.Events) != 2 || p.Events[0].Missing || p.Events[1].Missing {
			t.Errorf("%d events, %v: %+v", len(p.Events), err, p.Events)
		}
	}
	var writers sync.WaitGroup
	for w, e := range engines {
		writers.Go(func() {
			for i := range 40 {
				names := [][]string{{a, b}, {a}, {b}}[(i+w)%3]
				if r, err := e.Append(t.Context(), []timeline.Addressed{event(at, "e", data[(i+w)%2], names...)}); err != nil || r.Accepted != 1 {
					t.Error(r.Rejected, err)
				}
				look(e)
			}
		})
	}
	writers.Wait()
	look(engines[0])

	// Of data that is different each time, next to nothing stays.
	for w, e := range engines {
		writers.Go(func() {
			for i := range 40 {
				if r, err := e.Append(t.Context(), []timeline.Addressed{event(at, "e", fmt.Sprint(data[0], w, i), a)}); err != nil || r.Accepted != 1 {
					t.Error(r.Rejected, err)
				}
			}
		})
	}
	writers.Wait()
	look(engines[0])
	referred, stray := payloadsOf(t, session, keys)
	t.Logf("of %d payloads %d are referred to, and %d are left without a reference", len(keys), referred, stray)
	if referred+stray > 2+len(keys)/10 {
		t.Errorf("%d payloads of %d are left for two events", referred+stray, len(keys))
	}
}

// An event that was accepted earlier comes later, as from a spool: its data is not kept, and
// where only the other timeline has newer data, it is there.
func testResentLate(t *testing.T, session *cql.Session) {
	keys := map[timeline.PayloadKey]bool{}
	e := openEngine(t, &spying{openShelf(t, session, Options{Node: "first"}), new(sync.Mutex), keys}, nil)
	a, b := t.Name()+"/a", t.Name()+"/b"
	apartIn(t, e, a, b)
	at := time.Now().Add(-time.Minute).UnixMicro()
	old := func(name string) {
		t.Helper()
		r, err := e.AppendAccepted(t.Context(), []timeline.Accepted{{Addressed: event(at, "e", "old", name), At: time.Now().Add(-10 * time.Second)}})
		if err != nil || r.Accepted != 1 {
			t.Fatal(r.Rejected, err)
		}
	}
	appendAll(t, e, event(at, "e", "old", a))
	appendAll(t, e, event(at, "e", "new", a)) // drops the old data
	old(a)
	if referred, stray := payloadsOf(t, session, keys); referred != 1 || stray != 0 {
		t.Errorf("%d payloads are referred to, %d are not, want 1, 0", referred, stray)
	}
	old(b)
	p, err := e.Read(t.Context(), timeline.Query{Timelines: []string{a, b}})
	if err != nil || len(p.Events) != 2 || string(p.Events[0].Data)+string(p.Events[1].Data) != "newold" {
		t.Errorf("%v: %+v", err, p.Events)
	}
}

// A client that disconnects while its event is put leaves no data without an event.
func testGoneAway(t *testing.T, session *cql.Session) {
	s := openShelf(t, session, Options{Node: "first"})
	keys := map[timeline.PayloadKey]bool{}
	p := partOf(t.Name(), 0)
	for i := range byte(20) {
		ctx, cancel := context.WithCancel(t.Context())
		e := placed(p, 1, "e", nil)
		e.MayPoint, e.Pointer, e.Payload = true, timeline.PayloadKey{9, i + 1}, make([]byte, 5*pieceBytes/2)
		e.Size, e.Put = len(e.Payload), time.Now()
		keys[e.Pointer] = true
		time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
		if err := s.Put(ctx, []timeline.Placed{e}); err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, new(*timeline.PutError)) {
			t.Error(err)
		}
		cancel()
	}
	if referred, stray := payloadsOf(t, session, keys); referred > 1 || stray > 0 {
		t.Errorf("%d payloads are referred to, %d are not, want at most 1, 0", referred, stray)
	}
}

// The data of an event was replaced in a timeline by a server whose clock is ahead. The event has
// its data in another timeline, to which a server sends it whose clock is right.
func testResentWithDifferentClocks(t *testing.T, session *cql.Session) {
	right := openEngine(t, openShelf(t, session, Options{Node: "right"}), nil)
	for _, ahead := range []time.Duration{20 * time.Millisecond, 30 * time.Second, 30 * time.Minute} {
		now := func() time.Time { return time.Now().Add(ahead) }
		wrong := openEngine(t, openShelf(t, session, Options{Node: "wrong", Now: now}), func(o *timeline.Options) { o.Now = now })
		a, b := fmt.Sprint(t.Name(), ahead, "/a"), fmt.Sprint(t.Name(), ahead, "/b")
		apartIn(t, right, a, b)
		at := time.Now().Add(-time.Hour).UnixMicro()
		one, two := strings.Repeat("one ", 200), strings.Repeat("two ", 200)
		appendAll(t, wrong, event(at, "e", one, a))
		appendAll(t, wrong, event(at, "e", two, a)) // drops the first one
		for range 2 {
			appendAll(t, right, event(at, "e", one, b))
			p, err := right.Read(t.Context(), timeline.Query{Timelines: []string{b}})
			if err != nil || len(p.Events) != 1 || p.Events[0].Missing || string(p.Events[0].Data) != one {
				t.Errorf("a clock %v ahead: %v: the event has lost its data, or worse", ahead, err)
			}
		}
	}
}
