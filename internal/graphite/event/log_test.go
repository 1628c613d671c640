package event

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/cassandra"
	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/cassandra/kairosrows"
	"varve/internal/cassandra/kairosrows/schema"
	"varve/internal/embedded"
	"varve/internal/originals"
	"varve/internal/store"
)

func openEmbedded(t *testing.T, fs vfs.FS) *embedded.Store {
	t.Helper()
	s, err := embedded.Open(fs, "data", embedded.DefaultConfig(), embedded.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openCassandra(t *testing.T) store.KeyValues {
	t.Helper()
	config := cqltest.Config(originals.Cassandra(t))
	cqltest.Drop(t, cqltest.Open(t, config, cql.Options{}))
	c, rows := cassandra.DefaultConfig(), kairosrows.DefaultSettings()
	c.Config = config
	rows.Schema.Create = schema.CreateKeyspace
	s, err := cassandra.Open(vfs.NewMem(), "spool", c, cassandra.Options{Layout: kairosrows.NewLayout(rows), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t *testing.T, l *Log, when int64, what, tags string) {
	t.Helper()
	if err := l.Add(t.Context(), Event{When: when, What: what, Data: "of " + what, Tags: strings.Fields(tags)}); err != nil {
		t.Fatal(err)
	}
}

// found returns what the events of a search say.
func found(t *testing.T, l *Log, s Search) string {
	t.Helper()
	var list []Found
	if err := l.Find(t.Context(), s, func(f Found) error { list = append(list, f); return nil }); err != nil {
		t.Fatal(err)
	}
	events, err := l.Read(t.Context(), list, func(int64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, e := range events {
		one, err := l.ByID(t.Context(), list[i].ID)
		if err != nil || one.What != e.What || e.Data != "of "+e.What || e.When != list[i].When || !slices.Equal(e.Tags, list[i].Tags) {
			t.Errorf("event %d is %+v, in a list %+v, %v", list[i].ID, one, e, err)
		}
		names = append(names, e.What)
	}
	return strings.Join(names, " ")
}

// TestLog: events are found by time and tags, over each store.
func TestLog(t *testing.T) {
	for name, open := range map[string]func(*testing.T) store.KeyValues{
		"embedded": func(t *testing.T) store.KeyValues {
			s := openEmbedded(t, vfs.NewMem())
			t.Cleanup(func() { s.Close() })
			return s
		},
		"cassandra": openCassandra,
	} {
		t.Run(name, func(t *testing.T) { testLog(t, NewLog(open(t), 1000, 1)) })
	}
}

func testLog(t *testing.T, l *Log) {
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
	all := Search{Until: endExcl - 1}
	with := func(set Set, tags string) Search {
		s := all
		s.Set, s.Tags = set, strings.Fields(tags)
		return s
	}
	for _, c := range []struct {
		search Search
		want   string
	}{
		{all, "a b c e d z last"},
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
	if err := l.Find(t.Context(), many, func(Found) error { return nil }); err == nil || !strings.Contains(err.Error(), "1000 at most") {
		t.Errorf("a search by %d tags: %v", len(many.Tags), err)
	}
	for _, id := range []int64{-1, 0<<numberBits | 1, 7 << numberBits, 1 << 62} {
		if _, err := l.ByID(t.Context(), id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("id %d: %v", id, err)
		}
	}
}

// TestRestart: events are there after a restart, and new ones come behind them.
func TestRestart(t *testing.T) {
	fs := vfs.NewMem()
	s := openEmbedded(t, fs)
	add(t, NewLog(s, 2, 1), 7, "before", "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openEmbedded(t, fs)
	defer s.Close()
	l := NewLog(s, 2, 2)
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

// TestSeveralWriters: processes that add at the same time overwrite nothing of each
// other.
func TestSeveralWriters(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem())
	defer s.Close()
	logs := []*Log{NewLog(s, 1000, 1), NewLog(s, 1000, 2), NewLog(s, 1000, 3)}
	const each = 20
	var wait sync.WaitGroup
	for i := range 2 * len(logs) {
		wait.Go(func() {
			for n := range each {
				if err := logs[i%len(logs)].Add(context.Background(), Event{When: 5, What: fmt.Sprintf("%d.%d", i, n), Tags: []string{"x"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	n := 0
	if err := logs[0].Find(t.Context(), Search{Until: 5}, func(Found) error { n++; return nil }); err != nil || n != 2*each*len(logs) {
		t.Errorf("%d events, %v; want %d", n, err, 2*each*len(logs))
	}
}

// A counted store counts the keys that are listed, and the texts that are read.
type counted struct {
	store.KeyValues
	keys, texts int
}

func (c *counted) Keys(ctx context.Context, service, serviceKey, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for k, err := range c.KeyValues.Keys(ctx, service, serviceKey, prefix) {
			c.keys++
			if !yield(k, err) {
				return
			}
		}
	}
}

func (c *counted) Get(ctx context.Context, service, serviceKey, key string) (store.Value, error) {
	c.texts++
	return c.KeyValues.Get(ctx, service, serviceKey, key)
}

// TestFindReadsItsRangeOnly: a search of minutes among the events of weeks.
func TestFindReadsItsRangeOnly(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem())
	defer s.Close()
	values := &counted{KeyValues: s}
	l := NewLog(values, 1000, 1)
	const start = 1710028800 // a midnight
	for day := range int64(20) {
		for hour := range int64(24) {
			add(t, l, start+day*secondsPerDay+hour*3600, fmt.Sprint(day, ".", hour), "x")
		}
	}
	values.keys, values.texts = 0, 0
	at := int64(start + 3*secondsPerDay + 5*3600)
	if got := found(t, l, Search{From: at - 300, Until: at + 300}); got != "3.5" {
		t.Errorf("found %q", got)
	}
	// 20 days at most, an event twice and its neighbours, and its text twice
	if values.keys > 25 || values.texts > 2 {
		t.Errorf("of 480 events, %d keys and %d texts were read", values.keys, values.texts)
	}
}

// TestFindEnds: the end of the context ends a search, and so does an error.
func TestFindEnds(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem())
	defer s.Close()
	l := NewLog(s, 1000, 1)
	add(t, l, 1, "a", "")
	add(t, l, 2, "b", "")
	enough := errors.New("enough")
	if err := l.Find(t.Context(), Search{Until: 9}, func(Found) error { return enough }); err != enough {
		t.Errorf("the error of the caller became %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := l.Find(ctx, Search{Until: 9}, func(Found) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if err := l.Add(ctx, Event{When: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("adding after the end of the context: %v", err)
	}
}

// TestManyInOneSecond: their numbers go up, and are not read again for each.
func TestManyInOneSecond(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem())
	defer s.Close()
	values := &counted{KeyValues: s}
	l := NewLog(values, 10_000, 1)
	const n = 4 * manyEvents
	for range n {
		add(t, l, 5, "a", "")
	}
	if most := manyEvents * (manyEvents + 1) / 2; values.keys > most {
		t.Errorf("%d keys were read to add %d events; want %d at most", values.keys, n, most)
	}
	last := int64(-1)
	count := 0
	err := l.Find(t.Context(), Search{Until: 5}, func(f Found) error {
		if f.ID <= last {
			t.Errorf("id %d after %d", f.ID, last)
		}
		last = f.ID
		count++
		return nil
	})
	if err != nil || count != n {
		t.Errorf("%d events, %v; want %d", count, err, n)
	}
}

// TestDeletedWhileRead: a list leaves out what is deleted before its text is read, and a
// day has room again.
func TestDeletedWhileRead(t *testing.T) {
	s := openEmbedded(t, vfs.NewMem())
	defer s.Close()
	l := NewLog(s, 2, 1)
	add(t, l, 5, "a", "")
	add(t, l, 6, "b", "")
	var list []Found
	if err := l.Find(t.Context(), Search{Until: 9}, func(f Found) error { list = append(list, f); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	events, err := l.Read(t.Context(), list, func(int64) error { return nil })
	if err != nil || len(events) != 1 || events[0].What != "b" || events[0].ID != list[1].ID {
		t.Errorf("read %+v, %v", events, err)
	}
	add(t, l, 7, "c", "")
	if err := l.Add(t.Context(), Event{When: 8}); err == nil {
		t.Error("a third event of the day was added")
	}
}
