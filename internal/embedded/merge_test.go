package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/embedded/datadir"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// fileStore is a store whose checkpoints and merges a test makes itself, and
// what must be in it.
type fileStore struct {
	*Store
	t    *testing.T
	want map[place]int64
	next int64
}

func newFileStore(t *testing.T, fs vfs.FS, change func(*Config)) *fileStore {
	t.Helper()
	cfg := DefaultConfig()
	cfg.CheckpointInterval, cfg.MaintenanceInterval = time.Hour, time.Hour
	cfg.CheckpointSamples = 1 << 40
	if change != nil {
		change(&cfg)
	}
	s, err := Open(fs, "data", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &fileStore{Store: s, t: t, want: make(map[place]int64)}
}

func (fs *fileStore) must(err error) {
	fs.t.Helper()
	if err != nil {
		fs.t.Fatal(err)
	}
}

// value returns the n-th value: no two are equal, and they do not compress to nothing.
func value(n int64) int64 { return n<<10 | int64(uint64(n)*0x9e3779b97f4a7c15>>54) }

// put writes a new value to each time of a series.
func (fs *fileStore) put(metric string, series int, times ...int64) {
	fs.t.Helper()
	ctx := context.Background()
	var b store.Batch
	for {
		b.Reset(fs.Epoch())
		ref, err := fs.Create(ctx, model.Series{Metric: metric, Type: model.TypeLong, Tags: model.MustTags("n", fmt.Sprint(series))})
		fs.must(err)
		for i, ms := range times {
			b.AddLong(ref, ms, value(fs.next+int64(i)), 0)
		}
		if err := fs.Append(ctx, &b); !errors.Is(err, store.ErrStale) {
			fs.must(err)
			break
		}
	}
	for _, ms := range times {
		fs.want[place{fmt.Sprintf("%s %d", metric, series), ms}] = value(fs.next)
		fs.next++
	}
}

func (fs *fileStore) erase(metric string, r model.TimeRange) {
	fs.t.Helper()
	fs.must(fs.Delete(context.Background(), store.Deletion{Metric: metric, Range: r}))
	maps.DeleteFunc(fs.want, func(at place, _ int64) bool {
		return strings.HasPrefix(at.series, metric+" ") && r.Contains(at.ms)
	})
}

func (fs *fileStore) check(when string) {
	fs.t.Helper()
	found := make(map[place]int64)
	fs.must((&promises{}).readSamples(fs.Store, found))
	for at, v := range fs.want {
		if got, ok := found[at]; !ok || got != v {
			fs.t.Fatalf("%s: %v is %d (found: %v), want %d", when, at, got, ok, v)
		}
	}
	if len(found) != len(fs.want) {
		fs.t.Fatalf("%s: %d samples, want %d", when, len(found), len(fs.want))
	}
}

func (fs *fileStore) files() int { return fs.Usage().Files }

// names counts the block files of the directory, whether they count or not.
func (fs *fileStore) names() int {
	fs.t.Helper()
	names, err := fs.fs.List(fs.path(datadir.Blocks))
	fs.must(err)
	return len(names)
}

func (fs *fileStore) mergedSamples() float64 {
	var m dto.Metric
	fs.must(fs.metrics.mergedSamples.Write(&m))
	return m.Counter.GetValue()
}

// TestMergesKeepTheNewest overwrites samples again and again, in files of one
// partition and of many, with deletions between, and merges whatever is due.
func TestMergesKeepTheNewest(t *testing.T) {
	const width, partitions, series = int64(3_600_000), 12, 8
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 9))
		fs := newFileStore(t, vfs.NewMem(), func(c *Config) { c.RowWidth, c.MergeFiles = time.Hour, 2+int(seed) })
		start := fs.width.Partition(crashOrigin)
		rounds := 40
		if testing.Short() {
			rounds = 12
		}
		for round := range rounds {
			for n := range series {
				var times []int64
				hot := rng.IntN(partitions)
				if rng.IntN(2) == 0 { // enough for a file of its own
					for i := range width / 1000 {
						if rng.IntN(4) > 0 {
							times = append(times, start+int64(hot)*width+i*1000)
						}
					}
				}
				for range rng.IntN(40) {
					times = append(times, start+rng.Int64N(partitions*width/1000)*1000)
				}
				if len(times) > 0 {
					fs.put("overwritten", n, times...)
				}
			}
			fs.must(fs.checkpoint())
			if rng.IntN(5) == 0 {
				from := start + rng.Int64N(partitions*width)
				fs.erase("overwritten", model.TimeRange{StartMS: from, EndMS: from + rng.Int64N(2*width)})
			}
			fs.must(fs.maintain(context.Background()))
			if round%8 == 7 {
				fs.check(fmt.Sprintf("seed %d, round %d", seed, round))
			}
		}
		fs.must(fs.Compact(context.Background()))
		fs.check(fmt.Sprintf("seed %d, merged into one file a partition", seed))
		if n := fs.files(); n > partitions+1 {
			t.Errorf("%d files for %d partitions", n, partitions)
		}
	}
}

// TestLatePointsShareFiles writes one late point in each checkpoint. Most are of
// partitions that have large files already; none may get a small one for long.
func TestLatePointsShareFiles(t *testing.T) {
	for _, dense := range []bool{false, true} {
		t.Run(fmt.Sprintf("dense %v", dense), func(t *testing.T) {
			const partitions, checkpoints = 60, 300
			fs := newFileStore(t, vfs.NewMem(), func(c *Config) { c.RowWidth = 24 * time.Hour })
			start := fs.width.Partition(crashOrigin)
			large := 0
			if dense {
				for p := range int64(partitions) {
					times := make([]int64, partition.DenseSamples)
					for i := range times {
						times[i] = start + p*fs.width.Width + int64(i)*1000
					}
					fs.put("load", 0, times...)
				}
				fs.must(fs.checkpoint())
				fs.must(fs.maintain(context.Background()))
				large = fs.files()
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range checkpoints {
				fs.put("load", 0, start+rng.Int64N(partitions*fs.width.Width))
				fs.must(fs.checkpoint())
				fs.must(fs.maintain(context.Background()))
			}
			fs.check("late points")
			if n := fs.files() - large; n > 20 {
				t.Errorf("%d files for %d late points", n, checkpoints)
			}
		})
	}
}

// TestLatePointsCostNoMerges compares how often samples are merged with and
// without late points of one in a hundred.
func TestLatePointsCostNoMerges(t *testing.T) {
	const series, each, checkpoints = 170, 100, 70
	merged := func(late int) float64 {
		fs := newFileStore(t, vfs.NewMem(), nil)
		start := fs.width.Partition(crashOrigin)
		rng := rand.New(rand.NewPCG(1, 2))
		for k := range checkpoints {
			for n := range series {
				var times []int64
				for i := range each {
					times = append(times, start+int64(k*each+i)*10_000)
				}
				for range late {
					times = append(times, start-rng.Int64N(10*365*24*3_600_000))
				}
				fs.put("load", n, times...)
			}
			fs.must(fs.checkpoint())
			fs.must(fs.maintain(context.Background()))
		}
		return fs.mergedSamples() / float64(fs.next)
	}
	without, with := merged(0), merged(each/100)
	t.Logf("each sample is merged %.1f times without late points, %.1f times with them", without, with)
	if with > 1.3*without+0.3 {
		t.Errorf("each sample is merged %.1f times without late points, %.1f times with them", without, with)
	}
}

// TestCheckpointHoldsFewStrings writes a series of long equal strings, which the
// head keeps compressed. A checkpoint must not expand all of them at once.
func TestCheckpointHoldsFewStrings(t *testing.T) {
	const samples, size = 200_000, 1000
	fs := newFileStore(t, vfs.NewMem(), func(c *Config) { c.HeadBytes, c.HeadBytesMax = units.GiB, 2*units.GiB })
	ctx := context.Background()
	ref, err := fs.Create(ctx, model.Series{Metric: "status", Type: model.TypeString, Tags: model.MustTags("host", "a")})
	fs.must(err)
	var b store.Batch
	for i := int64(0); i < samples; {
		b.Reset(fs.Epoch())
		for range 1000 {
			b.AddBytes(ref, crashOrigin+i*1000, []byte(strings.Repeat("x", size)), 0)
			i++
		}
		fs.must(fs.Append(ctx, &b))
	}
	if n := fs.buffered(); n < samples*size {
		t.Errorf("%d bytes of strings count as %d bytes", samples*size, n)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fs.must(fs.checkpoint())
	runtime.ReadMemStats(&after)
	// All that was ever allocated, so that nothing depends on when it is collected.
	if n := after.TotalAlloc - before.TotalAlloc; n > samples*size/2 {
		t.Errorf("a checkpoint of %d bytes of strings has allocated %d bytes", samples*size, n)
	}
	if u := fs.Usage(); u.FileSamples != samples {
		t.Errorf("%d samples in files, want %d", u.FileSamples, samples)
	}
}

// TestFailedOutputLeavesNoFiles lets the directory of block files not be synced,
// or what was written not be read back.
func TestFailedOutputLeavesNoFiles(t *testing.T) {
	for name, kind := range map[string]errorfs.OpKind{"sync": errorfs.OpFileSync, "read": errorfs.OpFileReadAt} {
		t.Run(name, func(t *testing.T) {
			var broken atomic.Bool
			disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && op.Kind == kind && strings.Contains(op.Path, "/"+datadir.Blocks) && (kind != errorfs.OpFileSync || strings.HasSuffix(op.Path, datadir.Blocks)) {
					return errors.New("injected")
				}
				return nil
			}))
			fs := newFileStore(t, disk, nil)
			fs.put("load", 0, crashOrigin)
			broken.Store(true)
			for range 3 {
				if err := fs.checkpoint(); err == nil {
					t.Fatal("the checkpoint succeeded")
				}
			}
			if n := fs.names(); n != 0 {
				t.Errorf("failed checkpoints have left %d files", n)
			}
			broken.Store(false)
			fs.must(fs.checkpoint())
			fs.check("once it works")
		})
	}
}

// TestDamagedFileHoldsUpNoOthers damages a file: newer ones are still merged, so
// that their number stays bounded, and the damaged one goes once all of it is
// deleted.
func TestDamagedFileHoldsUpNoOthers(t *testing.T) {
	mem := vfs.NewMem()
	fs := newFileStore(t, mem, func(c *Config) { c.PageCacheBytes = 0 })
	fs.put("load", 0, crashOrigin, crashOrigin+1000)
	fs.must(fs.checkpoint())
	damage(t, mem, fs.current.files[0].Path)
	for i := range int64(100) {
		fs.put("load", 1, crashOrigin+i*1000)
		fs.must(fs.checkpoint())
		fs.must(fs.maintain(context.Background()))
	}
	if fs.Damaged() == nil {
		t.Fatal("the damage was not met")
	}
	if n := fs.files(); n > 15 {
		t.Errorf("%d files beside a damaged one", n)
	}
	fs.erase("load", model.AllTime)
	fs.must(fs.maintain(context.Background()))
	if n := fs.names(); n != 0 {
		t.Errorf("%d files of which nothing is left", n)
	}
	fs.check("all deleted")
}

// damage flips a bit of a file's first page.
func damage(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], 24); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], 24); err != nil {
		t.Fatal(err)
	}
}
