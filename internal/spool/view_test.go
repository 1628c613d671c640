package spool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// putText appends samples of a string series.
func putText(t *testing.T, s *Spool, metric, text string, times ...int64) {
	t.Helper()
	var b store.Batch
	b.Reset(s.Epoch())
	ref, err := s.Create(t.Context(), model.Series{Metric: metric, Type: model.TypeString, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	for _, ms := range times {
		b.AddBytes(ref, ms, []byte(text), 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// What a view holds of drained generations counts as memory until it is closed.
func TestHeldMemory(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{Sink: newRemote()})
	defer s.Close()
	put(t, s, testSeries("load", 1), 1, 1, 2, 3)
	v := s.View()
	before := s.memory()
	flushed(t, s)
	if got := s.memory(); got < before {
		t.Errorf("%d bytes of memory while a view holds %d", got, before)
	}
	v.Close()
	if got := s.memory(); got != 0 {
		t.Errorf("%d bytes of memory afterwards", got)
	}
}

// Byte strings that sealing packs are counted and discounted alike.
func TestPackedMemory(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{Sink: newRemote()})
	defer s.Close()
	for i := range int64(1000) {
		putText(t, s, "text", strings.Repeat("x", 1000), 4*i, 4*i+1, 4*i+2, 4*i+3)
	}
	before := s.memory()
	s.order.Lock()
	err := s.cutLocked()
	frozen := s.frozenMem.Load()
	s.order.Unlock()
	if err != nil || frozen != before {
		t.Errorf("%d bytes, %d when it was cut, %v", before, frozen, err)
	}
	flushed(t, s)
	if got := s.memory(); got != 0 {
		t.Errorf("%d bytes of memory when all is drained", got)
	}
}

// Views that stay open, each with generations of its own, do not take more than
// max_memory: what they hold goes to files, and stays readable.
func TestManyHeldViews(t *testing.T) {
	cfg := patient(tinyConfig())
	cfg.GenerationSamples = 1 << 20
	s := mustOpen(t, vfs.NewMem(), cfg, Options{Sink: newRemote()})
	defer s.Close()
	var views []*View
	for i := range 20 {
		for n := range 100 {
			put(t, s, testSeries(fmt.Sprintf("round%d", i), n), int64(i), 1, 2, 3)
		}
		v := s.View()
		defer v.Close()
		views = append(views, v)
		flushed(t, s)
		if got := s.memory(); got > int64(cfg.MaxMemory+cfg.GenerationBytes) {
			t.Fatalf("%v of memory, at most %v", units.Bytes(got), cfg.MaxMemory)
		}
	}
	if s.Health().FileBytes == 0 {
		t.Error("nothing went to files")
	}
	for i, v := range views {
		got := content{}
		got.overlay(t, v, fmt.Sprintf("round%d", i))
		if len(got) != 100 {
			t.Errorf("view %d has %d series", i, len(got))
		}
		v.Close()
	}
	if h := s.Health(); h.MemoryBytes != 0 || h.FileBytes != 0 {
		t.Errorf("afterwards: %+v", h)
	}
}

// What it costs to find one series does not depend on how many wait.
func TestSelectOneOfMany(t *testing.T) {
	cost := func(series int) float64 {
		s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{})
		defer s.Close()
		var b store.Batch
		b.Reset(s.Epoch())
		for n := range series {
			ref, err := s.Create(t.Context(), testSeries("load", n))
			if err != nil {
				t.Fatal(err)
			}
			b.AddLong(ref, 1, 1, 0)
		}
		if err := s.Append(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		v := s.View()
		defer v.Close()
		one := []model.Matcher{{Tag: "n", Values: []string{"7"}}}
		return testing.AllocsPerRun(10, func() {
			if ids, err := idsOf(v.Select(context.Background(), "load", one, model.AllTime, nil)); err != nil || len(ids) != 1 {
				t.Fatal(ids, err)
			}
		})
	}
	if few, many := cost(100), cost(20_000); many > few+2 {
		t.Errorf("%v allocations among 100 series, %v among 20000", few, many)
	}
}

// A selection by a pattern tells of its work, and ends when it is not to go on.
func TestSelectTells(t *testing.T) {
	s := mustOpen(t, vfs.NewMem(), patient(DefaultConfig()), Options{})
	defer s.Close()
	var b store.Batch
	b.Reset(s.Epoch())
	for n := range 1000 {
		ref, err := s.Create(t.Context(), testSeries("load", n))
		if err != nil {
			t.Fatal(err)
		}
		b.AddLong(ref, 1, 1, 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	v := s.View()
	defer v.Close()
	p, err := model.NewPattern("[0-9]+(1|2)")
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	calls := 0
	_, err = v.Select(t.Context(), "load", []model.Matcher{{Tag: "n", Patterns: []*model.Pattern{p}}}, model.AllTime, func(int) error {
		if calls++; calls == 100 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || calls != 100 {
		t.Errorf("it ends with %v after %d calls", err, calls)
	}
}
