package storetest

import (
	"sync"
	"testing"
	"time"

	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/reference"
)

// A Harness is one store under test: an empty place for data and the means to
// open it repeatedly. Open is required; every other field may be nil. Tests that
// need a missing field are skipped or use the default that the field describes.
//
// Flush and Merge are also called while other goroutines use the store, never
// both at once. They report failure by tb.Errorf, since they may run in a
// goroutine that is not the test's.
type Harness struct {
	// Open opens the store; it ends the test if that fails. The first call
	// finds no data. Each later call comes after Close or Crash and finds what
	// was acknowledged before.
	Open func(tb testing.TB) store.Store

	// Flush moves samples from memory to permanent storage, for example from
	// the head into block files, and returns when it is done.
	Flush func(tb testing.TB, s store.Store)

	// Merge does all pending maintenance and returns when it is done: files
	// are merged, deletes applied, expired samples dropped, series without
	// samples forgotten.
	Merge func(tb testing.TB, s store.Store)

	// Crash ends s in place of Close, as kill -9 or a power cut would.
	Crash func(tb testing.TB, s store.Store)

	// Now is the store's clock. nil means time.Now.
	Now func() time.Time

	// Advance moves the store's clock. nil means that the store lives in real
	// time: tests then sleep, and those that need an exact clock are skipped.
	Advance func(d time.Duration)

	// LazyNames says that names and series may outlive expired samples for
	// longer than a test can wait, even after Merge. Deleted samples take
	// their names with them all the same.
	LazyNames bool

	// MaxText is the longest text in modified UTF-8, where NUL takes two bytes,
	// that the store's layout can hold. 0 means that there is no such bound.
	MaxText int

	// CannotHold reports whether the store's layout cannot hold a sample; such a
	// store is a store.SampleChecker. value has the bits of a fixed kind, data the
	// bytes of a variable kind. nil means that the store can hold every sample.
	CannotHold func(k model.Kind, ms int64, value uint64, data string) bool
}

// NewHarness makes a Harness for an empty store. Each test calls it once and
// shares the store with no other. Clean-up belongs in tb.Cleanup.
type NewHarness func(tb testing.TB) *Harness

func (h *Harness) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}

func (h *Harness) advance(d time.Duration) {
	if h.Advance == nil {
		time.Sleep(d)
		return
	}
	h.Advance(d)
}

// A Clock stands still unless it is told to move. It is safe for use by many
// goroutines.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a Clock that shows the given time.
func NewClock(now time.Time) *Clock { return &Clock{now: now} }

// Now returns the time that c shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves c forward by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// referenceHarness runs a reference store whose clock begins at origin.
func referenceHarness(origin time.Time, blockSamples int) *Harness {
	clock := NewClock(origin)
	var kept *reference.Store
	return &Harness{
		Open: func(testing.TB) store.Store {
			if kept == nil {
				kept = reference.New(clock.Now)
				kept.BlockSamples = blockSamples
			} else {
				kept = kept.Reopen()
			}
			return kept
		},
		Flush:   func(testing.TB, store.Store) {},
		Merge:   func(_ testing.TB, s store.Store) { s.(*reference.Store).Purge() },
		Crash:   func(testing.TB, store.Store) {},
		Now:     clock.Now,
		Advance: clock.Advance,
	}
}
