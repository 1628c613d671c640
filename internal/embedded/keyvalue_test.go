package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// modifiedRows counts the modification times in the catalogue.
func modifiedRows(t *testing.T, s *Store) (n int) {
	t.Helper()
	prefix := []byte{tableModified}
	it, err := s.catalogue.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	s.must(t, err)
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	s.must(t, it.Close())
	return n
}

// TestKeyValuesAreBounded: clients can store a bounded number of keys and bytes,
// also after a restart, and what they remove makes room. Neither the limit nor
// what they remove concerns the server's own keys.
func TestKeyValuesAreBounded(t *testing.T) {
	ctx, mem := context.Background(), vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	set := func(service, serviceKey, key, text string) error { return s.Set(ctx, service, serviceKey, key, text) }
	full := func(err error, limit string, want int64) {
		t.Helper()
		var l *store.LimitError
		if !errors.As(err, &l) || l.Limit != limit || l.Need != want {
			t.Fatalf("error %v, want the limit %s with a need of %d", err, limit, want)
		}
	}
	bound := func() { s.values.maxKeys, s.values.maxBytes = 3, 1000 }
	bound()
	s.must(t, set("a", "x", "1", "text"))
	s.must(t, set("a", "x", "2", "text"))
	s.must(t, set("b", "y", "1", "text"))
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	s.must(t, set("b", "y", "1", "another text"))
	full(set("b", "y", "1", strings.Repeat("x", 990)), "bytes of metadata", s.values.bytes+978)
	s.must(t, set("_Rollups", "x", "1", strings.Repeat("x", 2000)))

	s.must(t, s.Close())
	s = mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	bound()
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	s.must(t, s.Unset(ctx, "a", "x", "none"))
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	s.must(t, s.Unset(ctx, "a", "x", "1"))
	s.must(t, set("b", "z", "1", "text"))

	// Removing leaves nothing behind, and removing what is not there nothing new.
	for i := range 10 {
		s.must(t, s.Unset(ctx, "c", fmt.Sprint(i), "none"))
	}
	for _, k := range [][3]string{{"a", "x", "2"}, {"b", "y", "1"}, {"b", "z", "1"}, {"_Rollups", "x", "1"}} {
		s.must(t, s.Unset(ctx, k[0], k[1], k[2]))
	}
	if n := modifiedRows(t, s); n != 1 {
		t.Errorf("%d modification times are left, want that of _Rollups", n)
	}
	if s.values.keys != 0 || s.values.bytes != 0 {
		t.Errorf("%d keys of %d bytes counted, want none", s.values.keys, s.values.bytes)
	}
}

// TestListsOfKeysHoldNothing: a list is complete across its pages, passes over the
// keys of a service key that it has named, and holds no part of the catalogue
// while its reader takes its time.
func TestListsOfKeysHoldNothing(t *testing.T) {
	ctx := context.Background()
	s := mustOpen(t, vfs.NewMem(), quietConfig("fsync"))
	defer s.Close()
	const n = 3 * (listPage + 1)
	b := s.catalogue.db.NewBatch()
	for i := range n {
		s.must(t, errors.Join(
			b.Set(valueKey("many keys", "x", fmt.Sprintf("%06d", i)), make([]byte, valueHead), nil),
			b.Set(valueKey("many service keys", fmt.Sprintf("%06d", i/3), fmt.Sprint(i)), make([]byte, valueHead), nil)))
	}
	s.must(t, b.Commit(pebble.Sync))
	for _, c := range []struct {
		name              string
		list              iter.Seq2[string, error]
		service, sk, late string
		total             int
	}{
		{"keys", s.Keys(ctx, "many keys", "x", ""), "many keys", "x", fmt.Sprintf("%06d", n), n + 1},
		{"service keys", s.ServiceKeys(ctx, "many service keys"), "many service keys", fmt.Sprintf("%06d", n/3), "k", n/3 + 1},
	} {
		count := 0
		for name, err := range c.list {
			s.must(t, err)
			if count == 0 { // a list that held the catalogue would not have this
				s.must(t, s.Set(ctx, c.service, c.sk, c.late, ""))
			}
			if want := fmt.Sprintf("%06d", count); name != want {
				t.Fatalf("%s: name %d is %q, want %q", c.name, count, name, want)
			}
			count++
		}
		if count != c.total {
			t.Errorf("%s: %d names, want %d", c.name, count, c.total)
		}
	}
}

// TestCutName: names with any bytes come back from a key; a key that ends within a
// name is none.
func TestCutName(t *testing.T) {
	for _, name := range []string{"", "a", "a\x00b", "\x00\x01", "\xff"} {
		key := appendName(nil, name)
		if got, rest, ok := cutName(append(key[:len(key):len(key)], "rest"...)); got != name || string(rest) != "rest" || !ok {
			t.Errorf("%q: %q, %q, %t", name, got, rest, ok)
		}
		for end := range key {
			if got, rest, ok := cutName(key[:end]); ok {
				t.Errorf("%q, cut at %d: %q, %q", name, end, got, rest)
			}
		}
	}
}
