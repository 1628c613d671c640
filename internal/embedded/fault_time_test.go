package embedded

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// timeStore is a store with a clock of its own, and what was written to it: one
// sample per series and time, whose value follows from both.
type timeStore struct {
	*Store
	t       *testing.T
	nowMS   atomic.Int64
	metric  string
	written map[place]bool
}

func newTimeStore(t *testing.T, change func(*Config)) *timeStore {
	ts := &timeStore{t: t, metric: "time", written: make(map[place]bool)}
	ts.nowMS.Store(crashOrigin)
	cfg := DefaultConfig()
	cfg.MaintenanceInterval = time.Hour
	cfg.MinFreeBytes = 0
	if change != nil {
		change(&cfg)
	}
	s, err := Open(vfs.NewMem(), "data", cfg, Options{Now: func() time.Time { return time.UnixMilli(ts.nowMS.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	ts.Store = s
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return ts
}

func (ts *timeStore) write(series int, times []int64, ttl uint32) {
	ts.t.Helper()
	ctx := context.Background()
	tag := fmt.Sprint(series)
	for {
		var b store.Batch
		b.Reset(ts.Epoch())
		ref, err := ts.Create(ctx, model.Series{Metric: ts.metric, Type: model.TypeLong, Tags: model.MustTags("n", tag)})
		if err != nil {
			ts.t.Fatal(err)
		}
		for _, ms := range times {
			b.AddLong(ref, ms, ms^int64(series), ttl)
			ts.written[place{ts.metric + " " + tag, ms}] = true
		}
		switch err := ts.Append(ctx, &b); err {
		case nil:
			return
		case store.ErrStale:
		default:
			ts.t.Fatal(err)
		}
	}
}

// want compares all samples with those written.
func (ts *timeStore) want(when string) {
	ts.t.Helper()
	found := make(map[place]int64)
	if err := (&promises{}).readSamples(ts.Store, found); err != nil {
		ts.t.Fatalf("%s: %v", when, err)
	}
	for at, v := range found {
		var series int64
		if _, err := fmt.Sscanf(at.series, ts.metric+" %d", &series); err != nil || v != at.ms^series || !ts.written[at] {
			ts.t.Fatalf("%s: %v = %d should not be there (%v)", when, at, v, err)
		}
	}
	if len(found) != len(ts.written) {
		ts.t.Fatalf("%s: %d samples, want %d", when, len(found), len(ts.written))
	}
}

func (ts *timeStore) files() int {
	st := ts.acquire()
	defer ts.release(st)
	return len(st.files)
}

func (ts *timeStore) must(err error) {
	ts.t.Helper()
	if err != nil {
		ts.t.Fatal(err)
	}
}

// TestScatteredTimes writes samples at times over the whole range of int64, each
// in a partition of its own. They take neither a file nor much memory each, and
// are read, merged and deleted as others are.
func TestScatteredTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("a long run")
	}
	const samples, series, checkpoints = 100_000, 10, 10
	ts := newTimeStore(t, nil)
	random := rand.New(rand.NewPCG(1, 2))
	ts.write(0, []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}, 0)
	for range checkpoints {
		for n := range series {
			times := make([]int64, samples/series/checkpoints)
			for i := range times {
				times[i] = int64(random.Uint64())
			}
			ts.write(n, times, 0)
		}
		before := int64(heapBytes())
		ts.must(ts.checkpoint())
		if grown := int64(heapBytes()) - before; grown > 32<<20 {
			t.Errorf("a checkpoint has left %d bytes of memory", grown)
		}
	}
	if n := ts.files(); n > checkpoints {
		t.Errorf("%d files of %d checkpoints", n, checkpoints)
	}
	ts.want("written")
	ts.must(ts.maintain(context.Background()))
	ts.want("merged when due")
	ts.must(ts.Compact(context.Background()))
	ts.want("merged into one")
	if n := ts.files(); n > 2 {
		t.Errorf("%d files after all were merged", n)
	}

	gone := model.TimeRange{StartMS: math.MinInt64, EndMS: 0}
	ts.must(ts.Delete(context.Background(), store.Deletion{Metric: ts.metric, Range: gone}))
	for at := range ts.written {
		if gone.Contains(at.ms) {
			delete(ts.written, at)
		}
	}
	ts.want("deleted")
	ts.must(ts.Compact(context.Background()))
	ts.want("deleted and merged")
}

// TestBackfill writes ten years in an order that nobody would choose: each batch
// has samples of all partitions.
func TestBackfill(t *testing.T) {
	if testing.Short() {
		t.Skip("a long run")
	}
	const (
		series  = 4
		hours   = 10 * 365 * 24
		batches = 12
		hourMS  = 3_600_000
	)
	ts := newTimeStore(t, nil)
	order := rand.New(rand.NewPCG(3, 4)).Perm(hours)
	most := 0
	for i := range batches {
		for n := range series {
			var times []int64
			for _, hour := range order[i*hours/batches : (i+1)*hours/batches] {
				times = append(times, crashOrigin-int64(hour)*hourMS)
			}
			ts.write(n, times, 0)
		}
		ts.must(ts.checkpoint())
		ts.must(ts.maintain(context.Background()))
		most = max(most, ts.files())
	}
	ts.want("written")
	ts.must(ts.Compact(context.Background()))
	ts.want("merged")
	partitions := make(map[int64]bool)
	spec := rowtime.Spec{Width: ts.cfg.RowWidth.Milliseconds()}
	for at := range ts.written {
		partitions[spec.Partition(at.ms)] = true
	}
	t.Logf("%d samples in %d partitions: at most %d files, %d in the end", len(ts.written), len(partitions), most, ts.files())
	if most > len(partitions)+batches {
		t.Errorf("%d files for %d partitions", most, len(partitions))
	}
}

// TestClockJumps sets the clock forward and back by hours and years while
// samples with and without a time-to-live are written, checkpointed, merged.
// Samples without a time-to-live stay. Samples with one exist before their time
// and are gone after it. Samples that have expired and were merged away do not
// reappear when the clock is set back.
func TestClockJumps(t *testing.T) {
	const hour, year = int64(3_600_000), int64(365 * 24 * 3_600_000)
	ts := newTimeStore(t, func(c *Config) { c.MergeFiles = 2 })
	expires := make(map[place]int64) // when each sample with a time-to-live goes
	write := func(round int) {
		now := ts.nowMS.Load()
		var times []int64
		for i := range int64(50) {
			times = append(times, now-i*1000)
		}
		ts.write(1, times, 0)
		var again []int64 // an older sample that was written before stays as it is
		for _, ms := range times {
			at := place{ts.metric + " 2", ms}
			if _, ok := expires[at]; !ok {
				expires[at] = ms + 2*hour
				again = append(again, ms)
			}
		}
		ts.write(2, again, uint32(2*hour/1000))
		ts.write(3, []int64{now + year, now - year, now + int64(round)}, 0)
	}
	look := func(when string) {
		t.Helper()
		now := ts.nowMS.Load()
		for at, end := range expires {
			ts.written[at] = end > now
			if end <= now {
				delete(ts.written, at)
			}
		}
		ts.want(when)
	}
	jumps := []int64{0, hour, -hour, 3 * hour, -5 * hour, 10 * year, -10 * year, -20 * year, 40 * year, -20 * year, 1000}
	for round, jump := range jumps {
		when := fmt.Sprintf("jump %d by %v", round, time.Duration(jump)*time.Millisecond)
		now := ts.nowMS.Add(jump)
		look(when)
		write(round)
		look(when + ", written")
		ts.must(ts.checkpoint())
		look(when + ", checkpoint")
		ts.must(ts.maintain(context.Background()))
		look(when + ", maintained")
		ts.must(ts.Compact(context.Background()))
		look(when + ", merged")
		for at, end := range expires { // merged away
			if end <= now {
				delete(expires, at)
			}
		}
	}
}
