package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"varve/internal/model"
	"varve/internal/store"
)

// A guess is the alias that followed, as long as it may stand for what it stood for: of this protocol,
// not forgotten, and of a sender that may write all metrics.
func TestGuess(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *Writer, next *Alias)
		good   bool
	}{
		"as it was":            {func(*Writer, *Alias) {}, true},
		"the first of a block": {func(w *Writer, _ *Alias) { w.last = nil }, false},
		"nothing followed":     {func(w *Writer, _ *Alias) { w.last.next.Store(nil) }, false},
		"after a series went":  {func(w *Writer, _ *Alias) { w.distrust = true }, false},
		"a limited sender":     {func(w *Writer, _ *Alias) { w.by.Prefix = "a." }, false},
		"of another protocol":  {func(_ *Writer, next *Alias) { next.syntax++ }, false},
		"forgotten":            {func(_ *Writer, next *Alias) { next.gen.Store(0) }, false},
	} {
		c := newAliasCache(1, 1<<20)
		w := &Writer{cache: c, proto: &Protocol{syntax: 3}}
		add := func(head string) *Alias {
			return c.add(c.hash(model.Long, 3, []byte(head), nil), model.Long, 3, []byte(head), nil, 1, 0)
		}
		first, next := add("first"), add("next")
		first.next.Store(next)
		w.Follow(first)
		tc.change(w, next)
		if got := w.Guess(); (got == next) != tc.good || got != nil && !tc.good {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A sibling has the same spelling and another kind.
func TestSibling(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(b *Alias)
		good   bool
	}{
		"as it was":           {func(*Alias) {}, true},
		"of the same kind":    {func(b *Alias) { b.kind = model.Long }, false},
		"of another protocol": {func(b *Alias) { b.syntax++ }, false},
		"forgotten":           {func(b *Alias) { b.gen.Store(0) }, false},
		"of other tags":       {func(b *Alias) { b.tail = "h=b" }, false},
		"of another metric":   {func(b *Alias) { b.head = "n" }, false},
	} {
		c := newAliasCache(1, 1<<20)
		w := &Writer{cache: c, proto: &Protocol{syntax: 3}}
		add := func(kind model.Kind) *Alias {
			return c.add(c.hash(kind, 3, []byte("m"), []byte("h=a")), kind, 3, []byte("m"), []byte("h=a"), 1, 0)
		}
		a, b := add(model.Long), add(model.Double)
		if w.Sibling(a) != nil {
			t.Errorf("%s: nothing followed, and there is a sibling", name)
		}
		a.next.Store(b)
		tc.change(b)
		if got := w.Sibling(a); (got == b) != tc.good || got != nil && !tc.good {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A spelling that is too long for the cache is not kept, and not guessed.
func TestLongSpellings(t *testing.T) {
	c := newAliasCache(1, 1<<20)
	most := int(c.maxBytes/16) - aliasBytes
	for n, kept := range map[int]bool{most: true, most + 1: false} {
		head, tail := []byte("m"), []byte(strings.Repeat("x", n-1))
		hash := c.hash(model.Long, 3, head, tail)
		a := c.add(hash, model.Long, 3, head, tail, 1, 0)
		if a.Head() != "m" || len(a.Tail()) != n-1 || a.Kind() != model.Long || !a.Word() {
			t.Errorf("%d bytes: %+v", n, a)
		}
		if got := c.find(hash, model.Long, 3, head, tail); (got == a) != kept || c.current(a) != kept {
			t.Errorf("%d bytes: found %v, current %t, want %t", n, got != nil, c.current(a), kept)
		}
	}
}

// A fault of one series costs only that series; a fault of the store costs the block.
func TestFaultsOfCreation(t *testing.T) {
	limit, input, away := &store.LimitError{Limit: "max_series"}, &store.InputError{Reason: "no such name"}, &store.UnavailableError{Reason: "away"}
	for _, tc := range []struct {
		err    error
		reason Reason
		fault  bool
	}{{limit, MaxSeries, true}, {input, Refused, true}, {away, 0, false}, {errors.New("x"), 0, false}} {
		err := createFault(fmt.Errorf("create: %w", tc.err))
		fault, ok := err.(*Fault)
		if ok != tc.fault || ok && fault.Reason != tc.reason || !errors.Is(err, tc.err) || !strings.HasPrefix(err.Error(), "create: ") {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
}
