package event

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/events"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/cassandra/layout"
	"varve/internal/embedded"
	"varve/internal/originals"
	"varve/internal/store"
	"varve/internal/timeline"
	"varve/internal/timeline/local"
	"varve/internal/timeline/timelinetest"
)

var quiet = slog.New(slog.DiscardHandler)

// A site is a store and its timelines, which hold events.
type site struct {
	values store.KeyValues
	shelf  timeline.Shelf
	close  func()
}

func openEmbedded(t *testing.T, fs vfs.FS, dir string) *site {
	t.Helper()
	s, err := embedded.Open(fs, dir, embedded.DefaultConfig(), embedded.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	shelf, err := local.Open(fs, fs.PathJoin(dir, "timelines"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &site{values: s, shelf: shelf}
	o.close = sync.OnceFunc(func() {
		if err := errors.Join(shelf.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(o.close)
	return o
}

func openCassandra(t *testing.T) *site {
	t.Helper()
	config := cqltest.Config(originals.Cassandra(t))
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	c, rows := cassandra.DefaultConfig(), kairosrows.DefaultSettings()
	c.Config = config
	rows.Schema.Create = schema.CreateKeyspace
	s, err := cassandra.Open(vfs.NewMem(), "spool", c, cassandra.Options{Layouts: layout.Layouts{layout.Default: kairosrows.NewLayout(rows)}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	shelf := events.Open(s.Session(), events.Options{Node: "node", Create: true, Log: quiet})
	t.Cleanup(func() { shelf.Close() })
	if err := shelf.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return &site{values: s, shelf: shelf}
}

// newLog returns a log with its own engine, like that of another process.
func (s *site) newLog(t *testing.T, perDay int) *Log {
	t.Helper()
	e, err := timeline.Open(s.shelf, timeline.Options{Own: Own(), Upkeep: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return NewLog(e, s.values, perDay, quiet)
}

func add(t *testing.T, l *Log, when int64, what, tags string) {
	t.Helper()
	if err := l.Add(t.Context(), Event{When: when, What: what, Data: "of " + what, Tags: strings.Fields(tags)}); err != nil {
		t.Fatal(err)
	}
}

func all(t *testing.T, l *Log, s Search) (list []Event) {
	t.Helper()
	if err := l.Find(t.Context(), s, func(e Event) error { list = append(list, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return list
}

// found returns the texts of the events of a search.
func found(t *testing.T, l *Log, s Search) string {
	t.Helper()
	var names []string
	for _, e := range all(t, l, s) {
		one, err := l.ByID(t.Context(), e.ID)
		if err != nil || one.What != e.What || one.Data != "of "+e.What || one.When != e.When || one.ID != e.ID || !slices.Equal(one.Tags, e.Tags) {
			t.Errorf("event %d is %+v, in a list %+v, %v", e.ID, one, e, err)
		}
		names = append(names, e.What)
	}
	return strings.Join(names, " ")
}

// TestLog: events are found by time and tags, over each store.
func TestLog(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		s := openEmbedded(t, vfs.NewMem(), "data")
		testLog(t, s)
		s.shelf = timelinetest.Buckets(s.shelf) // read as a cluster reads it
		testSeveralWriters(t, s)
	})
	t.Run("cassandra", func(t *testing.T) {
		s := openCassandra(t)
		testLog(t, s)
		testSeveralWriters(t, s)
	})
}

func testLog(t *testing.T, s *site) {
	l := s.newLog(t, 1000)
	const day = secondsPerDay
	add(t, l, 5*day+10, "e", "web db")
	add(t, l, 5*day+10, "d", "web") // later, though it sorts before
	add(t, l, 5*day, "c", "ünï")
	add(t, l, 5*day-1, "b", "")
	add(t, l, 0, "a", "web")
	add(t, l, 9*day, "z", "db x=1;y,z twice twice")
	add(t, l, endExcl-1, "last", "")
	if err := l.values.Set(t.Context(), service, tagsKey, "entered", ""); err != nil { // by a writer that ended then
		t.Fatal(err)
	}
	everything := Search{Until: endExcl - 1}
	with := func(set Set, tags string) Search {
		s := everything
		s.Set, s.Tags = set, strings.Fields(tags)
		return s
	}
	for _, c := range []struct {
		search Search
		want   string
	}{
		{everything, "a b c e d z last"},
		{Search{From: -5, Until: 1 << 60}, "a b c e d z last"},
		{Search{From: 5*day - 1, Until: 5 * day}, "b c"},
		{Search{From: 5*day + 10, Until: 5*day + 10}, "e d"},
		{Search{From: 5*day + 11, Until: 9*day - 1}, ""},
		{Search{From: 9, Until: 8}, ""},
		{Search{From: 1, Until: 9 * day, Tags: []string{"db"}}, "e z"},
		{with(Known, "web"), "a e d"},
		{with(Known, "web db"), "e"},
		{with(Known, "web db web"), "e"},
		{with(Known, "twice"), "z"},
		{with(Known, "twice db"), "z"},
		{with(Known, "twice web"), ""},
		{with(Known, "web nosuch"), "a e d"},
		{with(Known, "nosuch"), ""},
		{with(Known, "entered"), ""},
		{with(Union, "web db"), "a e d z"},
		{with(Union, "nosuch db"), "e z"},
		{with(Intersection, "db web"), "e"},
		{with(Intersection, "web nosuch"), ""},
		{with(Known, "ünï"), "c"},
		{with(Known, "x=1;y,z"), "z"},
	} {
		if got := found(t, l, c.search); got != c.want {
			t.Errorf("%+v: %q; want %q", c.search, got, c.want)
		}
	}
	if err := l.Delete(t.Context(), (5*day+10)<<numberBits); err != nil {
		t.Error(err)
	}
	if got := found(t, l, with(Known, "web")); got != "a d" {
		t.Errorf("without e: %q", got)
	}
	if err := l.Delete(t.Context(), (5*day+10)<<numberBits); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting it again: %v", err)
	}
	many := with(Union, strings.Repeat("x ", MaxTagBytes/2+1))
	if err := l.Find(t.Context(), many, func(Event) error { return nil }); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("a search by %d tags: %v", len(many.Tags), err)
	}
	for _, id := range []int64{-1, 0<<numberBits | 1, 7 << numberBits, 1 << 62} {
		if _, err := l.ByID(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

// testSeveralWriters: processes that add events at the same time do not overwrite each other's,
// and no two events have the same id.
func testSeveralWriters(t *testing.T, s *site) {
	const writers, each, when = 3, 15, 3 * secondsPerDay
	var wait sync.WaitGroup
	for i := range writers {
		l := s.newLog(t, 1000)
		for k := range 2 {
			wait.Go(func() {
				for n := range each {
					if err := l.Add(t.Context(), Event{When: when, What: fmt.Sprint(i, k, n)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wait.Wait()
	ids, whats := map[int64]bool{}, map[string]bool{}
	for _, e := range all(t, s.newLog(t, 1000), Search{From: when, Until: when}) {
		ids[e.ID], whats[e.What] = true, true
	}
	if want := 2 * writers * each; len(ids) != want || len(whats) != want {
		t.Errorf("%d events with %d ids; want %d", len(whats), len(ids), want)
	}
}

// TestRestart: events exist after a restart, and new ones follow them.
func TestRestart(t *testing.T) {
	fs := vfs.NewMem()
	s := openEmbedded(t, fs, "data")
	add(t, s.newLog(t, 2), 7, "before", "x")
	s.close()
	l := openEmbedded(t, fs, "data").newLog(t, 2)
	add(t, l, 7, "after", "x")
	if got := found(t, l, Search{Until: 7}); got != "before after" {
		t.Errorf("found %q", got)
	}
	err := l.Add(t.Context(), Event{When: 8})
	if limit := (*store.LimitError)(nil); !errors.As(err, &limit) || limit.Limit != PerDayLimit || limit.Max != 2 || limit.Need != 3 {
		t.Errorf("a third event of the day: %v", err)
	}
	add(t, l, secondsPerDay, "next", "") // the other day has room
}

// TestFullSecond: an event for which its second has no number is refused, and leaves nothing.
func TestFullSecond(t *testing.T) {
	l := openEmbedded(t, vfs.NewMem(), "data").newLog(t, 1000)
	if _, err := l.append(t.Context(), timeline.Event{Time: 5*second + 1<<numberBits - 2, Data: []byte(`{"what":"a","data":"of a"}`)}); err != nil {
		t.Fatal(err)
	}
	add(t, l, 5, "b", "")
	err := l.Add(t.Context(), Event{When: 5, What: "c"})
	if input := (*store.InputError)(nil); !errors.As(err, &input) || !strings.Contains(err.Error(), "the second 5 already has 524288 events") {
		t.Errorf("an event more: %v", err)
	}
	add(t, l, 6, "d", "")
	if got := found(t, l, Search{Until: 6}); got != "a b d" {
		t.Errorf("found %q", got)
	}
}

// TestAddWaitsForItsTurn: an event that waits for others ends with its request.
func TestAddWaitsForItsTurn(t *testing.T) {
	l := openEmbedded(t, vfs.NewMem(), "data").newLog(t, 1000)
	add(t, l, 5, "a", "x")
	l.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Add(ctx, Event{When: 5, What: "b", Tags: []string{"x"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-l.turn
	if got := found(t, l, Search{Until: 5}); got != "a" {
		t.Errorf("found %q", got)
	}
}

// A counted shelf counts the events that it returns.
type counted struct {
	timeline.Shelf
	events atomic.Int64
}

func (c *counted) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	out, err := c.Shelf.Slice(ctx, p, r, d, l)
	c.events.Add(int64(len(out.Entries)))
	return out, err
}

// TestReadsWhatItNeeds: a search of minutes reads few of the events of weeks, and so does adding
// an event to a second that has many.
func TestReadsWhatItNeeds(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	shelf := &counted{Shelf: s.shelf}
	s.shelf = shelf
	l := s.newLog(t, 1000)
	const start = 1710028800 // a midnight
	for day := range int64(20) {
		for hour := range int64(24) {
			add(t, l, start+day*secondsPerDay+hour*3600, fmt.Sprint(day, ".", hour), "x")
		}
	}
	shelf.events.Store(0)
	at := int64(start + 3*secondsPerDay + 5*3600)
	if got := found(t, l, Search{From: at - 300, Until: at + 300}); got != "3.5" {
		t.Errorf("found %q", got)
	}
	if n := shelf.events.Load(); n > 2 { // in the list, and by its id
		t.Errorf("of 480 events, %d were read", n)
	}
	shelf.events.Store(0)
	const many = 100
	for range many {
		add(t, l, 5, "a", "")
	}
	if n := shelf.events.Load(); n > 3*many { // the last one (and one ahead), and the new one
		t.Errorf("%d events were read to add %d", n, many)
	}
	ids := all(t, l, Search{Until: 5})
	for i, e := range ids {
		if e.ID != 5<<numberBits|int64(i) {
			t.Errorf("event %d has id %d", i, e.ID)
		}
	}
	if len(ids) != many {
		t.Errorf("%d events; want %d", len(ids), many)
	}
}

// TestFindEnds: a cancelled context ends a search, and so does an error.
func TestFindEnds(t *testing.T) {
	l := openEmbedded(t, vfs.NewMem(), "data").newLog(t, 1000)
	add(t, l, 1, "a", "")
	add(t, l, 2, "b", "")
	enough := errors.New("enough")
	if err := l.Find(t.Context(), Search{Until: 9}, func(Event) error { return enough }); err != enough {
		t.Errorf("the error of the caller became %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Find(ctx, Search{Until: 9}, func(Event) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	steps := 0
	err = l.Find(t.Context(), Search{Until: 9, Tags: []string{"none"}, Set: Union, Step: func(int64) error { steps++; return enough }}, nil)
	if err != enough || steps != 1 {
		t.Errorf("a search without a match was not ended between two steps, but %d were made: %v", steps, err)
	}
	if err := l.Add(ctx, Event{When: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("adding after the end of the context: %v", err)
	}
}

// TestRoomAfterDelete: after a deletion, a full day has room again.
func TestRoomAfterDelete(t *testing.T) {
	l := openEmbedded(t, vfs.NewMem(), "data").newLog(t, 2)
	add(t, l, 5, "a", "")
	add(t, l, 6, "b", "")
	if err := l.Delete(t.Context(), 5<<numberBits); err != nil {
		t.Fatal(err)
	}
	add(t, l, 7, "c", "")
	if err := l.Add(t.Context(), Event{When: 8}); err == nil {
		t.Error("a third event of the day was added")
	}
}

// TestRoomAfterDeleteElsewhere: a full day is counted again in case events were deleted in another
// way, but not for each event that is refused.
func TestRoomAfterDeleteElsewhere(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	shelf := &counted{Shelf: s.shelf}
	s.shelf = shelf
	l := s.newLog(t, 2)
	add(t, l, 5, "a", "")
	add(t, l, 6, "b", "")
	l = s.newLog(t, 2) // after a restart
	shelf.events.Store(0)
	for range 3 {
		if err := l.Add(t.Context(), Event{When: 7}); err == nil || !strings.Contains(err.Error(), "delete some of that day") {
			t.Errorf("a third event of the day: %v", err)
		}
	}
	if n := shelf.events.Load(); n != 2 {
		t.Errorf("%d events were read to refuse three, want 2", n)
	}
	until := int64(5*second + second - 1)
	if err := l.timelines.Delete(t.Context(), Timeline, timeline.Deletion{Until: &until}); err != nil {
		t.Fatal(err)
	}
	l.recountAfter = 0
	add(t, l, 7, "c", "")
	if err := l.Add(t.Context(), Event{When: 8}); err == nil {
		t.Error("a third event of the day was added")
	}
}

// TestCountDelaysItsDayOnly: while the events of a day are counted, events of other days are added.
func TestCountDelaysItsDayOnly(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem(), "data")
	add(t, s.newLog(t, 10), 5, "a", "")
	shelf := &stopped{Shelf: s.shelf, day: 0, reached: make(chan struct{}), release: make(chan struct{})}
	s.shelf = shelf
	l := s.newLog(t, 10)
	add(t, l, secondsPerDay+5, "b", "") // its day is counted
	shelf.armed.Store(true)
	slow := make(chan error, 1)
	go func() { slow <- l.Add(t.Context(), Event{When: 6}) }()
	<-shelf.reached
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Add(ctx, Event{When: secondsPerDay + 6}); err != nil {
		t.Errorf("an event of another day, while one is counted: %v", err)
	}
	close(shelf.release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
}

// A stopped shelf stops before the first read of a day once it is armed.
type stopped struct {
	timeline.Shelf
	day              int64 // its first second
	armed            atomic.Bool
	reached, release chan struct{}
}

func (s *stopped) Slice(ctx context.Context, p timeline.Part, r timeline.Range, d timeline.Direction, l timeline.Limit) (timeline.Slice, error) {
	if p.Start == s.day*second && s.armed.CompareAndSwap(true, false) {
		close(s.reached)
		<-s.release
	}
	return s.Shelf.Slice(ctx, p, r, d, l)
}
