package cassandra

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/downsample"
	"varve/internal/store"
)

var _ downsample.Journal = (*Keyspaces)(nil)

// BeforeTrim implements downsample.Journal. f is called before a part of any keyspace's log
// is released. f gets the key-values of the first keyspace. If f needs them while that
// keyspace is unavailable, f fails and the log is kept.
func (k *Keyspaces) BeforeTrim(f func(context.Context, store.KeyValues) error) {
	for _, s := range k.stores {
		s.spool.Notes().BeforeTrim(func(ctx context.Context) error { return f(ctx, k) })
	}
}

// Unnoted implements downsample.Journal.
func (k *Keyspaces) Unnoted() *downsample.Hours {
	all := &downsample.Hours{}
	for _, s := range k.stores {
		all.Merge(s.spool.Notes().Unnoted())
	}
	return all
}

// AddUnnoted implements downsample.Journal. It adds the hours to all keyspaces, because the
// metrics of their samples are unknown.
func (k *Keyspaces) AddUnnoted(h *downsample.Hours) {
	for _, s := range k.stores {
		s.spool.Notes().AddUnnoted(h)
	}
}

// Settle implements downsample.Journal.
func (k *Keyspaces) Settle(ctx context.Context) error {
	var errs []error
	for i, s := range k.stores {
		errs = append(errs, k.named(i, s.spool.Notes().Settle(ctx)))
	}
	return errors.Join(errs...)
}

// removeSpools removes spools once their hours are stored in the spool of the first keyspace.
func (k *Keyspaces) removeSpools(ctx context.Context, fsys vfs.FS, left []leftSpool) error {
	notes := k.stores[0].spool.Notes()
	for _, l := range left {
		notes.AddUnnoted(l.unnoted)
	}
	if err := notes.Save(ctx); err != nil {
		return err
	}
	var errs []error
	for _, l := range left {
		errs = append(errs, fsys.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}
