package embedded

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/wal"
)

// TestLargeHeadIsWritten: a head with as many samples as it may have is written to files soon,
// not only when checkpoint_interval is over.
func TestLargeHeadIsWritten(t *testing.T) {
	cfg := quietConfig(wal.Fsync)
	cfg.CheckpointSamples = 100
	s := mustOpen(t, vfs.NewMem(), cfg)
	defer s.Close()
	ref, err := s.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Reset(s.Epoch())
	for i := range int64(101) {
		b.AddLong(ref, i, i, 0)
	}
	if err := s.Append(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	written := func() bool {
		var m dto.Metric
		if err := s.metrics.checkpoints.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue() > 0
	}
	for deadline := time.Now().Add(20 * time.Second); !written(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the head stays in memory")
		}
	}
}

// TestOpenNothingToRead: a directory without a store is an error, and is left as it was.
func TestOpenNothingToRead(t *testing.T) {
	fs := vfs.NewMem()
	if err := mustOpen(t, fs, quietConfig(wal.Fsync)).Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveAll(fs.PathJoin("data", datadir.Catalogue)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is not locked either
		if s, err := OpenToRead(fs, "data", quietConfig(wal.Fsync), Options{}); err == nil || s != nil || strings.Contains(err.Error(), "lock") {
			t.Errorf("without a catalogue there is a store (%t), %v", s != nil, err)
		}
	}
}
