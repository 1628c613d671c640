package embedded

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"

	"varve/internal/embedded/datadir"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/store"
	"varve/internal/units"
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
	for deadline := time.Now().Add(2 * time.Minute); !written(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the head stays in memory")
		}
	}
}

// TestFilesOfACheckpoint: a partition with enough samples has a file of its own, whether these are of
// one series or several, sealed or open, beside samples of other partitions or not. Others share a file.
func TestFilesOfACheckpoint(t *testing.T) {
	cfg := quietConfig(wal.Fsync)
	cfg.RowWidth = 24 * time.Hour
	s := mustOpen(t, vfs.NewMem(), cfg)
	defer s.Close()
	var starts [4]int64
	for i := range starts {
		starts[i] = s.width.Partition(crashOrigin) + int64(i)*s.width.Width
	}
	const enough = partition.DenseSamples
	var b store.Batch
	b.Reset(s.Epoch())
	add := func(host string, fromMS, samples int64) {
		ref, err := s.Create(t.Context(), model.Series{Metric: "m", Type: model.TypeLong, Tags: model.MustTags("host", host)})
		s.must(t, err)
		for i := range samples {
			b.AddLong(ref, fromMS+i, i, 0)
		}
	}
	add("a", starts[0], enough-1)
	add("b", starts[1]-1, 1)
	add("b", starts[1], enough)
	add("b", starts[2], 1)
	add("b", starts[3], 1)
	s.must(t, s.Append(t.Context(), &b))
	s.must(t, s.checkpoint())
	st := s.acquire()
	defer s.release(st)
	got := map[model.TimeRange]int64{}
	for _, f := range st.files {
		got[f.Range()] = f.Samples
	}
	want := map[model.TimeRange]int64{
		{StartMS: starts[0], EndMS: starts[1] - 1}:          enough,
		{StartMS: starts[1], EndMS: starts[1] + enough - 1}: enough,
		{StartMS: starts[2], EndMS: starts[3]}:              2,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("samples of the files by range (-want +got):\n%s", d)
	}
}

// TestCompactLeavesNoLog: the log that a compaction leaves is a fresh, small file, not one that
// another checkpoint released while it waited, whether there were samples since or not.
func TestCompactLeavesNoLog(t *testing.T) {
	for _, since := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d samples since", since), func(t *testing.T) { compactBeside(t, since) })
	}
}

func compactBeside(t *testing.T, since int) {
	fs := vfs.NewMem()
	cfg := quietConfig(wal.Fsync)
	cfg.Log.SegmentBytes = 64 * units.KiB
	s := mustOpen(t, fs, cfg)
	defer s.Close()
	putRandom(t, s, "m", 20_000, 0)
	if free, bytes := logFiles(t, fs); free == 0 || bytes < int64(cfg.Log.SegmentBytes) {
		t.Fatalf("%d free files, %d bytes of log", free, bytes)
	}
	appendRandom(t, s, "m", 20_000, 10_000_000)

	s.checkpointing.Lock() // by another checkpoint
	compacted := make(chan error)
	go func() { compacted <- s.Compact(context.Background()) }()
	for deadline := time.Now().Add(100 * time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if free, _ := logFiles(t, fs); free == 0 {
			break // compact does not wait before it gives back what is free now
		}
	}
	err := s.checkpointLocked()
	appendRandom(t, s, "m", since, 20_000_000)
	s.checkpointing.Unlock()
	s.must(t, err)
	s.must(t, <-compacted)
	if free, bytes := logFiles(t, fs); free != 0 || bytes > 4<<10 {
		t.Errorf("%d free files and %d bytes of log after Compact", free, bytes)
	}
}

// logFiles counts the files that the log keeps for reuse, and the bytes of all its files.
func logFiles(t *testing.T, fs vfs.FS) (free int, bytes int64) {
	t.Helper()
	names, err := fs.List(fs.PathJoin("data", datadir.Log))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin("data", datadir.Log, name))
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
		if strings.HasSuffix(name, ".free") {
			free++
		}
	}
	return free, bytes
}

// TestOpenNothingToRead: a directory without a store is an error, and stays unchanged.
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
