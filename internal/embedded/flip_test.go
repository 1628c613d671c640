package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/safefile"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

var (
	flipStep = flag.Int("embedded.flips", 251, "of how many bytes one is flipped; 1 = each byte of every file")
	flipBit  = flag.Int("embedded.flipbit", -1, "which bit is flipped, -1 = another one each time")
)

// sampleStore writes a store with samples of every kind, several files, a file
// that hides another's samples, deletions that files have not applied,
// key-values, and a log with records that no file covers. before is what it
// held before the last batch.
func sampleStore(t *testing.T, fs vfs.FS, dir string, samples int) (s *Store, before string) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Log.SegmentBytes = 64 << 10
	cfg.MaintenanceInterval = time.Hour
	var err error
	if s, err = Open(fs, dir, cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	appendAll := func(origin int64, n int) {
		var b store.Batch
		b.Reset(s.Epoch())
		for _, typ := range []model.Type{model.TypeLong, model.TypeDouble, model.TypeString, model.TypeComplex, model.TypeNull, "custom_type"} {
			for host := range 3 {
				ref, err := s.Create(ctx, model.Series{Metric: "sample." + string(typ), Type: typ, Tags: model.MustTags("host", fmt.Sprint("h", host))})
				if err != nil {
					t.Fatal(err)
				}
				for i := range int64(n) {
					ms := origin + i*60_000 + int64(host)*7
					switch k := typ.Kind(); {
					case k == model.Long:
						b.AddLong(ref, ms, ms*i%1_000_003, 0)
					case k == model.Double:
						b.AddDouble(ref, ms, math.Sin(float64(i+origin%97))*100, 0)
					case k == model.String:
						b.AddBytes(ref, ms, fmt.Appendf(nil, "value %010d", i*origin%7919), 0)
					case k.Variable():
						b.AddBytes(ref, ms, fmt.Appendf(nil, "%016x", uint64(i+7)*0x9E3779B97F4A7C15), 0)
					default:
						b.AddNull(ref, ms, 0)
					}
				}
			}
		}
		if err := s.Append(ctx, &b); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const origin = 1_600_000_000_000
	appendAll(origin, samples)
	appendAll(-1_000_000, samples/4)
	must(s.checkpoint())
	must(s.Close()) // opened again, the catalogue's first rows are in tables
	s, err = Open(fs, dir, cfg, Options{})
	must(err)
	must(s.Set(ctx, "service", "key", "name", "text"))
	appendAll(origin+60_000, samples/4)
	must(s.Delete(ctx, store.Deletion{Metric: "sample.kairos_long", Range: model.TimeRange{StartMS: origin, EndMS: origin + 60_000}}))
	must(s.checkpoint())
	appendAll(origin+120_000, samples/4)
	must(s.Delete(ctx, store.Deletion{Metric: "sample.kairos_double", Range: model.TimeRange{StartMS: origin, EndMS: origin + 60_000}}))
	before, err = storeContent(s)
	must(err)
	appendAll(origin+600_000, samples/8)
	return s, before
}

// image is the content of all files of a directory.
type image map[string][]byte

func readImage(t *testing.T, fs vfs.FS, dir string) image {
	t.Helper()
	img := make(image)
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p := fs.PathJoin(dir, name)
		info, err := fs.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			maps.Copy(img, readImage(t, fs, p))
			continue
		}
		f, err := fs.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size())
		if _, err := io.ReadFull(f, b); err != nil {
			t.Fatal(err)
		}
		f.Close()
		img[p] = b
	}
	return img
}

func writeFile(t *testing.T, fs vfs.FS, p string, b []byte) {
	t.Helper()
	f, err := fs.Create(p, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	// Under the race detector Pebble's file system in memory scrambles what it
	// was given to write, to find callers that count on it.
	if _, err := f.Write(slices.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// load puts an image into a file system, durably.
func (img image) load(t *testing.T) *crashfs.FS {
	t.Helper()
	fs := crashfs.New()
	for _, p := range slices.Sorted(maps.Keys(img)) {
		if err := fs.MkdirAll(path.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fs, p, img[p])
		for dir := path.Dir(p); ; dir = path.Dir(dir) {
			if err := safefile.SyncDir(fs, dir); err != nil {
				t.Fatal(err)
			}
			if dir == "." {
				break
			}
		}
	}
	return fs
}

// TestEveryFlippedByte flips bytes of every file of a store, in turn. A check
// finds it, or a store opened with it gives the answers as before. A store that
// is opened with damage gives an error or the right answers.
//
// There is one exception, of a store that was not closed. Nothing on disk shows
// that the very last write to the log was complete: damage to it looks like a
// write that a crash has cut off, and its samples are gone. The check notes such
// a tail where it can see it.
func TestEveryFlippedByte(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			fs := vfs.NewMem()
			s, before := sampleStore(t, fs, "data", 200)
			img := readImage(t, fs, "data")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if closed {
				img, before = readImage(t, fs, "data"), ""
			}
			flipAll(t, img, before)
		})
	}
}

func flipAll(t *testing.T, img image, before string) {
	want := content(t, img.load(t), "data")
	fs := img.load(t)
	if r := checkOf(t, fs, "data"); !r.Clean() || len(r.Notes) > 0 {
		t.Fatalf("before any flip: %+v", r)
	}
	flips, found, last, same := 0, 0, 0, map[string]int{}
	at := 0
	for _, p := range slices.Sorted(maps.Keys(img)) {
		for ; at < len(img[p]); at += *flipStep {
			bit := *flipBit
			if bit < 0 {
				bit = flips % 8
			}
			flips++
			b := slices.Clone(img[p])
			b[at] ^= 1 << bit
			writeFile(t, fs, p, b)
			d, err := offline.Open(fs, "data")
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Check(context.Background(), offline.CheckOptions{})
			if err := d.Close(); err != nil {
				t.Errorf("%s, bit %d of byte %d: close: %v", p, bit, at, err)
			}
			writeFile(t, fs, p, img[p])
			if err != nil {
				t.Errorf("%s, bit %d of byte %d: check: %v", p, bit, at, err)
				continue
			}
			damaged := maps.Clone(img)
			damaged[p] = b
			got, err := contentOf(damaged.load(t), "data")
			switch {
			case !r.Clean():
				found++
				if err == nil && got != want {
					t.Errorf("%s, bit %d of byte %d of %d: found, but a store opened with it gives wrong answers", p, bit, at, len(b))
				}
			case err != nil:
				t.Errorf("%s, bit %d of byte %d of %d: not found, and the store does not open: %v", p, bit, at, len(b), err)
			case got == before && kindOfFile(p) == "log/.wal":
				last++
			case got != want:
				t.Errorf("%s, bit %d of byte %d of %d: not found, and answers differ", p, bit, at, len(b))
			default:
				same[kindOfFile(p)]++
			}
		}
		at -= len(img[p])
	}
	t.Logf("%d flips: %d found, %d in the last write, harmless: %v", flips, found, last, same)
}

func kindOfFile(p string) string {
	name := path.Base(p)
	if i := strings.IndexByte(name, '-'); i > 0 {
		name = name[:i]
	}
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		name = name[i:]
	}
	return path.Base(path.Dir(p)) + "/" + name
}

func checkOf(t *testing.T, fs vfs.FS, dir string) *offline.CheckReport {
	t.Helper()
	d, err := offline.Open(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := d.Check(context.Background(), offline.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func content(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	text, err := contentOf(fs, dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// contentOf opens a store and writes down everything in it.
func contentOf(fs vfs.FS, dir string) (string, error) {
	s, err := Open(fs, dir, DefaultConfig(), Options{})
	if err != nil {
		return "", err
	}
	defer s.Close()
	return storeContent(s)
}

func storeContent(s *Store) (string, error) {
	ctx := context.Background()
	v, err := s.View(ctx)
	if err != nil {
		return "", err
	}
	defer v.Close()
	var b strings.Builder
	metrics, _, err := v.Names(ctx, store.NamesQuery{})
	if err != nil {
		return "", err
	}
	for _, m := range metrics {
		series, err := storetest.Select(ctx, v, store.Selection{Metric: m, Range: model.AllTime})
		if err != nil {
			return "", err
		}
		for _, one := range series {
			fmt.Fprintln(&b, one.Series)
			if err := writeSamples(&b, v, one); err != nil {
				return b.String(), err
			}
		}
	}
	for key, err := range s.Keys(ctx, "service", "key", "") {
		if err != nil {
			return "", err
		}
		value, err := s.Get(ctx, "service", "key", key)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "service/key/%s = %s\n", key, value.Text)
	}
	return b.String(), nil
}

func writeSamples(b *strings.Builder, v store.View, series store.Series) error {
	c := v.Read(context.Background(), series, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for {
		block, err := c.Next()
		if err != nil || block == nil {
			return err
		}
		for i, ms := range block.Times {
			switch k := series.Type.Kind(); {
			case k.Fixed():
				fmt.Fprintf(b, "%d %x\n", ms, block.Values[i])
			case k.Variable():
				fmt.Fprintf(b, "%d %q\n", ms, block.Bytes(i))
			default:
				fmt.Fprintf(b, "%d null\n", ms)
			}
		}
	}
}
