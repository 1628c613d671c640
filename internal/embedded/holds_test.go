package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"varve/internal/model"
)

// TestNoFoldBegins where its range is held; others do, and this one when it is released.
func TestNoFoldBegins(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:60d")
	day := int64(24) * lateHour
	now := f.nowMS.Load()
	f.merging.Lock() // the checkpoint wakes the merger
	f.write("thin.long", model.TypeLong, now-5*day, now-5*day+10_000)
	f.must(t, f.checkpoint())
	f.write("thin.long", model.TypeLong, now-5*day) // again, so that this file is read with the first one
	f.must(t, f.checkpoint())
	f.write("thin.double", model.TypeDouble, now-3*day, now-3*day+10_000)
	f.must(t, f.checkpoint())
	release, err := f.HoldFolds(t.Context(), model.TimeRange{StartMS: now - 5*day + 10_000, EndMS: now - 4*day})
	f.merging.Unlock()
	f.must(t, err)
	folded := func() (names string) {
		for _, key := range []string{"thin.long kairos_long", "thin.double kairos_double"} {
			if len(f.whole(key).buckets) > 0 {
				names += key + " "
			}
		}
		return names
	}
	f.must(t, f.maintain(t.Context()))
	if got := folded(); got != "thin.double kairos_double " {
		t.Errorf("while a range is held, folded is %q", got)
	}
	f.nowMS.Add(foldAgain.Milliseconds())
	release()
	f.must(t, f.maintain(t.Context()))
	if got := folded(); got != "thin.long kairos_long thin.double kairos_double " {
		t.Errorf("when it is released, folded is %q", got)
	}
}

// TestHoldWaitsForAFold of the same range, and for no other.
func TestHoldWaitsForAFold(t *testing.T) {
	f := newFoldTest(t, "10s:1h,60s:60d")
	at := f.nowMS.Load() - 24*lateHour
	f.must(t, f.Store.Close())
	beside := model.TimeRange{StartMS: at + 10_001, EndMS: at + 3*lateHour}
	within := model.TimeRange{StartMS: at + 10_000, EndMS: at + lateHour}
	var once sync.Once
	held := make(chan func(), 1)
	f.open(errorfs.Wrap(f.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "block") && folds(f.Store) {
			once.Do(func() {
				release, err := f.HoldFolds(t.Context(), beside)
				f.must(t, err)
				release()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := f.HoldFolds(ended, within); !errors.Is(err, context.Canceled) {
					t.Errorf("during a fold, its range is held: %v", err)
				}
				go func() {
					release, err := f.HoldFolds(t.Context(), within)
					if err != nil {
						t.Error(err)
					}
					held <- release
				}()
			})
		}
		return nil
	})))
	f.write("thin.long", model.TypeLong, at, at+10_000)
	f.must(t, f.checkpoint())
	f.foldAll()
	release := <-held
	if len(f.whole("thin.long kairos_long").buckets) == 0 {
		t.Error("the range is held before the fold has ended")
	}
	release()
}

// TestRulesChangeDuringAFold: a fold has a claim on what the rules at its begin make coarser. If others
// come meanwhile, by which more is, it must not touch what is held by others.
func TestRulesChangeDuringAFold(t *testing.T) {
	f := newFoldTest(t, "10s:4h,60s:60d")
	now := f.nowMS.Load()
	f.must(t, f.Store.Close())
	recent := now - 2*lateHour
	var once sync.Once
	f.open(errorfs.Wrap(f.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "block") && folds(f.Store) {
			once.Do(func() {
				release, err := f.HoldFolds(t.Context(), model.TimeRange{StartMS: recent, EndMS: recent})
				f.must(t, err)
				t.Cleanup(release)
				f.shelf.Put(book(t, "10s:1h,60s:60d"))
			})
		}
		return nil
	})))
	f.merging.Lock() // the checkpoint wakes the merger
	f.write("thin.a", model.TypeLong, now-24*lateHour, now-24*lateHour+10_000)
	f.write("thin.b", model.TypeLong, recent, recent+10_000)
	f.must(t, f.checkpoint())
	f.merging.Unlock()
	for range 3 {
		f.must(t, f.maintain(t.Context()))
		f.nowMS.Add(foldAgain.Milliseconds())
	}
	once.Do(func() { t.Error("nothing was folded") })
	if step := f.WidestBucket(model.TimeRange{StartMS: recent, EndMS: recent}); step != 0 {
		t.Errorf("what is held was folded into buckets of %d ms", step)
	}
}

// folds reports whether a fold is running.
func folds(s *Store) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	release, err := s.HoldFolds(ended, model.AllTime)
	if err == nil {
		release()
	}
	return err != nil
}
