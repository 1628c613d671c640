package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/offline"
	"varve/internal/model"
)

var faultStep = flag.Int("embedded.faults", 8, "of how many file system calls one fails, or is the last before a power cut; 1 = each")

// TestPowerCutAtEachCall cuts the power before each call to the file system that
// a store makes while it starts, replays, takes writes, checkpoints, merges,
// deletes, expires, compacts and closes: once with everything lost that was not
// synced, once with some of it, once with nothing lost, as by kill -9. Of some,
// the start after it is cut off too. A check finds no damage in the remaining files. With
// durability interval a power cut may lose only samples that were not synced.
func TestPowerCutAtEachCall(t *testing.T) {
	for _, durability := range []string{"fsync", "interval"} {
		t.Run(durability, func(t *testing.T) { cutAtEachCall(t, durability) })
	}
}

func cutAtEachCall(t *testing.T, durability string) {
	mem := crashfs.New()
	before := newFaultScript(mem, newPromises())
	before.cfg.Log.Durability, before.cfg.Log.SyncInterval = durability, time.Minute
	if err := before.begin(); err != nil {
		t.Fatal(err)
	}
	killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	before.fs = killed
	if err := before.store.Close(); err != nil {
		t.Fatal(err)
	}
	before.store = nil

	step := int64(*faultStep)
	if testing.Short() {
		step *= 2
	}
	c := &cutter{t: t, script: before, fs: killed, step: step, offset: rand.Int64N(step)}
	before.fs = errorfs.Wrap(killed, c)
	if err := before.rest(); err != nil {
		t.Fatal(err)
	}
	if err := before.promises.checkDisk(killed, before.cfg, before.now.Load()); err != nil {
		t.Error("at the end:", err)
	}
	t.Logf("%d calls, %d power cuts, %d of them twice", c.calls.Load(), c.cuts, c.twice)
}

// A cutter takes copies of a file system before calls to it, and starts on them.
type cutter struct {
	t      *testing.T
	script *faultScript
	fs     *crashfs.FS
	step   int64 // of how many calls one is the last
	offset int64
	calls  atomic.Int64

	mu          sync.Mutex
	cuts, twice int
}

// MaybeError implements [errorfs.Injector].
func (c *cutter) MaybeError(op errorfs.Op) error {
	n := c.calls.Add(1)
	if n%c.step != c.offset || c.t.Failed() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, percent := range []int{0, 60, 100} {
		if err := c.cut(n, percent); err != nil {
			c.t.Errorf("power cut before call %d (%v of %s), %d %% of the unsynced data kept: %v", n, op.Kind, op.Path, percent, err)
			break
		}
	}
	return nil
}

func (c *cutter) String() string { return "power cuts" }

func (c *cutter) cut(n int64, percent int) error {
	random := rand.New(rand.NewPCG(uint64(n), uint64(percent)))
	var now *promises
	var disk *crashfs.FS
	var nowMS int64 // the script may continue meanwhile
	c.script.promises.while(func(p *promises) {
		now, nowMS = p, c.script.now.Load()
		disk = c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
	})
	c.cuts++
	if percent < 100 && c.script.cfg.Log.Durability == "interval" {
		now.afterPowerCut()
	}
	if random.IntN(4) == 0 {
		c.twice++
		disk = cutStart(disk, nowMS, random)
	}
	if err := checkFiles(disk); err != nil {
		return fmt.Errorf("taken for damage: %w", err)
	}
	return now.checkDisk(disk, c.script.cfg, nowMS)
}

// cutStart starts a store on disk, cuts the power meanwhile, and returns what is
// left.
func cutStart(disk *crashfs.FS, nowMS int64, random *rand.Rand) *crashfs.FS {
	var calls atomic.Int64
	var left atomic.Pointer[crashfs.FS]
	last := 1 + random.Int64N(250) // a start takes about so many
	percent := random.IntN(101)
	faulty := errorfs.Wrap(disk, errorfs.InjectorFunc(func(errorfs.Op) error {
		if calls.Add(1) == last {
			left.Store(disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random}))
		}
		return nil
	}))
	again := newFaultScript(faulty, newPromises())
	again.now.Store(nowMS)
	if again.open() == nil {
		again.close()
	}
	if fs := left.Load(); fs != nil {
		return fs
	}
	return disk
}

// checkDisk starts a store on a sound disk, compares it, checks its files, and
// tries that it goes on: deletes count, those of what was merged before too.
func (p *promises) checkDisk(disk *crashfs.FS, cfg Config, nowMS int64) error {
	after := newFaultScript(disk, p)
	after.cfg.Log, after.value = cfg.Log, 1_000_000
	after.now.Store(nowMS)
	err := after.run([]func() error{
		after.look,
		func() error {
			return after.erase("fault.a", model.TimeRange{StartMS: crashOrigin + 60*minuteMS, EndMS: math.MaxInt64})
		},
		func() error { return after.erase(edge, model.TimeRange{StartMS: math.MinInt64, EndMS: 0}) },
		after.look,
		func() error { return after.write("fault.a", 2, crashOrigin+40*minuteMS, 10*minuteMS, 5, 0) },
		func() error { return after.write("fault.after", 1, crashOrigin, 1000, 3, 0) },
		func() error { return after.set(3) },
		after.compact,
		after.look,
		after.close,
	})
	if err != nil {
		return errors.Join(err, after.abandon())
	}
	return checkFiles(disk)
}

// abandon closes a store that a failed run has left open.
func (f *faultScript) abandon() error {
	if f.store == nil {
		return nil
	}
	return f.close()
}

// checkFiles looks for damage in all files.
func checkFiles(fs vfs.FS) error {
	d, err := offline.Open(fs, "data")
	if err != nil {
		return err
	}
	report, err := d.Check(context.Background(), offline.CheckOptions{})
	if err == nil && (!report.Clean() || report.Leftover > 0) {
		err = fmt.Errorf("check: %+v", *report)
	}
	return errors.Join(err, d.Close())
}
