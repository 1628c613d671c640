package admin

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded"
	"varve/internal/ingest/ingesttest"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// smallDisk has the free space that a test sets.
type smallDisk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestStoreWritable: varve_store_writable is 0 while the disk is nearly full and
// points are refused, and 1 again when there is space.
func TestStoreWritable(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.free.Store(1 << 40)
	config := embedded.DefaultConfig()
	config.MinFreeBytes = 8 * units.MiB
	s, err := embedded.Open(disk, "data", config, embedded.Options{Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	registry := prometheus.NewRegistry()
	ShowDisk(t.TempDir(), s.Healthy, registry)
	put := func() error {
		ref, err := s.Create(t.Context(), model.Series{Metric: "m", Tags: model.MustTags("h", "a"), Type: model.TypeLong})
		if err != nil {
			return err
		}
		b := store.Batch{Epoch: s.Epoch()}
		b.AddLong(ref, 1, 1, 0)
		return s.Append(t.Context(), &b)
	}
	for _, c := range []struct {
		free     uint64
		writable float64
	}{{1 << 40, 1}, {7 << 20, 0}, {1 << 40, 1}} {
		disk.free.Store(c.free)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for ingesttest.Counters(t, registry, "varve_store_writable")[""] != c.writable && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond) // the store looks each second
		}
		if ctx.Err() != nil {
			t.Errorf("with %d bytes free varve_store_writable does not become %v", c.free, c.writable)
		}
		cancel()
		err := put()
		if unavailable := (*store.UnavailableError)(nil); (err == nil) != (c.writable == 1) || err != nil && !errors.As(err, &unavailable) {
			t.Errorf("with %d bytes free a write is answered: %v", c.free, err)
		}
	}
	if ingesttest.Counters(t, registry, "varve_store_disk_free_bytes")[""] <= 0 {
		t.Error("the free space is not told")
	}
}
