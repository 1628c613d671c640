package embedded

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"varve/internal/embedded/catalogue"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

var updateGolden = flag.Bool("update", false, "write the golden store of the current format again")

// TestGoldenStores opens every store that an earlier build wrote, kept in
// testdata/stores with a listing of its content.
func TestGoldenStores(t *testing.T) {
	if *updateGolden {
		writeGoldenStore(t, fmt.Sprintf("testdata/stores/v%d", catalogue.Version))
	}
	dirs, err := filepath.Glob("testdata/stores/v*/data")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden stores: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "content.txt"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), listing(t, copied)); diff != "" {
				t.Errorf("content of %s (-want +got):\n%s", dir, diff)
			}
			if diff := cmp.Diff(string(want), listing(t, copied)); diff != "" {
				t.Errorf("content of %s after it was closed and opened again (-want +got):\n%s", dir, diff)
			}
		})
	}
}

// listing opens a store and writes down everything in it.
func listing(t *testing.T, dir string) string {
	t.Helper()
	s, err := Open(vfs.Default, dir, DefaultConfig(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	v, err := s.View(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var b strings.Builder
	metrics, _, err := v.Names(ctx, store.NamesQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metrics {
		series, err := storetest.Select(ctx, v, store.Selection{Metric: m, Range: model.AllTime})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range series {
			fmt.Fprintln(&b, one.Series)
			listSamples(t, &b, v, one)
		}
	}
	for key, err := range s.Keys(ctx, "service", "key", "") {
		if err != nil {
			t.Fatal(err)
		}
		value, err := s.Get(ctx, "service", "key", key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "service/key/%s = %s\n", key, value.Text)
	}
	return b.String()
}

func listSamples(t *testing.T, b *strings.Builder, v store.View, series store.Series) {
	t.Helper()
	c := v.Read(context.Background(), series, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for {
		block, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if block == nil {
			return
		}
		for i, ms := range block.Times {
			switch k := series.Type.Kind(); {
			case k == model.Long:
				fmt.Fprintf(b, "  %d %d\n", ms, int64(block.Values[i]))
			case k == model.Double:
				fmt.Fprintf(b, "  %d %v\n", ms, math.Float64frombits(block.Values[i]))
			case k.Variable():
				fmt.Fprintf(b, "  %d %q\n", ms, block.Bytes(i))
			default:
				fmt.Fprintf(b, "  %d null\n", ms)
			}
		}
	}
}

// writeGoldenStore makes a store with files, a deletion that a file has not
// applied, and a log with records of every type that no file covers.
func writeGoldenStore(t *testing.T, dir string) {
	t.Helper()
	data := filepath.Join(dir, "data")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Log.SegmentBytes = 64 << 10
	s, err := Open(vfs.Default, data, cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	appendAll := func(origin int64) {
		var b store.Batch
		b.Reset(s.Epoch())
		for _, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeComplex, model.TypeNull, "custom_type"} {
			ref, err := s.Create(ctx, model.Series{Metric: "golden." + string(typ), Type: typ, Tags: model.MustTags("host", "a", "größe", "\U0001f600")})
			if err != nil {
				t.Fatal(err)
			}
			for i := range int64(5) {
				ms := origin + i*60_000
				switch k := typ.Kind(); {
				case k == model.Long:
					b.AddLong(ref, ms, ms*i, 0)
				case k == model.Double:
					b.AddDouble(ref, ms, float64(i)+0.25, 0)
				case k.Variable():
					b.AddBytes(ref, ms, fmt.Appendf(nil, "value %010d", i), 0)
				default:
					b.AddNull(ref, ms, 0)
				}
			}
		}
		if err := s.Append(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
	appendAll(1_600_000_000_000)
	appendAll(-1_000_000)
	if err := s.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := s.Set(ctx, "service", "key", "name", "text"); err != nil {
		t.Fatal(err)
	}
	appendAll(1_600_000_060_000)
	err = s.Delete(ctx, store.Deletion{Metric: "golden.kairos_long", Range: model.TimeRange{StartMS: 1_600_000_000_000, EndMS: 1_600_000_060_000}})
	if err != nil {
		t.Fatal(err)
	}
	// A copy of the open directory is what a crash leaves.
	crashed := filepath.Join(dir, "copy")
	if err := os.CopyFS(crashed, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(crashed, data); err != nil {
		t.Fatal(err)
	}
	scratch := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(scratch, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "content.txt"), []byte(listing(t, scratch)), 0o644); err != nil {
		t.Fatal(err)
	}
}
