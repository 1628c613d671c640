package embedded

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/embedded/datadir"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/wal"
)

// TestUnusableRecords: a record of the log that is whole, but that this build cannot use, ends
// the opening. Only a repair continues without it: its samples were acknowledged.
func TestUnusableRecords(t *testing.T) {
	var b store.Batch
	b.Reset(0)
	b.AddLong(999, 1, 1, 0)
	unknown := record.AppendSamples(record.AppendDefinitions(nil, nil), &b, []model.Kind{model.Long})
	for name, r := range map[string]struct {
		typ     byte
		payload []byte
	}{
		"samples of an unknown series": {record.TypeBatch, unknown},
		"half a batch":                 {record.TypeBatch, unknown[:len(unknown)-1]},
		"half a deletion":              {record.TypeDeletion, []byte{1}},
		"a type of a later build":      {200, []byte("x")},
	} {
		fs, cfg := vfs.NewMem(), quietConfig(wal.Fsync)
		if err := mustOpen(t, fs, cfg).Close(); err != nil {
			t.Fatal(err)
		}
		log, err := wal.Open(fs, fs.PathJoin("data", datadir.Log), cfg.Log, wal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		log.Append(r.typ, r.payload)
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(fs, "data", cfg, Options{Section: "embedded"}); err == nil {
			t.Errorf("%s: the store opens", name)
			_ = s.Close()
		}
	}
}

// TestRegistererIsTaken: a store whose metrics cannot be registered does not open, and leaves
// the directory to the next one.
func TestRegistererIsTaken(t *testing.T) {
	fs, cfg, reg := vfs.NewMem(), quietConfig(wal.Fsync), prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_store_views", Help: "Another one."}))
	if s, err := Open(fs, "data", cfg, Options{Section: "embedded", Registerer: reg}); err == nil || !strings.Contains(err.Error(), "varve_store_views") {
		t.Errorf("a metric has the name of another: %v", err)
		if err == nil {
			_ = s.Close()
		}
	}
	if err := mustOpen(t, fs, cfg).Close(); err != nil {
		t.Error(err)
	}
}
