package embedded

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/store"
)

// TestTexts compares what people read of a store, whole and damaged, with
// testdata/texts. Run it with -update after a change and read the difference.
func TestTexts(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	whole := readImage(t, fs, "data")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for p := range whole {
		if strings.HasSuffix(p, ".free") {
			delete(whole, p)
		}
	}
	damaged := readImage(t, whole.load(t), "data")
	damaged["data/blocks/0000000002.blk"][100] ^= 1
	last := damaged["data/blocks/0000000004.blk"]
	last[len(last)-20] ^= 1
	for p, b := range damaged {
		if strings.HasSuffix(p, ".wal") && len(b) > 1000 {
			b[60] ^= 1
		}
	}
	damaged["data/blocks/0000000099.blk"] = []byte("left by a crash")
	for _, tc := range []struct {
		name  string
		img   image
		write func(w *bytes.Buffer, d *offline.Directory) error
	}{
		{"check", whole, writeCheck},
		{"check-damaged", damaged, writeCheck},
		{"overview", whole, func(w *bytes.Buffer, d *offline.Directory) error { return d.WriteOverview(w) }},
		{"series", whole, func(w *bytes.Buffer, d *offline.Directory) error {
			return d.WriteSeries(w, "sample.kairos_long", []model.Tag{{Name: "host", Value: "h1"}})
		}},
		{"file", whole, func(w *bytes.Buffer, d *offline.Directory) error { return d.WriteFile(w, 2, -1) }},
		{"file-page", whole, func(w *bytes.Buffer, d *offline.Directory) error { return d.WriteFile(w, 2, 0) }},
		{"file-damaged", damaged, func(w *bytes.Buffer, d *offline.Directory) error { return d.WriteFile(w, 2, -1) }},
		{"log", whole, func(w *bytes.Buffer, d *offline.Directory) error { return d.WriteLog(w, true) }},
		{"stats", whole, func(w *bytes.Buffer, d *offline.Directory) error {
			r, err := d.Space(context.Background(), offline.SpaceOptions{Top: 4})
			if err != nil {
				return err
			}
			return r.WriteText(w)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := offline.Open(tc.img.load(t), "data")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			var got bytes.Buffer
			if err := tc.write(&got, d); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "texts", tc.name+".txt")
			if *updateGolden {
				if err := os.MkdirAll(filepath.Dir(golden), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

func writeCheck(w *bytes.Buffer, d *offline.Directory) error {
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	r, err := d.Check(context.Background(), offline.CheckOptions{Now: now})
	if err != nil {
		return err
	}
	return r.WriteText(w)
}

func TestOpenDirectoryRefuses(t *testing.T) {
	fs := vfs.NewMem()
	if _, err := offline.Open(fs, "nothing"); err == nil {
		t.Error("opened what is not there")
	}
	s, _ := sampleStore(t, fs, "data", 20)
	defer s.Close()
	if _, err := offline.Open(fs, "data"); !isLocked(err) {
		t.Errorf("in use: %v", err)
	}
}

func isLocked(err error) bool {
	locked := (*datadir.LockedError)(nil)
	return errors.As(err, &locked)
}

// A check of a store that serves finds what one of a stopped store finds in its
// block files, and is stopped by its context.
func TestCheckWhileServing(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	defer s.Close()
	ctx := context.Background()
	r, err := s.Check(ctx, offline.CheckOptions{})
	if err != nil || !r.Clean() || r.Files == 0 || r.Rows == 0 {
		t.Fatalf("%v %+v", err, r)
	}
	path := "data/blocks/0000000002.blk"
	b := slices.Clone(readImage(t, fs, "data")[path])
	b[100] ^= 1
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified) // the open file sees it too
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	r, err = s.Check(ctx, offline.CheckOptions{BytesPerSecond: 1 << 30})
	if err != nil || len(r.Findings) != 1 || r.Findings[0].File != path {
		t.Errorf("%v %+v", err, r)
	}
	if _, err := s.Space(ctx, offline.SpaceOptions{Top: 3, Pages: 2}); err != nil {
		t.Error(err)
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Check(stopped, offline.CheckOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Without its catalogue a store is not begun again beside the old files.
func TestCatalogueGone(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	img := readImage(t, fs, "data")
	blocks := 0
	for p := range img {
		if strings.HasPrefix(p, "data/catalogue/") {
			delete(img, p)
		}
		if strings.HasSuffix(p, ".blk") {
			blocks++
		}
	}
	fs = img.load(t).MemFS
	for range 2 {
		_, err := Open(fs, "data", DefaultConfig(), Options{})
		if damage := (*store.CorruptionError)(nil); !errors.As(err, &damage) {
			t.Errorf("%v", err)
		}
	}
	if names, _ := fs.List("data/blocks"); len(names) != blocks {
		t.Errorf("%d block files are left of %d", len(names), blocks)
	}
}
