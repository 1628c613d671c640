package catalogue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/store"
)

// openValues opens the key-values of a catalogue, which the caller closes.
func openValues(t *testing.T, fs vfs.FS) *Values {
	t.Helper()
	c, err := Open(fs, "catalogue", Options{Logger: Quiet{}, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	return NewValues(c, ValueOptions{
		Check:    context.Context.Err,
		Writable: func() error { return nil },
		Now:      time.Now,
	})
}

func (v *Values) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// modifiedRows counts the modification times in the catalogue.
func modifiedRows(t *testing.T, v *Values) (n int) {
	t.Helper()
	v.must(t, Scan(v.catalogue.Reader(), TableModified, func(_, _ []byte) error { n++; return nil }))
	return n
}

// TestKeyValuesAreBounded: clients can store a bounded number of keys and bytes,
// also after a restart, and what they remove makes room. Neither the limit nor
// what they remove concerns the server's own keys.
func TestKeyValuesAreBounded(t *testing.T) {
	ctx, mem := context.Background(), vfs.NewMem()
	v := openValues(t, mem)
	set := func(service, serviceKey, key, text string) error { return v.Set(ctx, service, serviceKey, key, text) }
	full := func(err error, limit string, want int64) {
		t.Helper()
		var l *store.LimitError
		if !errors.As(err, &l) || l.Limit != limit || l.Need != want {
			t.Fatalf("error %v, want the limit %s with a need of %d", err, limit, want)
		}
	}
	bound := func() { v.maxKeys, v.maxBytes = 3, 1000 }
	bound()
	v.must(t, set("a", "x", "1", "text"))
	v.must(t, set("a", "x", "2", "text"))
	v.must(t, set("b", "y", "1", "text"))
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	v.must(t, set("b", "y", "1", "another text"))
	full(set("b", "y", "1", strings.Repeat("x", 990)), "bytes of metadata", v.bytes+978)
	v.must(t, set("_Rollups", "x", "1", strings.Repeat("x", 2000)))

	v.must(t, v.catalogue.Close())
	v = openValues(t, mem)
	defer v.catalogue.Close()
	bound()
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	v.must(t, v.Unset(ctx, "a", "x", "none"))
	full(set("b", "z", "1", "text"), "metadata keys", 4)
	v.must(t, v.Unset(ctx, "a", "x", "1"))
	if at, err := v.Modified(ctx, "a", "x"); err != nil || at.IsZero() {
		t.Errorf("a/x, of which a key is left, was modified at %v, %v", at, err)
	}
	v.must(t, set("b", "z", "1", "text"))

	// Removing leaves nothing behind, and removing a missing key creates nothing.
	for i := range 10 {
		v.must(t, v.Unset(ctx, "c", fmt.Sprint(i), "none"))
	}
	for _, k := range [][3]string{{"a", "x", "2"}, {"b", "y", "1"}, {"b", "z", "1"}, {"_Rollups", "x", "1"}} {
		v.must(t, v.Unset(ctx, k[0], k[1], k[2]))
	}
	if n := modifiedRows(t, v); n != 1 {
		t.Errorf("%d modification times are left, want that of _Rollups", n)
	}
	if v.keys != 0 || v.bytes != 0 {
		t.Errorf("%d keys of %d bytes counted, want none", v.keys, v.bytes)
	}
}

// TestListsOfKeysHoldNothing: a list is complete across its pages, passes over the
// keys of a service key that it has named, and holds no part of the catalogue
// while its reader is slow.
func TestListsOfKeysHoldNothing(t *testing.T) {
	ctx := context.Background()
	v := openValues(t, vfs.NewMem())
	defer v.catalogue.Close()
	const n = 3 * (listPage + 1)
	b := v.catalogue.db.NewBatch()
	for i := range n {
		v.must(t, errors.Join(
			b.Set(valueKey("many keys", "x", fmt.Sprintf("%06d", i)), make([]byte, valueHead), nil),
			b.Set(valueKey("many service keys", fmt.Sprintf("%06d", i/3), fmt.Sprint(i)), make([]byte, valueHead), nil)))
	}
	v.must(t, b.Commit(pebble.Sync))
	for _, c := range []struct {
		name              string
		list              iter.Seq2[string, error]
		service, sk, late string
		total             int
	}{
		{"keys", v.Keys(ctx, "many keys", "x", ""), "many keys", "x", fmt.Sprintf("%06d", n), n + 1},
		{"service keys", v.ServiceKeys(ctx, "many service keys"), "many service keys", fmt.Sprintf("%06d", n/3), "k", n/3 + 1},
	} {
		count := 0
		for name, err := range c.list {
			v.must(t, err)
			if count == 0 { // a list that held the catalogue would not have this
				v.must(t, v.Set(ctx, c.service, c.sk, c.late, ""))
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
