package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"varve/internal/downsample"
	"varve/internal/embedded/catalogue"
	"varve/internal/model"
	"varve/internal/registry"
	"varve/internal/store"
)

// Where it is stored of which metrics and hours samples were found in the log.
const (
	replayedService = "_Varve"
	replayedKey     = "Replayed"
	replayedName    = "hours"
)

// replayed is what others have to know of the log: see downsample.Journal. Notes about
// samples that were not stored before a crash are made again of what the replay finds.
// That is stored as well before the log is given up, since whoever makes notes may not be
// there in this process.
type replayed struct {
	values *catalogue.Values // which take changes on a full disk, and while the store is closed
	last   hourTable         // during a replay: the hour that was added last of each series; 0 = none

	mu      sync.Mutex
	hours   downsample.Hours
	unsaved bool
	hooks   []func(store.KeyValues) error
}

var _ downsample.Journal = (*Store)(nil)

// openReplayed reads what an earlier start has found and nobody has noted since.
func (s *Store) openReplayed() error {
	r := &s.replayed
	r.values = catalogue.NewValues(s.catalogue, catalogue.ValueOptions{
		Check: func(context.Context) error { return nil }, Writable: func() error { return nil }, Now: s.now,
	})
	v, err := r.values.Get(context.Background(), replayedService, replayedKey, replayedName)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.hours.Parse([]byte(v.Text))
	}
	if err != nil {
		return fmt.Errorf("read of which hours samples were in the log at an earlier start: %w", err)
	}
	return nil
}

// An hourTable has a number for each series, in pages: ids may have large gaps.
type hourTable []*[1 << hourTableBits]int64

const hourTableBits = 12

// of returns the place of a series. It stays where it is.
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

// introduce is told of each series that a record introduces: its number may have been that
// of another one.
func (r *replayed) introduce(id model.SeriesNumber) { *r.last.of(id) = 0 }

// add adds the hours of a batch of the log. A store that was opened for reading only has no
// use for them.
func (r *replayed) add(series *registry.Registry, b *store.Batch) {
	if r.values == nil {
		return
	}
	const hourMS = 3_600_000
	for i := range b.Samples {
		id, ms := model.SeriesNumber(b.Samples[i].Ref), b.Samples[i].TimeMS
		last, hour := r.last.of(id), int64(0)
		if ms >= 0 { // there is not much before 1970
			hour = ms/hourMS + 1
		}
		if hour > 0 && *last == hour {
			continue
		}
		*last = hour
		key := series.Key(id) // the replay has checked it
		if key != "" && r.hours.Add(model.TrustKey(key).Metric, ms) {
			r.unsaved = true
		}
	}
}

// BeforeTrim implements downsample.Journal.
func (s *Store) BeforeTrim(f func(store.KeyValues) error) {
	s.replayed.mu.Lock()
	defer s.replayed.mu.Unlock()
	s.replayed.hooks = append(s.replayed.hooks, f)
}

// Replayed implements downsample.Journal. What it returns does not change any more.
func (s *Store) Replayed() *downsample.Hours {
	s.replayed.mu.Lock()
	defer s.replayed.mu.Unlock()
	h := s.replayed.hours
	return &h
}

// Settle implements downsample.Journal.
func (s *Store) Settle(ctx context.Context) error {
	r := &s.replayed
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := s.Unset(ctx, replayedService, replayedKey, replayedName); err != nil {
		return fmt.Errorf("forget of which hours samples were in the log: %w", err)
	}
	r.hours, r.unsaved = downsample.Hours{}, false
	return nil
}

// beforeTrim stores what would be lost with the log that a checkpoint gives up.
func (r *replayed) beforeTrim() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.hooks {
		if err := f(r.values); err != nil {
			return fmt.Errorf("store notes about samples in the log: %w", err)
		}
	}
	if !r.unsaved {
		return nil
	}
	if err := r.values.Set(context.Background(), replayedService, replayedKey, replayedName, string(r.hours.Text())); err != nil {
		return fmt.Errorf("store of which hours samples were in the log: %w", err)
	}
	r.unsaved = false
	return nil
}
