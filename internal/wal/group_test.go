package wal

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	"varve/internal/diskfs/crashfs"
)

const slowSync = time.Millisecond

// slowLog returns a log whose syncs take slowSync, and a function that counts them.
func slowLog(t *testing.T) (*Log, func() int) {
	fsys := errorfs.Wrap(crashfs.New(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData {
			time.Sleep(slowSync)
		}
		return nil
	}))
	registry := prometheus.NewRegistry()
	l, err := Open(fsys, "log", DefaultConfig(), Options{Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLog(t, l) })
	return l, func() int { return int(metric(t, registry, "varve_wal_sync_seconds")) }
}

// appendFor appends records for a time, each when the one before is acknowledged and a
// pause is over. It returns their number, and the longest time until one was acknowledged.
func appendFor(t *testing.T, l *Log, total, pause time.Duration) (n int, longest time.Duration) {
	for end := time.Now().Add(total); time.Now().Before(end); n++ {
		start := time.Now()
		wait(t, l, l.Append(1, []byte("record")))
		longest = max(longest, time.Since(start))
		time.Sleep(pause)
	}
	return n, longest
}

// TestAppendersShareSyncs: appenders that append again soon after each acknowledgement
// share syncs, even if they begin in turn.
func TestAppendersShareSyncs(t *testing.T) {
	for _, appenders := range []int{2, 3, 8} {
		synctest.Test(t, func(t *testing.T) {
			l, syncs := slowLog(t)
			var group sync.WaitGroup
			var records [8]int
			for a := range appenders {
				time.Sleep(slowSync / 2)
				group.Go(func() { records[a], _ = appendFor(t, l, time.Second, slowSync*2/5) })
			}
			group.Wait()
			total := 0
			for _, n := range records {
				total += n
			}
			if got := syncs(); got > total*3/2/appenders {
				t.Errorf("%d records of %d appenders in %d syncs", total, appenders, got)
			}
		})
	}
}

// TestOneAppenderDoesNotWait: the records of a single appender are synced at once, and so
// are those of several that write now and then.
func TestOneAppenderDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := slowLog(t)
		if n, longest := appendFor(t, l, time.Second, 0); longest > slowSync || n < 999 {
			t.Errorf("%d records in a second, one took %v", n, longest)
		}
		var group sync.WaitGroup
		for range 4 {
			time.Sleep(5 * slowSync)
			group.Go(func() {
				if _, longest := appendFor(t, l, time.Second, 19*slowSync); longest > slowSync {
					t.Errorf("a record took %v", longest)
				}
			})
		}
		group.Wait()
	})
}

// TestRareAppenderHoldsUpNobody: an appender that writes now and then hardly slows down a
// busy one, which would otherwise wait for it after each sync that they share.
func TestRareAppenderHoldsUpNobody(t *testing.T) {
	const pause = slowSync / 5
	synctest.Test(t, func(t *testing.T) {
		l, _ := slowLog(t)
		alone, _ := appendFor(t, l, time.Second, pause)
		var group sync.WaitGroup
		rare := 0
		group.Go(func() { rare, _ = appendFor(t, l, time.Second, 5*slowSync) })
		time.Sleep(slowSync / 2)
		busy, _ := appendFor(t, l, time.Second, pause)
		group.Wait()
		// A record of the rare one takes a sync of the busy one at most.
		if busy < (alone-rare)*95/100 {
			t.Errorf("%d records of the busy appender, %d of the rare one; %d of the busy one alone", busy, rare, alone)
		}
	})
}

// TestWaitForAGroup: only a small buffer of records that nothing else makes urgent waits, and only
// until the time for waiting is over.
func TestWaitForAGroup(t *testing.T) {
	until := time.Unix(1000, 0)
	before, at, after := until.Add(-time.Millisecond), until, until.Add(time.Millisecond)
	for name, c := range map[string]struct {
		buffer buffer
		now    time.Time
		want   time.Duration
	}{
		"fewer records than enough": {buffer{data: make([]byte, largeGroup-1), records: 2}, before, time.Millisecond},
		"enough records":            {buffer{records: 3}, before, 0},
		"much data":                 {buffer{data: make([]byte, largeGroup), records: 1}, before, 0},
		"the end of a segment":      {buffer{records: 1, cuts: []int{0}}, before, 0},
		"a call of Sync":            {buffer{records: 1, sync: true}, before, 0},
		"at the end of waiting":     {buffer{records: 1}, at, 0},
		"later":                     {buffer{records: 1}, after, 0},
	} {
		g := group{until: until, enough: 3}
		if got := g.wait(&c.buffer, c.now); got != c.want {
			t.Errorf("%s: waits for %v, want %v", name, got, c.want)
		}
	}
}
