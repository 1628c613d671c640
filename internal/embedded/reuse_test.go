package embedded

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/store/storetest"
)

// manyIDs is a number of ids given out at which ids are given again.
const manyIDs = 1 << 26

// mergeAll does what the merger does.
func (e *expiryStore) mergeAll() {
	e.t.Helper()
	e.merging.Unlock()
	defer e.merging.Lock()
	e.must(e.t, e.maintain(context.Background()))
}

func (e *expiryStore) vacant(id model.SeriesNumber) bool {
	v, _ := e.vacantIDs(0)
	return v != nil && v.ids.Contains(uint32(id))
}

// TestReusedIDs follows one id from its first series to the next.
func TestReusedIDs(t *testing.T) {
	e := newExpiryStore(t)
	e.put("old", 0, 60)
	e.put("deleted", 0, 0)
	e.must(t, e.checkpoint())
	const old, deleted = model.SeriesNumber(0), model.SeriesNumber(1)
	var stale store.Batch
	stale.Reset(e.Epoch())
	stale.AddLong(store.Ref(old), crashOrigin, 7, 0)
	if v, _ := e.vacantIDs(0); v != nil {
		t.Error("a small store gives ids again")
	}
	e.series.Expect(manyIDs)
	if e.vacant(old) {
		t.Fatal("the id of a series is vacant")
	}
	e.now.Advance(time.Minute)
	early, err := e.View(context.Background())
	e.must(t, err)
	e.must(t, e.Delete(context.Background(), store.Deletion{Metric: "expiry", Range: model.AllTime, Matchers: []model.Matcher{{Tag: "host", Values: []string{"deleted"}}}}))
	e.expect("")
	if e.vacant(old) || e.vacant(deleted) {
		t.Fatal("an id is vacant that a file has")
	}
	e.mergeAll()
	if n := e.Usage().Files; n != 0 {
		t.Fatalf("%d files are left", n)
	}
	if e.vacant(old) || e.vacant(deleted) {
		t.Fatal("an id is vacant that the catalogue still has")
	}
	epoch := e.Epoch()
	e.must(t, e.checkpoint())
	if !e.vacant(old) || !e.vacant(deleted) {
		t.Fatal("an id is not vacant that nothing names")
	}
	e.must(t, e.checkpoint())
	if _, err := e.Create(context.Background(), model.Series{Metric: "expiry", Type: model.TypeString, Tags: model.MustTags("host", "meanwhile")}); err != nil || e.series.NextID() != manyIDs+1 || e.Epoch() != epoch {
		t.Fatalf("an id was given again that an open view may know: %v", err)
	}
	e.must(t, early.Close())
	e.must(t, e.checkpoint())
	if e.Epoch() == epoch {
		t.Fatal("the epoch did not move")
	}
	var b store.Batch
	b.Reset(e.Epoch())
	ref, err := e.Create(context.Background(), model.Series{Metric: "expiry", Type: model.TypeString, Tags: model.MustTags("host", "new")})
	if err != nil || model.SeriesNumber(ref) != old {
		t.Fatalf("the new series has id %d, %v; want %d", ref, err, old)
	}
	b.AddBytes(ref, crashOrigin, []byte("new"), 0)
	e.must(t, e.Append(context.Background(), &b))
	if err := e.Append(context.Background(), &stale); err != store.ErrStale {
		t.Errorf("a batch from before: %v, want ErrStale", err)
	}
	for _, kill := range []bool{true, false, true} {
		e.expect("new")
		if got := e.times("new"); !slices.Equal(got, []int64{crashOrigin}) {
			t.Errorf("samples at %v", got)
		}
		e.sound()
		e.reopen(kill)
	}
}

// TestIDsAreNotVacant: places that keep an id from being given again.
func TestIDsAreNotVacant(t *testing.T) {
	e := newExpiryStore(t)
	ctx := context.Background()
	e.put("w", 0, 0) // id 0
	e.must(t, e.checkpoint())
	e.put("x", 0, 60) // id 1
	e.series.Expect(manyIDs)
	e.must(t, e.Delete(ctx, store.Deletion{Metric: "expiry", Range: model.TimeRange{StartMS: crashOrigin, EndMS: crashOrigin + 1}}))
	e.put("w", time.Second, 0)
	e.expect("w")
	e.must(t, e.checkpoint())
	if e.vacant(1) {
		t.Error("an id is vacant that a deletion names")
	}
	e.put("y", 0, 60) // by now an id from manyIDs on
	ref, _ := e.Create(ctx, model.Series{Metric: "expiry", Type: model.TypeLong, Tags: model.MustTags("host", "y")})
	if model.SeriesNumber(ref) < manyIDs {
		t.Fatalf("id %d was given", ref)
	}
	frozen, err := e.swapHead()
	e.must(t, err)
	for id := range frozen.head.Series() {
		if e.vacant(id) {
			t.Errorf("id %d is vacant, but in the frozen head", id)
		}
	}
	e.pending = frozen
}

// TestIDsThatStayNamedHideNoOthers: ids are found behind millions that files or
// deletions name for years.
func TestIDsThatStayNamedHideNoOthers(t *testing.T) {
	e := newExpiryStore(t)
	e.series.Expect(manyIDs)
	named := roaring.New()
	named.AddRange(0, 5<<20)
	e.current.setDeletions([]*record.Deletion{{Sequence: 1, IDs: named}})
	e.checkpointing.Lock()
	defer e.checkpointing.Unlock()
	for range 4 {
		e.reuseIDs()
		e.publish(func(*state) {}) // no view holds an earlier state
	}
	if left, _ := e.series.Left(); left <= math.MaxUint32-manyIDs {
		t.Errorf("%d ids are left, want more than those that were never given", left)
	}
	ref, err := e.Create(context.Background(), model.Series{Metric: "expiry", Type: model.TypeLong})
	if err != nil || model.SeriesNumber(ref) < 5<<20 || model.SeriesNumber(ref) >= manyIDs {
		t.Errorf("a new series has id %d, %v", ref, err)
	}
	e.current.setDeletions(nil)
}

// TestReusedIDsKeepSeriesApart lets series come, expire and be deleted, with
// restarts between, so that ids are given again and again: no sample is lost, and
// none is seen in another series, in no view.
func TestReusedIDsKeepSeriesApart(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			e := newExpiryStore(t)
			e.series.Expect(manyIDs)
			ctx := context.Background()
			type sample struct{ ms, until int64 }
			want := make(map[string]sample)
			names := 0
			highest := model.SeriesNumber(0)
			for range 25 {
				for range 1 + rng.IntN(12) {
					host := fmt.Sprint(names)
					names++
					ttl := []uint32{0, 30, 60, 90}[rng.IntN(4)]
					ms := e.now.Now().UnixMilli() + int64(names)
					e.must(t, e.append(host, ms, ttl))
					want[host] = sample{ms, model.ExpiryMS(ms, ttl)}
					ref, err := e.Create(ctx, model.Series{Metric: "expiry", Type: model.TypeLong, Tags: model.MustTags("host", host)})
					e.must(t, err)
					if model.SeriesNumber(ref) < manyIDs {
						highest = max(highest, model.SeriesNumber(ref))
					}
				}
				v, err := e.View(ctx)
				e.must(t, err)
				known, err := storetest.Select(ctx, v, store.Selection{Metric: "expiry", Range: model.AllTime})
				e.must(t, err)
				seen := maps.Clone(want)
				for host := range want {
					if rng.IntN(8) == 0 {
						e.must(t, e.Delete(ctx, store.Deletion{Metric: "expiry", Range: model.AllTime, Matchers: []model.Matcher{{Tag: "host", Values: []string{host}}}}))
						delete(want, host)
					}
				}
				e.now.Advance(time.Duration(rng.IntN(40)) * time.Second)
				e.must(t, e.expireSeries(ctx))
				for range rng.IntN(4) {
					e.must(t, e.checkpoint())
					if rng.IntN(2) == 0 {
						e.mergeAll()
					}
				}
				for _, s := range known { // a view shows no other series under a ref
					c := v.Read(ctx, s, store.ReadOptions{Range: model.AllTime})
					for {
						b, err := c.Next()
						e.must(t, err)
						if b == nil {
							break
						}
						if host, _ := s.Tags.Get("host"); b.Len() != 1 || b.Times[0] != seen[host].ms {
							t.Fatalf("%s has samples at %v, want %d", host, b.Times, seen[host].ms)
						}
					}
					c.Close()
				}
				e.must(t, v.Close())
				e.must(t, e.checkpoint())
				e.must(t, e.checkpoint())
				if rng.IntN(2) == 0 {
					e.reopen(rng.IntN(2) == 0)
				}
				e.must(t, e.expireSeries(ctx))
				e.listed()
				for host, s := range want {
					var times []int64
					if s.until > e.now.Now().UnixMilli() {
						times = []int64{s.ms}
					} else {
						delete(want, host)
					}
					if got := e.times(host); !slices.Equal(got, times) {
						t.Fatalf("%s has samples at %v, want %v", host, got, times)
					}
				}
				if n := e.SeriesCount(); n != len(want) {
					t.Fatalf("%d series, want %d", n, len(want))
				}
				e.sound()
			}
			if int(highest) >= names || highest == 0 {
				t.Errorf("ids up to %d were given to %d series: none was given again", highest, names)
			}
		})
	}
}
