package downsample

import (
	"context"
	"fmt"
	"sync"

	"varve/internal/model"
	"varve/internal/store"
)

// LogNotes implement a Journal for any log. The owner of the log adds the samples that
// a replay finds, and calls Trim before it releases a part of the log. Trim also stores
// the hours that are not noted yet, because the packages that make notes may not run in
// this process.
//
// The zero LogNotes serve a log that is only read: they have no hours.
type LogNotes struct {
	// Store replaces the stored text of hours, and Forget deletes it. Both are set
	// before any method is called.
	Store  func(ctx context.Context, text []byte) error
	Forget func(ctx context.Context) error

	last hourTable // during a replay: the hour added last for each series; 0 = none

	storing sync.Mutex // held while hours are stored or forgotten

	mu      sync.Mutex // no I/O while it is held: Appending locks it
	unnoted Hours
	unsaved bool
	hooks   []func(context.Context) error
}

// Restore loads what Store has stored.
func (n *LogNotes) Restore(text []byte) error { return n.unnoted.Parse(text) }

// Introduce is called for each series that a replayed record introduces, since its
// number may have belonged to another series before.
func (n *LogNotes) Introduce(id model.SeriesNumber) { *n.last.of(id) = 0 }

// Replayed adds the hours of a batch of the log. keyOf returns the key of a series, ""
// if it is unknown.
func (n *LogNotes) Replayed(b *store.Batch, keyOf func(model.SeriesNumber) string) {
	if n.Store == nil {
		return
	}
	for i := range b.Samples {
		id, ms := model.SeriesNumber(b.Samples[i].Ref), b.Samples[i].TimeMS
		last, hour := n.last.of(id), int64(0)
		if ms >= 0 { // earlier samples are rare: their hours are added one by one
			hour = ms/hourMS + 1
		}
		if hour > 0 && *last == hour {
			continue
		}
		*last = hour
		if key := keyOf(id); key != "" && n.unnoted.Add(model.TrustKey(key).Metric, ms) {
			n.unsaved = true
		}
	}
}

// EndReplay releases the memory that a replay needed.
func (n *LogNotes) EndReplay() { n.last = nil }

// BeforeTrim registers f, which Trim calls.
func (n *LogNotes) BeforeTrim(f func(context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks = append(n.hooks[:len(n.hooks):len(n.hooks)], f)
}

// AddUnnoted implements Journal.
func (n *LogNotes) AddUnnoted(h *Hours) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unnoted.Merge(h) {
		n.unsaved = true
	}
}

// Unnoted implements Journal.
func (n *LogNotes) Unnoted() *Hours {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Hours{}
	h.Merge(&n.unnoted)
	return h
}

// Settle implements Journal.
func (n *LogNotes) Settle(ctx context.Context) error {
	n.storing.Lock()
	defer n.storing.Unlock()
	if err := n.Forget(ctx); err != nil {
		return fmt.Errorf("remove the record of hours with samples in the log: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unnoted, n.unsaved = Hours{}, false
	return nil
}

// Trim stores the notes and hours that the next release of a part of the log would
// lose. After an error, the caller must keep the log.
func (n *LogNotes) Trim(ctx context.Context) error {
	n.mu.Lock()
	hooks := n.hooks
	n.mu.Unlock()
	for _, f := range hooks {
		if err := f(ctx); err != nil {
			return fmt.Errorf("store notes about samples in the log: %w", err)
		}
	}
	return n.Save(ctx)
}

// Save stores the unnoted hours, unless they are stored.
func (n *LogNotes) Save(ctx context.Context) error {
	n.storing.Lock()
	defer n.storing.Unlock()
	text, unsaved := n.takeUnsaved()
	if !unsaved {
		return nil
	}
	err := n.Store(ctx, text)
	if err == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unsaved = true
	return fmt.Errorf("store the record of hours with samples in the log: %w", err)
}

// takeUnsaved returns the text of the hours if it is not stored, and marks it as
// stored.
func (n *LogNotes) takeUnsaved() (text []byte, unsaved bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.unsaved {
		return nil, false
	}
	n.unsaved = false
	return n.unnoted.Text(), true
}

// An hourTable holds a number per series, in pages: series numbers may have large gaps.
type hourTable []*[1 << hourTableBits]int64

const hourTableBits = 12

// of returns the address of a series' number. It stays valid as the table grows.
func (t *hourTable) of(id model.SeriesNumber) *int64 {
	page := int(id >> hourTableBits)
	if n := page + 1 - len(*t); n > 0 {
		*t = append(*t, make(hourTable, n)...)
	}
	p := &(*t)[page]
	if *p == nil {
		*p = new([1 << hourTableBits]int64)
	}
	return &(*p)[id%(1<<hourTableBits)]
}
