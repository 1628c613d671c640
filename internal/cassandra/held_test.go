package cassandra

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
)

// TestMemoryOfHeldSamples: samples of the spool that a cursor holds count as memory of the request until
// the cursor is closed.
func TestMemoryOfHeldSamples(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	s := ready(t, openStore(t, c, Options{}))
	put(t, s, "m", "a", story(0))
	var held, limit atomic.Int64
	full := errors.New("full")
	hold := func(bytes int64) error {
		if limit.Load() > 0 && held.Load()+bytes > limit.Load() {
			return full
		}
		held.Add(bytes)
		return nil
	}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for series, err := range v.Select(t.Context(), store.Selection{Metric: "m", Range: model.AllTime, Hold: hold}) {
		if err != nil {
			t.Fatal(err)
		}
		before := held.Load()
		cursor := v.Read(t.Context(), series, all())
		if n := held.Load() - before; n != samplesOfAStory*24 {
			t.Errorf("%d bytes are held", n)
		}
		if cursor.Close(); held.Load() != before {
			t.Errorf("%d bytes are held after the end, and %d before", held.Load(), before)
		}
		limit.Store(before + 1)
		cursor = v.Read(t.Context(), series, all())
		if block, err := cursor.Next(); !errors.Is(err, full) || held.Load() != before {
			t.Errorf("with little memory: %v, %v, %d bytes are held", block, err, held.Load()-before)
		}
		cursor.Close()
		limit.Store(0)
	}
}

// TestMemoryOfShuffledSamples: what a cursor copies of samples that wait out of order counts while it
// is opened, and of that only the samples until it is closed.
func TestMemoryOfShuffledSamples(t *testing.T) {
	c := clustersConfig(t)
	dropAfter(t, c)
	c.Spool.Linger = time.Hour
	s := ready(t, openStore(t, c, Options{}))
	const samples, size = 100, 10_000
	ref, err := s.Create(t.Context(), model.Series{Metric: "text", Type: model.TypeString, Tags: model.MustTags("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	now := time.Now().UnixMilli()
	for i := range samples {
		b.AddBytes(ref, now-int64(i*7919%samples)*1000, []byte(strings.Repeat("a", size)), 0)
	}
	if err := s.Append(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var held, most atomic.Int64
	hold := func(bytes int64) error {
		most.Store(max(most.Load(), held.Add(bytes)))
		return nil
	}
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for series, err := range v.Select(t.Context(), store.Selection{Metric: "text", Range: model.AllTime, Hold: hold}) {
		if err != nil {
			t.Fatal(err)
		}
		before := held.Load()
		most.Store(0)
		cursor := v.Read(t.Context(), series, all())
		if n := held.Load() - before; n < samples*size || n > samples*size*11/10 || most.Load() < 4*samples*size {
			t.Errorf("%d bytes are held while the cursor is open, and %d were while it was opened", n, most.Load())
		}
		if cursor.Close(); held.Load() != before {
			t.Errorf("%d bytes are held after the end, and %d before", held.Load(), before)
		}
	}
	if most.Load() == 0 {
		t.Error("no series was found")
	}
}
