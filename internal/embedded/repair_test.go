package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/diskfs/crashfs"
	"varve/internal/embedded/datadir"
	"varve/internal/embedded/offline"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
)

// linesOf returns series and time of each sample of a content.
func linesOf(content string) map[string]bool {
	set := make(map[string]bool)
	series := ""
	for line := range strings.Lines(content) {
		if line[0] >= '0' && line[0] <= '9' || line[0] == '-' {
			ms, _, _ := strings.Cut(line, " ")
			set[series+ms] = true
			continue
		}
		series = line
	}
	return set
}

// damagePlaces flips one byte in several places of each file with the suffix.
func damagePlaces(img image, suffix string, places int) []image {
	var damaged []image
	for _, p := range slices.Sorted(maps.Keys(img)) {
		if !strings.HasSuffix(p, suffix) {
			continue
		}
		for i := range places {
			b := slices.Clone(img[p])
			b[len(b)*i/places] ^= 0x10
			one := maps.Clone(img)
			one[p] = b
			damaged = append(damaged, one)
		}
	}
	return damaged
}

// TestRepair damages block files and the log in many places. After a repair the
// check is clean, the store opens, and has nothing that it had not before; of
// block files nothing is missing but what the check said.
func TestRepair(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 400)
	img := readImage(t, fs, "data")
	before, err := storeContent(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	had := linesOf(before)
	for _, suffix := range []string{".blk", ".wal"} {
		for i, damaged := range damagePlaces(img, suffix, 9) {
			fs := damaged.load(t)
			if checkOf(t, fs, "data").Clean() {
				continue // a stale part of the log, or its last write
			}
			r, err := Repair(context.Background(), fs, "data", offline.RepairOptions{})
			if err != nil {
				t.Fatalf("%s %d: %v", suffix, i, err)
			}
			if !r.Clean() {
				t.Fatalf("%s %d: not clean after the repair: %+v", suffix, i, r.Findings)
			}
			if names, _ := fs.List("data/quarantine"); len(names) != 2 {
				t.Errorf("%s %d: in quarantine: %v, want a file and a text", suffix, i, names)
			}
			after := linesOf(content(t, fs, "data"))
			for sample := range after {
				// A value may be an older one, which a lost one had replaced. A
				// lost deletion brings samples back.
				if !had[sample] && suffix == ".blk" {
					t.Fatalf("%s %d: a sample that was not there: %s", suffix, i, sample)
				}
			}
			if len(after) < len(had)/4 {
				t.Errorf("%s %d: only %d of %d samples left", suffix, i, len(after), len(had))
			}
		}
	}
}

// brokenStore is a store with damage in a block file and in its log.
func brokenStore(t *testing.T) image {
	t.Helper()
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	img := readImage(t, fs, "data")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := damagePlaces(img, ".blk", 3)[1]
	for p := range damaged { // and the log
		if strings.HasSuffix(p, ".wal") {
			b := slices.Clone(damaged[p])
			b[100] ^= 1
			damaged[p] = b
		}
	}
	return damaged
}

// mustRepair repairs a store, which is clean then.
func mustRepair(t *testing.T, fs vfs.FS) {
	t.Helper()
	r, err := Repair(context.Background(), fs, "data", offline.RepairOptions{})
	if err != nil || !r.Clean() {
		t.Fatalf("%v %+v", err, r)
	}
}

// TestRepairOnAFailingDisk: whichever call of the file system fails, the repair says
// so or has done all of its work, and can be run again. Calls for the catalogue are
// left out: Pebble ends a process that cannot write it.
func TestRepairOnAFailingDisk(t *testing.T) {
	damaged := brokenStore(t)
	whole := damaged.load(t)
	mustRepair(t, whole)
	want := content(t, whole, "data")
	broken := errors.New("the disk is broken")
	step := int64(3)
	if testing.Short() {
		step = 17
	}
	for n := int64(1); ; n += step {
		fs := damaged.load(t)
		var calls atomic.Int64
		var failed string
		r, err := Repair(t.Context(), errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, datadir.Catalogue) || calls.Add(1) != n {
				return nil
			}
			failed = fmt.Sprintf("call %d of kind %d for %s", n, op.Kind, op.Path)
			return broken
		})), "data", offline.RepairOptions{})
		if failed == "" {
			break
		}
		if err == nil && !r.Clean() {
			t.Errorf("%s: no error, and %+v", failed, r.Findings)
		}
		mustRepair(t, fs)
		if got := content(t, fs, "data"); got != want {
			t.Errorf("%s: another content", failed)
		}
	}
}

// A repair that is killed, or that a power cut ends, at any call of the file
// system can be run again.
func TestRepairIsInterrupted(t *testing.T) {
	damaged := brokenStore(t)
	whole := damaged.load(t)
	mustRepair(t, whole)
	want := content(t, whole, "data")
	for n := int64(0); ; n += 5 {
		fs := damaged.load(t)
		var calls atomic.Int64
		var killed *crashfs.FS
		mustRepair(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
			if calls.Add(1) == n {
				killed = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * int(n%2), RNG: randOf(uint64(n))})
			}
			return nil
		})))
		if calls.Load() < n {
			break
		}
		if killed == nil {
			continue
		}
		mustRepair(t, killed)
		if got := content(t, killed, "data"); got != want {
			t.Fatalf("killed at call %d: another content", n)
		}
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := damagePlaces(readImage(t, fs, "data"), ".blk", 3)[1]
	fs = damaged.load(t).MemFS
	said := 0
	r, err := Repair(context.Background(), fs, "data", offline.RepairOptions{DryRun: true, Say: func(string) { said++ }})
	if err != nil || r.Clean() || said == 0 {
		t.Errorf("%v %+v, said %d", err, r, said)
	}
	after := readImage(t, fs, "data")
	if !maps.EqualFunc(damaged, after, bytes.Equal) {
		t.Error("files changed")
	}
}

func TestRepairWithoutCatalogue(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := damagePlaces(readImage(t, fs, "data"), ".sst", 2)[1]
	fs = damaged.load(t).MemFS
	_, err := Repair(context.Background(), fs, "data", offline.RepairOptions{})
	if unrepairable := (*offline.UnrepairableError)(nil); !errors.As(err, &unrepairable) || !strings.Contains(err.Error(), "restore the last backup") {
		t.Errorf("%v", err)
	}
}

// TestOpenDamagedParts: a table of the catalogue that is damaged, missing or cut off, and a missing
// block file, are damage, told in one line with the file.
func TestOpenDamagedParts(t *testing.T) {
	mem := vfs.NewMem()
	s, _ := sampleStore(t, mem, "data", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	image := readImage(t, mem, "data")
	without := func(suffix string, keep int) *crashfs.FS {
		rest := maps.Clone(image)
		for name := range image {
			if strings.HasSuffix(name, suffix) {
				delete(rest, name)
				if keep > 0 {
					rest[name] = image[name][:keep]
				}
			}
		}
		return rest.load(t)
	}
	for want, files := range map[string]*crashfs.FS{
		"data/catalogue: damaged: ": damagePlaces(image, ".sst", 2)[1].load(t),
		"file does not exist":       without(".sst", 0),
		"object size mismatch":      without(".sst", 100),
		"bytes, got no such file":   without(".blk", 0),
	} {
		_, err := Open(files.MemFS, "data", DefaultConfig(), Options{})
		if damage := (*store.CorruptionError)(nil); !errors.As(err, &damage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want damage with %s", err, want)
		}
	}
}

// TestRepairLeavesNewerFiles: what a newer build has written is no damage.
func TestRepairLeavesNewerFiles(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	image := readImage(t, fs, "data")
	for name, b := range image {
		if strings.HasSuffix(name, ".blk") {
			b = bytes.Replace(b, []byte(`"chunks"`), []byte(`"others"`), 1)
			b[8] = 200
			image[name] = b
		}
	}
	fs = image.load(t).MemFS
	_, err := Repair(context.Background(), fs, "data", offline.RepairOptions{})
	if unrepairable := (*offline.UnrepairableError)(nil); !errors.As(err, &unrepairable) || !strings.Contains(err.Error(), "were written by a newer build") || !strings.Contains(err.Error(), "use the newer build") {
		t.Errorf("%v", err)
	}
	if after := readImage(t, fs, "data"); !maps.EqualFunc(image, after, bytes.Equal) {
		t.Error("files changed")
	}
}

// A damaged page fails the queries that need it and no others; merges leave its
// file alone and do not come back to it; the rest is merged.
func TestDamagedPageWhileServing(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	cfg := DefaultConfig()
	cfg.MaintenanceInterval = time.Hour
	s, err := Open(fs, "data", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Create(ctx, model.Series{Metric: "m", Type: model.TypeLong})
	if err != nil {
		t.Fatal(err)
	}
	const day, rounds = 24 * 3600_000, 14
	for i := range int64(rounds) {
		var b store.Batch
		b.Reset(s.Epoch())
		for j := range int64(2000) {
			b.AddLong(ref, 1_700_600_000_000+i*day/4+j*1000, i*j*j, 0)
		}
		if err := s.Append(ctx, &b); err != nil {
			t.Fatal(err)
		}
		s.merging.Lock() // no merges yet
		if err := s.checkpoint(); err != nil {
			t.Fatal(err)
		}
		s.merging.Unlock()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	img := readImage(t, fs, "data")
	for _, p := range slices.Sorted(maps.Keys(img)) {
		if strings.HasSuffix(p, ".blk") {
			img[p] = slices.Clone(img[p])
			img[p][20] ^= 4 // in the first page
			break           // the oldest file, or what it was merged into
		}
	}
	cfg.MaintenanceInterval = 10 * time.Millisecond
	s, err = Open(img.load(t), "data", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	read := func(from int64) error {
		v, err := s.View(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		c := v.Read(ctx, store.Series{Ref: ref, Series: model.Series{Metric: "m", Type: model.TypeLong}},
			store.ReadOptions{Range: model.TimeRange{StartMS: from, EndMS: 1 << 60}})
		defer c.Close()
		for {
			b, err := c.Next()
			if b == nil {
				return err
			}
		}
	}
	if err := read(1_700_600_000_000 + (rounds-1)*day/4); err != nil {
		t.Errorf("a query that does not need the damaged page: %v", err)
	}
	if err, damage := read(0), (*store.CorruptionError)(nil); !errors.As(err, &damage) {
		t.Errorf("a query that needs the damaged page: %v", err)
	}
	if err := s.Damaged(); err == nil || !strings.HasPrefix(err.Error(), "1 of ") {
		t.Errorf("damaged files: %v", err)
	}
	if err := s.Compact(ctx); err != nil {
		t.Errorf("compact: %v", err)
	}
	if n := s.Usage().Files; n != 2 {
		t.Errorf("%d files after compaction, want the damaged one and one more", n)
	}
	if err := read(0); err == nil {
		t.Error("the damaged page is gone")
	}
}

// A backup is made while writes, deletions and merges continue. It has
// everything acknowledged before, its check is clean, and it opens.
func TestBackupUnderLoad(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fs := crashfs.New()
	cfg := DefaultConfig()
	cfg.MergeFiles = 2
	cfg.MaintenanceInterval = 10 * time.Millisecond
	cfg.CheckpointSamples = 20_000
	cfg.Log.SegmentBytes = 64 << 10
	s, err := Open(fs, "data", cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	series := newCrashSeries(4)
	var writers sync.WaitGroup
	for i, c := range series {
		writers.Go(func() { c.write(ctx, s, math.MaxInt, randOf(uint64(i))) })
	}
	for round := range 4 {
		time.Sleep(150 * time.Millisecond)
		acked := make([]int64, len(series))
		for i, c := range series {
			acked[i] = c.acked.Load()
		}
		name := fmt.Sprintf("backup-%d", round)
		report, err := s.Backup(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cut := fs.CrashClone(vfs.CrashCloneCfg{}) // it is there after a power cut
		r := checkOf(t, cut, report.Dir)
		if !r.Clean() {
			t.Fatalf("%s: %+v", name, r.Findings)
		}
		restored, err := Open(cut, report.Dir, cfg, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range series {
			then := &crashSeries{Series: c.Series}
			then.issued.Store(c.issued.Load())
			then.acked.Store(acked[i])
			if err := then.check(restored); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
	}
	live, err := s.Check(ctx, offline.CheckOptions{})
	if err != nil || !live.Clean() {
		t.Errorf("check while it serves: %v %+v", err, live)
	}
	cancel()
	writers.Wait()
	for _, name := range []string{"", "a/b", "..", ".x", "x y", strings.Repeat("x", 101), "backup-1"} {
		if _, err := s.Backup(context.Background(), name); !isInput(err) {
			t.Errorf("backup %q: %v", name, err)
		}
	}
}

// TestBackupsAreBounded: one backup is made at a time, and no more are kept than a
// directory should hold.
func TestBackupsAreBounded(t *testing.T) {
	ctx, mem := context.Background(), vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	s.backingUp.Lock()
	_, err := s.Backup(ctx, "second")
	s.backingUp.Unlock()
	if busy := (*store.UnavailableError)(nil); !errors.As(err, &busy) || err.Error() != "another backup is being made; try again when it is done" {
		t.Errorf("a second backup at the same time: %v", err)
	}
	for i := range offline.MaxBackups - 1 {
		s.must(t, mem.MkdirAll(s.fs.PathJoin(s.BackupDir(), fmt.Sprint("b", i)), 0o755))
	}
	if _, err := s.Backup(ctx, "last"); err != nil {
		t.Error(err)
	}
	_, err = s.Backup(ctx, "further")
	if limit := (*store.LimitError)(nil); !errors.As(err, &limit) || !strings.Contains(err.Error(), "backup further: limit backups of 1000 reached, at least 1001 needed: keep backups in data/backups; remove old ones") {
		t.Errorf("one backup too many: %v", err)
	}
}

// TestBackupsLeaveEachOther: regardless of their names, a backup does not remove another. One
// that a crash has ended goes with the next, also if that has another name; one that
// another server makes in the same directory stays.
func TestBackupsLeaveEachOther(t *testing.T) {
	ctx, mem := context.Background(), vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	have := func(names ...string) {
		t.Helper()
		got, err := mem.List(s.BackupDir())
		slices.Sort(got)
		if err != nil || !slices.Equal(got, names) {
			t.Errorf("%q, %v, want %q", got, err, names)
		}
	}
	for _, name := range []string{"a.tmp", "a", "a.tmp.tmp"} {
		_, err := s.Backup(ctx, name)
		s.must(t, err)
	}
	have("a", "a.tmp", "a.tmp.tmp")
	path := func(name string) string { return mem.PathJoin(s.BackupDir(), name) }
	for _, name := range []string{".unfinished-dead", ".unfinished-other"} {
		s.must(t, mem.MkdirAll(mem.PathJoin(path(name), datadir.Blocks), 0o755))
	}
	other, err := datadir.Lock(mem, path(".unfinished-other"))
	s.must(t, err)
	defer other.Close()
	_, err = s.Backup(ctx, "b")
	s.must(t, err)
	have(".unfinished-other", "a", "a.tmp", "a.tmp.tmp", "b")
	if _, err := s.Backup(ctx, "other"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a backup of the same name beside it: %v", err)
	}
	have(".unfinished-other", "a", "a.tmp", "a.tmp.tmp", "b")
}

// A file that is named as an unfinished backup keeps no backup from being made, and stays.
func TestBackupBesideAFile(t *testing.T) {
	ctx, mem := context.Background(), vfs.NewMem()
	s := mustOpen(t, mem, quietConfig("fsync"))
	defer s.Close()
	s.must(t, mem.MkdirAll(s.BackupDir(), 0o755))
	file := mem.PathJoin(s.BackupDir(), ".unfinished-file")
	writeFile(t, mem, file, []byte("x"))
	for _, name := range []string{"a", "b"} {
		if _, err := s.Backup(ctx, name); err != nil {
			t.Errorf("backup %s: %v", name, err)
		}
	}
	if info, err := mem.Stat(file); err != nil || info.IsDir() || info.Size() != 1 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestBackupBesideThatOfAnotherServer: at whichever call of one server's backup another server
// makes one in the same directory, the first is whole or an error, and the second is whole. The
// first fails at three calls only: as it locks its new directory, and where it has given up the
// lock and not got its name yet. Files of it are never removed while it may still get its name.
func TestBackupBesideThatOfAnotherServer(t *testing.T) {
	for at, fails := 1, 0; ; at++ {
		mem, calls := vfs.NewMem(), 0
		var meanwhile atomic.Pointer[func()]
		own := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if f := meanwhile.Load(); f != nil && strings.Contains(op.Path, "shared/.unfinished-own") {
				if calls++; calls == at {
					meanwhile.Store(nil)
					(*f)()
				}
			}
			return nil
		}))
		others := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRemoveAll && op.Path == "shared/.unfinished-own" {
				t.Errorf("call %d: files of a backup are removed that may still get its name", at)
			}
			return nil
		}))
		cfg := quietConfig("fsync")
		cfg.BackupDir = "shared"
		s := mustOpen(t, own, cfg)
		putRandom(t, s, "saved", 100, crashOrigin)
		other, err := Open(others, "other", cfg, Options{})
		s.must(t, err)
		putRandom(t, other, "others", 100, crashOrigin)
		backUp := func() {
			_, err := other.Backup(t.Context(), "other")
			s.must(t, err)
		}
		meanwhile.Store(&backUp)
		_, err = s.Backup(t.Context(), "own")
		over := meanwhile.Load() != nil
		s.must(t, errors.Join(s.Close(), other.Close()))
		if over && (err != nil || at < 20) {
			t.Fatalf("the backup has only %d calls: %v", at, err)
		}
		if over {
			return
		}
		if got, want := content(t, mem, "shared/other"), content(t, mem, "other"); got != want || want == "" {
			t.Errorf("call %d: %d bytes of samples in the other backup, want %d", at, len(got), len(want))
		}
		if err != nil {
			if fails++; fails > 3 || !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("call %d: %v", at, err)
			}
			continue
		}
		if got, want := content(t, mem, "shared/own"), content(t, mem, "data"); got != want || want == "" {
			t.Errorf("call %d: %d bytes of samples in the backup, want %d", at, len(got), len(want))
		}
	}
}

func isInput(err error) bool {
	input := (*store.InputError)(nil)
	return errors.As(err, &input)
}

func randOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// TestBackupOfAFailingDisk: a backup of which any call fails is an error, and is not
// there, and the store continues. The next one is complete.
func TestBackupOfAFailingDisk(t *testing.T) {
	mem := vfs.NewMem()
	var left int // calls until one fails
	var failed string
	var meanwhile func() // is called once, while the catalogue is being copied
	broken := errors.New("the disk is broken")
	fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.Contains(op.Path, "/"+datadir.Backups) {
			return nil
		}
		if f := meanwhile; f != nil && strings.Contains(op.Path, "/OPTIONS-") {
			meanwhile = nil
			f()
		}
		if left--; left != 0 {
			return nil
		}
		failed = fmt.Sprintf("call of kind %d for %s", op.Kind, op.Path)
		return broken
	}))
	s := mustOpen(t, fs, quietConfig("fsync"))
	saved := newCrashSeries(1)[0]
	var report *offline.BackupReport
	for n := 1; ; n++ {
		failed, left = "", n
		meanwhile = func() { saved.writeOnce(t.Context(), s, 10) } // into the log only
		var err error
		report, err = s.Backup(t.Context(), "daily")
		if failed == "" {
			s.must(t, err)
			break
		}
		left = 0
		if err == nil {
			t.Fatalf("%s failed without an error", failed)
		}
		if _, err := mem.Stat(mem.PathJoin(s.BackupDir(), "daily")); err == nil {
			t.Fatalf("%s: the backup is there: %v", failed, err)
		}
		s.must(t, s.Healthy())
	}
	if report.Files == 0 || report.Segments == 0 {
		t.Errorf("%+v", report)
	}
	s.must(t, s.Close())
	if got, want := content(t, mem, report.Dir), content(t, mem, "data"); got != want || want == "" {
		t.Errorf("restored %d bytes of samples, want %d", len(got), len(want))
	}
}

// noLinks is a file system that cannot link, as between two disks.
type noLinks struct{ vfs.FS }

func (noLinks) Link(string, string) error { return syscall.EXDEV }

// TestBackupToAnotherDisk: where files cannot be linked they are copied.
func TestBackupToAnotherDisk(t *testing.T) {
	mem := vfs.NewMem()
	cfg := quietConfig("fsync")
	cfg.BackupDir = "elsewhere/backups"
	s := mustOpen(t, noLinks{mem}, cfg)
	putRandom(t, s, "saved", 1000, crashOrigin)
	report, err := s.Backup(t.Context(), "daily")
	s.must(t, err)
	s.must(t, s.Close())
	if report.Dir != "elsewhere/backups/daily" || report.FileBytes == 0 || report.Copied != report.FileBytes+report.LogBytes {
		t.Errorf("%+v", report)
	}
	if got, want := content(t, mem, report.Dir), content(t, mem, "data"); got != want || want == "" {
		t.Errorf("%d bytes of samples in the backup, want %d", len(got), len(want))
	}
}

// TestBackupToAFullDisk: the error names the disk that is full, which is not that of the store, and
// the store takes writes.
func TestBackupToAFullDisk(t *testing.T) {
	disk := &fullDisk{full: &atomic.Bool{}, FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "elsewhere/") && strings.HasSuffix(op.Path, ".blk") {
			return syscall.ENOSPC
		}
		return nil
	}))}
	disk.free.Store(uint64(units.GiB))
	cfg := quietConfig("fsync")
	cfg.BackupDir, cfg.MinFreeBytes = "elsewhere", units.MiB
	s := mustOpen(t, noLinks{disk}, cfg)
	defer s.Close()
	putRandom(t, s, "saved", 1000, crashOrigin)
	_, err := s.Backup(t.Context(), "daily")
	const want = "backup daily: the disk of elsewhere (embedded.backup_dir) has no room for it; remove old backups there, or enlarge the disk; the store keeps running: "
	if !errors.As(err, new(*store.UnavailableError)) || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want %s...", err, want)
	}
	putRandom(t, s, "saved", 1000, crashOrigin+1)
}

// TestRepairWithoutABlockFile: a block file that is gone is taken off the list, and the
// rest stays.
func TestRepairWithoutABlockFile(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 400)
	img := readImage(t, fs, "data")
	before, err := storeContent(s)
	s.must(t, err)
	s.must(t, s.Close())
	had := linesOf(before)
	for path := range img {
		if !strings.HasSuffix(path, ".blk") {
			continue
		}
		damaged := maps.Clone(img)
		delete(damaged, path)
		fs := damaged.load(t)
		if r := checkOf(t, fs, "data"); len(r.Findings) != 1 || r.Findings[0].File != path || !strings.HasSuffix(r.Findings[0].Problem, "got no such file") {
			t.Errorf("without %s: %+v", path, r.Findings)
		}
		if _, err := contentOf(fs, "data"); err == nil {
			t.Errorf("the store opens without %s", path)
		}
		mustRepair(t, fs)
		after := linesOf(content(t, fs, "data"))
		for sample := range after {
			if !had[sample] {
				t.Errorf("without %s: a sample that was not there: %s", path, sample)
			}
		}
		if len(after) == 0 {
			t.Errorf("without %s: nothing is left", path)
		}
	}
}

// TestRepairWithoutBlockFiles: if the whole directory of block files is missing, repair makes an empty
// one, and what the log has remains.
func TestRepairWithoutBlockFiles(t *testing.T) {
	mem := vfs.NewMem()
	s, _ := sampleStore(t, mem, "data", 400)
	s.must(t, s.Close())
	s.must(t, mem.RemoveAll("data/blocks"))
	mustRepair(t, mem)
	if len(content(t, mem, "data")) == 0 {
		t.Error("nothing is left")
	}
}

// TestWithoutACatalogue: block files or a log without a catalogue are a damaged store, for a check as
// for a server. Only a directory without any of them holds no store.
func TestWithoutACatalogue(t *testing.T) {
	for _, gone := range [][]string{{"catalogue"}, {"catalogue", "blocks"}, {"catalogue", "log"}} {
		mem := vfs.NewMem()
		s, _ := sampleStore(t, mem, "data", 100)
		s.must(t, s.Close())
		for _, name := range gone {
			s.must(t, mem.RemoveAll("data/"+name))
		}
		if r := checkOf(t, mem, "data"); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Remedy, "restore the last backup") {
			t.Errorf("without %s: %+v", gone, r.Findings)
		}
	}
}

// TestRepairWithAnOlderCatalogue: where the catalogue is older than the block files, as when its log
// has lost its end, repair sets the files aside that it does not list. It left them to the next
// start, which removed them: they had all samples.
func TestRepairWithAnOlderCatalogue(t *testing.T) {
	fs := vfs.NewMem()
	s, _ := sampleStore(t, fs, "data", 400)
	old := readImage(t, fs, "data")
	s.must(t, s.Compact(t.Context()))
	img := readImage(t, fs, "data")
	s.must(t, s.Close())
	blocks := make(image)
	for path, b := range img {
		if strings.HasSuffix(path, ".blk") && old[path] == nil {
			blocks[path] = b
		}
	}
	if len(blocks) == 0 {
		t.Fatal("the merge has written no file")
	}
	for what, older := range map[string]func(path string) bool{
		"catalogue":         func(path string) bool { return strings.Contains(path, "/catalogue/") },
		"catalogue and log": func(path string) bool { return !strings.HasSuffix(path, ".blk") },
	} {
		mixed := make(image)
		for path, b := range old {
			if older(path) {
				mixed[path] = b
			}
		}
		for path, b := range img {
			if !older(path) {
				mixed[path] = b
			}
		}
		fs := mixed.load(t)
		if _, err := contentOf(fs, "data"); err == nil {
			t.Errorf("%s: the store opens", what)
		}
		mustRepair(t, fs)
		content(t, fs, "data") // as the next start
		after := readImage(t, fs, "data")
		for path, b := range blocks {
			aside := strings.Replace(path, "/blocks/", "/quarantine/", 1)
			if !bytes.Equal(after[aside], b) || len(after[aside+".txt"]) == 0 {
				t.Errorf("%s: %s is not in quarantine, or differs there, or is not explained", what, path)
			}
		}
	}
}

// TestCatalogueCutOff: where the log of the catalogue has lost its end, the store does not open as
// one with fewer samples, and no block file is lost by a start or a repair.
func TestCatalogueCutOff(t *testing.T) {
	fs := vfs.NewMem()
	s, err := Open(fs, "data", DefaultConfig(), Options{}) // its whole catalogue is in the log
	s.must(t, err)
	for host := range 3 {
		var b store.Batch
		b.Reset(s.Epoch())
		ref, err := s.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("host", fmt.Sprint(host))})
		s.must(t, err)
		for i := range int64(100) {
			b.AddLong(ref, i*60_000, i, 0)
		}
		s.must(t, s.Append(t.Context(), &b))
		s.must(t, s.Compact(t.Context()))
	}
	want, err := storeContent(s)
	s.must(t, err)
	img := readImage(t, fs, "data")
	s.must(t, s.Close())
	var log string
	for path := range img {
		if strings.HasPrefix(path, "data/catalogue/") && strings.HasSuffix(path, ".log") && len(img[path]) > len(img[log]) {
			log = path
		}
	}
	for n := 0; n < len(img[log]); n += 29 {
		cut := maps.Clone(img)
		cut[log] = cut[log][:n]
		fs := cut.load(t)
		if got, err := contentOf(fs, "data"); err == nil && got != want {
			t.Errorf("cut off at %d of %d: the store opens, with %d samples of %d", n, len(img[log]), len(linesOf(got)), len(linesOf(want)))
		}
		if _, err := Repair(t.Context(), fs, "data", offline.RepairOptions{}); err == nil {
			content(t, fs, "data") // as the next start
		}
		after := readImage(t, fs, "data")
		for path, b := range img {
			aside := strings.Replace(path, "/blocks/", "/quarantine/", 1)
			if strings.HasSuffix(path, ".blk") && !bytes.Equal(after[path], b) && !bytes.Equal(after[aside], b) {
				t.Errorf("cut off at %d: %s is lost", n, path)
			}
		}
	}
}
