package schema

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/cassandra/cql/cqltest"
	"varve/internal/originals"
	"varve/internal/store"
)

func collect(t *testing.T, names iter.Seq2[string, error]) []string {
	t.Helper()
	var all []string
	for n, err := range names {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// checkRecordedKeys asks for the metadata that a KairosDB wrote.
func checkRecordedKeys(t *testing.T, ks *Keyspace) {
	t.Helper()
	ctx := t.Context()
	if got := slices.Sorted(slices.Values(collect(t, ks.ServiceKeys(ctx, "dash")))); !slices.Equal(got, []string{"home", "other"}) {
		t.Errorf("service keys of dash are %q", got)
	}
	if got := collect(t, ks.Keys(ctx, "dash", "home", "")); !slices.Equal(got, []string{"json", "title"}) {
		t.Errorf("keys of home are %q", got)
	}
	v, err := ks.Get(ctx, "ünï", "käy", "k/1")
	if err != nil || v.Text != "wert ü" || v.Modified.Year() != 2026 {
		t.Errorf("value is %+v, %v", v, err)
	}
	if v, err := ks.Get(ctx, "dash", "other", "x"); err != nil || v.Text != "" {
		t.Errorf("the empty value is %+v, %v", v, err)
	}
	// A key was removed after the last one was set: only mtime tells.
	mtime, err := ks.Modified(ctx, "dash", "home")
	title, getErr := ks.Get(ctx, "dash", "home", "title")
	if err != nil || getErr != nil || !mtime.After(title.Modified) || mtime.Year() != 2026 {
		t.Errorf("dash/home is modified at %v, its title at %v; %v, %v", mtime, title.Modified, err, getErr)
	}
}

// TestServiceKeys: what storetest wants of a store.KeyValues, on KairosDB's rows.
func TestServiceKeys(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	ks := mustOpen(t, s, func(c *Config) { c.Role = RoleMeta })
	if ks.Tables != (Tables{ServiceIndex: true}) {
		t.Errorf("a keyspace for metadata has %+v", ks.Tables)
	}
	ctx := t.Context()
	set := func(service, serviceKey, key, value string) {
		t.Helper()
		if err := ks.Set(ctx, service, serviceKey, key, value); err != nil {
			t.Fatal(err)
		}
	}
	unset := func(service, serviceKey, key string) {
		t.Helper()
		if err := ks.Unset(ctx, service, serviceKey, key); err != nil {
			t.Fatal(err)
		}
	}
	modified := func(service, serviceKey string) time.Time {
		t.Helper()
		at, err := ks.Modified(ctx, service, serviceKey)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if at := modified("svc", "b"); !at.IsZero() {
		t.Errorf("what was never set is modified at %v", at)
	}
	set("svc", "b", "k1", "v")
	set("svc", "a", "k1", "v")
	set("svc", "a", "k2", "old")
	set("svc", "a", "k2", "new") // in the same millisecond, maybe
	set("svc", "ab", "k", "v")
	set("svc2", "c", "k", "v")
	set("svc", "gone", "k", "v")
	unset("svc", "gone", "k")
	unset("svc", "never", "k")
	unset("svc", "a", "k1")
	if got := slices.Sorted(slices.Values(collect(t, ks.ServiceKeys(ctx, "svc")))); !slices.Equal(got, []string{"a", "ab", "b"}) {
		t.Errorf("service keys are %q", got)
	}
	if got := collect(t, ks.ServiceKeys(ctx, "none")); len(got) != 0 {
		t.Errorf("service keys of nothing are %q", got)
	}
	if v, err := ks.Get(ctx, "svc", "a", "k2"); err != nil || v.Text != "new" || time.Since(v.Modified).Abs() > time.Minute {
		t.Errorf("value is %+v, %v", v, err)
	}
	for _, key := range []string{"k1", "none"} {
		if _, err := ks.Get(ctx, "svc", "a", key); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("key %s: %v", key, err)
		}
	}
	unset("svc", "again", "k")
	set("svc", "again", "k", "back")
	if v, err := ks.Get(ctx, "svc", "again", "k"); err != nil || v.Text != "back" {
		t.Errorf("set right after unset: %+v, %v", v, err)
	}

	// Prefixes, with characters whose order in UTF-8 is not Java's.
	names := []string{"a", "p", "pq", "pqr", "p\U0001F600", "p\uFFFD", "q", "pé"}
	for _, n := range names {
		set("svc", "order", n, "v")
	}
	if got, want := collect(t, ks.Keys(ctx, "svc", "order", "p")), []string{"p", "pq", "pqr", "pé", "p\uFFFD", "p\U0001F600"}; !slices.Equal(got, want) {
		t.Errorf("keys are %q, want %q", got, want)
	}
	if got := collect(t, ks.Keys(ctx, "svc", "order", "")); len(got) != len(names) {
		t.Errorf("keys are %q", got)
	}
	if got := collect(t, ks.Keys(ctx, "svc", "gone", "")); len(got) != 0 {
		t.Errorf("keys of an emptied service key are %q", got)
	}
	for range ks.ServiceKeys(ctx, "svc") {
		break
	}

	last := modified("svc", "b")
	for _, change := range []func(){
		func() { set("svc", "b", "k1", "v") },
		func() { set("svc", "b", "other", "v") },
		func() { unset("svc", "b", "k1") },
		func() { unset("svc", "b", "k1") },
	} {
		time.Sleep(5 * time.Millisecond)
		change()
		now := modified("svc", "b")
		if !now.After(last) || time.Since(now).Abs() > time.Minute {
			t.Errorf("modified at %v after %v", now, last)
		}
		last = now
	}
	set("svc", "another", "k", "v")
	if now := modified("svc", "b"); !now.Equal(last) {
		t.Errorf("modified moved from %v to %v", last, now)
	}

	var input *store.InputError
	if err := ks.Set(ctx, "svc", "", "k", "v"); !errors.As(err, &input) {
		t.Errorf("an empty service key: %v", err)
	}

	// Each cell has a write time in milliseconds.
	rows := s.Query(ctx, &cql.Statement{Name: "stamps", Text: "SELECT WRITETIME(value), WRITETIME(mtime) FROM service_index", Scan: true})
	var value, mtime *int64
	for rows.Scan(&value, &mtime) {
		for _, stamp := range []*int64{value, mtime} {
			if stamp != nil && time.Since(time.UnixMilli(*stamp)).Abs() > time.Hour {
				t.Errorf("write time %d is not now in milliseconds", *stamp)
			}
		}
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
}

// TestServiceKeysOfAServerAhead: what a server has set whose clock is ahead is replaced and
// removed by another one, and each change moves mtime, by which others notice it.
func TestServiceKeysOfAServerAhead(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	meta := func(c *Config) { c.Role = RoleMeta }
	ahead, right := mustOpen(t, s, meta), mustOpen(t, s, meta)
	ahead.now = func() time.Time { return time.Now().Add(time.Hour) }
	ctx := t.Context()
	last := time.Time{}
	changed := func(what string, err error) {
		t.Helper()
		now, mtimeErr := right.Modified(ctx, "svc", "a")
		if err != nil || mtimeErr != nil || now.Equal(last) {
			t.Errorf("%s: %v; modified at %v after %v, %v", what, err, now, last, mtimeErr)
		}
		last = now
	}
	for range 2 {
		changed("set by the server ahead", ahead.Set(ctx, "svc", "a", "k", "old"))
		changed("set", right.Set(ctx, "svc", "a", "k", "new"))
		if v, err := ahead.Get(ctx, "svc", "a", "k"); err != nil || v.Text != "new" {
			t.Errorf("replaced: %+v, %v", v, err)
		}
	}
	changed("another key", right.Set(ctx, "svc", "a", "other", "v"))
	if v, err := right.Get(ctx, "svc", "a", "other"); err != nil || time.Since(v.Modified).Abs() > time.Minute {
		t.Errorf("a key that only this server has set: %+v, %v", v, err)
	}
	changed("unset", right.Unset(ctx, "svc", "a", "k"))
	if v, err := ahead.Get(ctx, "svc", "a", "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("removed: %+v, %v", v, err)
	}
	// By less than two minutes ahead.
	ahead, err := mustOpen(t, s, meta), error(nil)
	ahead.now = func() time.Time { return time.Now().Add(time.Minute) }
	if err = ahead.Set(ctx, "svc", "b", "k", "v"); err == nil {
		err = ahead.Unset(ctx, "svc", "b", "k")
	}
	if err == nil {
		err = right.Set(ctx, "svc", "b", "k", "back")
	}
	if v, getErr := right.Get(ctx, "svc", "b", "k"); err != nil || getErr != nil || v.Text != "back" {
		t.Errorf("set after it was removed: %+v, %v, %v", v, err, getErr)
	}
}

// TestNoServiceIndex: a keyspace without the table has no metadata.
func TestNoServiceIndex(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	cqltest.Must(t, s, dataCompact)
	ks := mustOpen(t, s, func(c *Config) { c.Role = RoleRead })
	ctx := t.Context()
	if _, err := ks.Get(ctx, "a", "b", "c"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	var unavailable *store.UnavailableError
	if err := ks.Set(ctx, "a", "b", "c", "d"); !errors.As(err, &unavailable) || !strings.Contains(err.Error(), "service_index") {
		t.Error(err)
	}
	if got := collect(t, ks.ServiceKeys(ctx, "a")); len(got) != 0 {
		t.Error(got)
	}
}

// TestServiceKeysAfterAWrongClock: a server that has created the keyspace with a clock that was
// ahead sets keys with right write timestamps once its clock is set.
func TestServiceKeysAfterAWrongClock(t *testing.T) {
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{})
	var ahead atomic.Int64
	ahead.Store(int64(365 * 24 * time.Hour))
	config := DefaultConfig()
	ks, err := open(t.Context(), s, config, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ahead.Store(0)
	if err := ks.Set(t.Context(), "svc", "a", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if v, err := ks.Get(t.Context(), "svc", "a", "k"); err != nil || time.Since(v.Modified).Abs() > time.Hour {
		t.Errorf("a key that was set once the clock was right: %+v, %v", v, err)
	}
}

// TestListsOfKeysAreReadInPages: a list that is left early, or sent slowly, does not hold the rest.
func TestListsOfKeysAreReadInPages(t *testing.T) {
	var pages atomic.Int64
	s := cqltest.Keyspace(t, cqltest.Config(originals.Cassandra(t)), cql.Options{Observe: func(statement string) {
		if statement == listKeys.Name {
			pages.Add(1)
		}
	}})
	ks := mustOpen(t, s, func(c *Config) { c.Role = RoleMeta })
	const n = 2001
	for from := 0; from < n; from += 500 {
		var batch []cql.Entry
		for i := from; i < min(from+500, n); i++ {
			batch = append(batch, cql.Entry{Statement: writeServiceKey, Args: []any{"s", "k", fmt.Sprintf("%06d", i), "v"}})
		}
		if err := s.Batch(t.Context(), ks.Stamp(), batch); err != nil {
			t.Fatal(err)
		}
	}
	for key, err := range ks.Keys(t.Context(), "s", "k", "") {
		if key != "000000" || err != nil {
			t.Errorf("first key %q, %v", key, err)
		}
		break
	}
	if got := pages.Swap(0); got != 1 {
		t.Errorf("%d pages were read for the first key", got)
	}
	if got := collect(t, ks.Keys(t.Context(), "s", "k", "")); len(got) != n || !slices.IsSorted(got) {
		t.Errorf("%d keys, want %d", len(got), n)
	}
}
