package embedded

import (
	"context"
	"errors"
	"fmt"

	"varve/internal/downsample"
	"varve/internal/embedded/catalogue"
	"varve/internal/store"
)

// The key under which the metrics and hours of the samples that were found in the log are
// stored.
const (
	replayedService = "_Varve"
	replayedKey     = "Replayed"
	replayedName    = "hours"
)

var _ downsample.Journal = (*Store)(nil)

// journal tells other packages about the samples in the log.
type journal struct {
	downsample.LogNotes
	values *catalogue.Values // accepts changes on a full disk, and while the store is closed
}

// openJournal reads the hours that an earlier start has found and that are not noted yet.
func (s *Store) openJournal() error {
	values := catalogue.NewValues(s.catalogue, catalogue.ValueOptions{
		Check: func(context.Context) error { return nil }, Writable: func() error { return nil }, Now: s.now,
	})
	s.journal.values = values
	s.journal.Store = func(ctx context.Context, text []byte) error {
		return values.Set(ctx, replayedService, replayedKey, replayedName, string(text))
	}
	s.journal.Forget = func(ctx context.Context) error { return s.Unset(ctx, replayedService, replayedKey, replayedName) }
	v, err := values.Get(context.Background(), replayedService, replayedKey, replayedName)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = s.journal.Restore([]byte(v.Text))
	}
	if err != nil {
		return fmt.Errorf("read the record of hours with samples in the log at an earlier start: %w", err)
	}
	return nil
}

// BeforeTrim implements downsample.Journal.
func (s *Store) BeforeTrim(f func(context.Context, store.KeyValues) error) {
	s.journal.BeforeTrim(func(ctx context.Context) error { return f(ctx, s.journal.values) })
}

// Unnoted implements downsample.Journal.
func (s *Store) Unnoted() *downsample.Hours { return s.journal.Unnoted() }

// AddUnnoted implements downsample.Journal.
func (s *Store) AddUnnoted(h *downsample.Hours) { s.journal.AddUnnoted(h) }

// Settle implements downsample.Journal.
func (s *Store) Settle(ctx context.Context) error { return s.journal.Settle(ctx) }
