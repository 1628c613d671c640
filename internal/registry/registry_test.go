package registry

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"pgregory.net/rapid"

	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

func testKey(n int) string { return "\x01m" + strings.Repeat("x", n%7) + fmt.Sprint(n) }

// TestRegistry compares random use with a map.
func TestRegistry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		ids := map[string]model.SeriesNumber{}
		key := rapid.Custom(func(t *rapid.T) string { return testKey(rapid.IntRange(0, 2000).Draw(t, "key")) })
		create := func(k string) {
			id, err := r.Create(k)
			if want, known := ids[k]; err != nil || known && id != want {
				t.Fatalf("create(%q) = %d, %v; want %d", k, id, err, want)
			}
			ids[k] = id
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) { create(key.Draw(t, "key")) },
			"many": func(t *rapid.T) {
				for i := range 300 {
					create(testKey(3000 + i))
				}
			},
			"restore": func(t *rapid.T) {
				id, k := model.SeriesNumber(rapid.IntRange(5000, 7000).Draw(t, "id")), key.Draw(t, "key")
				if r.keyLocked(id) != "" && r.keyLocked(id) != k {
					return
				}
				r.Restore(record.Definition{ID: id, Key: k})
				ids[k] = id
			},
			"forget": func(t *rapid.T) {
				var some []model.SeriesNumber
				for k, id := range ids {
					if id%3 == model.SeriesNumber(len(ids)%3) {
						some = append(some, id)
						delete(ids, k)
					}
				}
				r.Forget(some)
			},
			"introduce": func(t *rapid.T) {
				var b store.Batch
				for _, id := range ids {
					if id%4 == model.SeriesNumber(len(ids)%4) {
						b.AddLong(store.Ref(id), 1, 1, 0)
					}
				}
				r.Introduce(nil, b.Samples)
			},
			"settle": func(t *rapid.T) { r.Settle() },
			"": func(t *rapid.T) {
				if r.Count() != len(ids) {
					t.Fatalf("%d series, want %d", r.Count(), len(ids))
				}
				for k, id := range ids {
					if got, ok := r.Lookup([]byte(k)); !ok || got != id || r.keyLocked(id) != k || r.Kind(id) != 1 {
						t.Fatalf("%q has id %d, %v and key %q; want %d", k, got, ok, r.keyLocked(id), id)
					}
				}
				if got, unlogged := r.Bytes(); got != bytesOf(r) || unlogged != unloggedOf(r) {
					t.Fatalf("%d bytes, %d of them not logged, want %d and %d", got, unlogged, bytesOf(r), unloggedOf(r))
				}
				if _, ok := r.Lookup([]byte("\x01none")); ok {
					t.Fatal("a key is found that was never there")
				}
				for _, id := range slices.Sorted(maps.Values(ids)) {
					if !slices.Contains(r.IDs(), id) {
						t.Fatalf("%d is not listed", id)
					}
				}
			},
		})
	})
}

// bytesOf counts what r holds.
func bytesOf(r *Registry) int64 {
	n := int64(r.byKey.Len()) * entryBytes
	for _, p := range r.pages {
		if p == nil {
			continue
		}
		n += pageBytes + int64(len(p.text))
		for _, key := range p.loose {
			n += int64(len(key))
		}
	}
	return n
}

// unloggedOf is the length of the keys that no log record has introduced.
func unloggedOf(r *Registry) (n int64) {
	for _, id := range r.IDs() {
		if r.pages[id/PageSize].marks[id%PageSize] != logged {
			n += int64(len(r.Key(id)))
		}
	}
	return n
}

// TestForgottenSeriesCostNothing: a registry through which a million series have passed
// is as small as its live series.
func TestForgottenSeriesCostNothing(t *testing.T) {
	r := New()
	const generation, generations = 10_000, 100
	var last []model.SeriesNumber
	for g := range generations {
		var ids []model.SeriesNumber
		for i := range generation {
			id, err := r.Create(testKey(g*generation + i))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		r.Forget(last)
		last = ids
	}
	if pages := r.Pages(); pages > generation/PageSize+2 {
		t.Errorf("%d series have %d pages", r.Count(), pages)
	}
	if n := len(r.IDs()); n != generation {
		t.Errorf("%d ids, want %d", n, generation)
	}
	r.Forget(last)
	if all, unlogged := r.Bytes(); all != 0 || unlogged != 0 {
		t.Errorf("without series %d bytes are counted, %d of them not logged", all, unlogged)
	}
}

// TestPagesArePackedAgain: one live series keeps little memory of 255 forgotten ones.
func TestPagesArePackedAgain(t *testing.T) {
	r := New()
	for i := range PageSize + 1 { // one more makes the first page pack
		if _, err := r.Create(testKey(i)); err != nil {
			t.Fatal(err)
		}
	}
	p := r.pages[0]
	if p.loose != nil {
		t.Fatal("a full page is not packed")
	}
	for id := range model.SeriesNumber(PageSize - 1) {
		r.Forget([]model.SeriesNumber{id})
	}
	if want := testKey(PageSize - 1); p.key(PageSize-1) != want || len(p.text) > 2*len(want) {
		t.Errorf("the key is %q in a text of %d bytes", p.key(PageSize-1), len(p.text))
	}
}

// TestUnused: a series without a sample is returned by the second call of Unused.
func TestUnused(t *testing.T) {
	r := New()
	used, _ := r.Create(testKey(1))
	never, _ := r.Create(testKey(2))
	if ids := r.Unused(); ids != nil {
		t.Fatalf("%v given up at the first look", ids)
	}
	r.Introduce(nil, []store.Sample{{Ref: store.Ref(used)}})
	late, _ := r.Create(testKey(3))
	if ids := r.Unused(); !slices.Equal(ids, []model.SeriesNumber{never}) {
		t.Fatalf("given up: %v, want %v", ids, []model.SeriesNumber{never})
	}
	r.Forget([]model.SeriesNumber{never})
	if ids := r.Unused(); !slices.Equal(ids, []model.SeriesNumber{late}) {
		t.Fatalf("given up: %v, want %v", ids, []model.SeriesNumber{late})
	}
	r.Forget([]model.SeriesNumber{late})
	r.Forget([]model.SeriesNumber{late, PageSize}) // forgotten already, and never there
	if r.unlogged.Load() != 0 || r.Unused() != nil || r.Count() != 1 {
		t.Errorf("%d series are left, %d of them not logged", r.Count(), r.unlogged.Load())
	}
}

// TestLookingUpIDs looks up ids at the ends of pages, of forgotten series and of no
// series.
func TestLookingUpIDs(t *testing.T) {
	r := New()
	key := func(n int) string {
		return string(model.Series{Metric: fmt.Sprint("m", n), Type: model.TypeLong, Tags: model.MustTags("a", "b")}.AppendKey(nil))
	}
	kind := model.TypeLong.Kind()
	for i := range model.SeriesNumber(2 * PageSize) {
		if id, err := r.Create(key(int(i))); err != nil || id != i {
			t.Fatalf("series %d gets id %d, %v", i, id, err)
		}
	}
	r.Forget([]model.SeriesNumber{PageSize})
	all := model.SeriesNumber(2 * PageSize)
	for _, c := range []struct {
		id   model.SeriesNumber
		want string
	}{
		{0, key(0)}, {PageSize - 1, key(PageSize - 1)}, {PageSize, ""}, {PageSize + 1, key(PageSize + 1)},
		{all - 1, key(int(all - 1))}, {all, ""}, {all + 1, ""}, {all + PageSize, ""}, {math.MaxUint32, ""},
	} {
		series, ok := r.Series(c.id)
		if got := r.Key(c.id); got != c.want || ok != (c.want != "") || (r.Kind(c.id) == kind) != ok || ok && string(series.AppendKey(nil)) != c.want {
			t.Errorf("id %d: key %q, series %v, %v, kind %d; want key %q", c.id, got, series, ok, r.Kind(c.id), c.want)
		}
		kinds, known := r.Kinds(nil, []store.Sample{{Ref: 0}, {Ref: store.Ref(c.id)}, {Ref: 1}})
		if known != ok || known && !slices.Equal(kinds, []model.Kind{kind, kind, kind}) {
			t.Errorf("id %d: kinds %v, %v", c.id, kinds, known)
		}
	}
	if r.Pages() != 2 || r.NextID() != all || r.Count() != int(all)-1 {
		t.Errorf("%d pages, next id %d, %d series", r.Pages(), r.NextID(), r.Count())
	}
	r.Expect(all - 5)
	r.Expect(all + 5)
	if id, err := r.Create("\x01mnew"); err != nil || id != all+5 {
		t.Errorf("new series gets id %d, %v, want %d", id, err, all+5)
	}
}

// TestIntroduce: log records introduce each known series once.
func TestIntroduce(t *testing.T) {
	r := New()
	a, _ := r.Create(testKey(1))
	b, _ := r.Create(testKey(2))
	samples := []store.Sample{{Ref: store.Ref(a)}, {Ref: store.Ref(a)}, {Ref: store.Ref(b)}, {Ref: 700}}
	got := r.Introduce(nil, samples)
	want := []record.Definition{{ID: a, Key: testKey(1)}, {ID: b, Key: testKey(2)}}
	if !slices.Equal(got, want) || r.Unlogged() != 0 {
		t.Errorf("introduced %v, want %v; %d are left", got, want, r.Unlogged())
	}
	c, _ := r.Create(testKey(3))
	if got = r.Introduce(got[:0], append(samples, store.Sample{Ref: store.Ref(c)})); !slices.Equal(got, []record.Definition{{ID: c, Key: testKey(3)}}) {
		t.Errorf("introduced later: %v", got)
	}
}

// TestSettlePacksAllButTheLast: after a start, only the last page, to which series are
// still added, is not packed.
func TestSettlePacksAllButTheLast(t *testing.T) {
	r := New()
	for at := range model.SeriesNumber(3) {
		r.Restore(record.Definition{ID: (2 - at) * PageSize, Key: testKey(int(at))})
	}
	r.Settle()
	for at, p := range r.pages {
		if loose := p.loose != nil; loose != (at == len(r.pages)-1) {
			t.Errorf("page %d of %d is loose: %v", at, len(r.pages), loose)
		}
	}
}

// TestRestoreAgain: the catalogue and the log may have the same series. A key belongs to the id that
// was restored last, and Settle returns the ids that had it before.
func TestRestoreAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		restored  []record.Definition
		forgotten []model.SeriesNumber
	}{
		{"twice", []record.Definition{{ID: 1, Key: testKey(1)}, {ID: 1, Key: testKey(1)}}, nil},
		{"moved", []record.Definition{{ID: 1, Key: testKey(1)}, {ID: 2, Key: testKey(1)}}, []model.SeriesNumber{1}},
		{"moved twice", []record.Definition{{ID: 1, Key: testKey(1)}, {ID: 3, Key: testKey(1)}, {ID: 2, Key: testKey(1)}}, []model.SeriesNumber{1, 3}},
		{"back", []record.Definition{{ID: 1, Key: testKey(1)}, {ID: 2, Key: testKey(1)}, {ID: 1, Key: testKey(1)}}, []model.SeriesNumber{2}},
	} {
		r := New()
		for _, d := range c.restored {
			r.Restore(d)
		}
		want := c.restored[len(c.restored)-1].ID
		if id, ok := r.Lookup([]byte(testKey(1))); !ok || id != want || r.Count() != 1 {
			t.Errorf("%s: id %d, %v of %d series, want %d of 1", c.name, id, ok, r.Count(), want)
		}
		if got := r.Settle(); !slices.Equal(got, c.forgotten) {
			t.Errorf("%s: forgotten are %v, want %v", c.name, got, c.forgotten)
		}
		if got := r.Settle(); got != nil {
			t.Errorf("%s: %v are forgotten again", c.name, got)
		}
	}
}

// TestDecodeSamples: samples of known series are decoded with their kinds, those of others are
// damage, and the registry is not locked afterwards.
func TestDecodeSamples(t *testing.T) {
	r := New()
	known, _ := r.Create(testKey(1))
	for _, id := range []model.SeriesNumber{known, known + 1} {
		var b, got store.Batch
		b.AddLong(store.Ref(id), 5, 6, 0)
		err := r.DecodeSamples(record.AppendSamples(nil, &b, []model.Kind{model.Long}), &got)
		if id == known && (err != nil || !slices.Equal(got.Samples, b.Samples)) || id != known && err == nil {
			t.Errorf("samples of series %d: %v, %v", id, got.Samples, err)
		}
	}
	if _, err := r.Create(testKey(2)); err != nil {
		t.Error(err)
	}
}

// TestZeroBatchIsStale: no registry has the epoch of a Batch that was never reset.
func TestZeroBatchIsStale(t *testing.T) {
	if epoch := New().Epoch(); epoch == (&store.Batch{}).Epoch {
		t.Errorf("a new registry has the epoch %d", epoch)
	}
}

// TestEpochMoves: the epoch moves when more series are forgotten than are left,
// not before.
func TestEpochMoves(t *testing.T) {
	r := New()
	before := r.Epoch()
	r.gone = forgetsPerEpoch - 2
	a, _ := r.Create(testKey(1))
	b, _ := r.Create(testKey(2))
	if r.Forget([]model.SeriesNumber{a}); r.Epoch() != before {
		t.Errorf("epoch %d after %d forgotten, want %d", r.Epoch(), r.gone, before)
	}
	if r.Forget([]model.SeriesNumber{b}); r.Epoch() != before+1 || r.gone != 0 {
		t.Errorf("epoch %d, %d counted towards the next, want %d and 0", r.Epoch(), r.gone, before+1)
	}
}

func vacant(r *Registry) *roaring.Bitmap {
	ids, _ := r.Vacant(0)
	return ids
}

// TestIDsAreGivenAgain: a registry that has assigned all ids reuses those of forgotten
// series, each once, and voids cached refs.
func TestIDsAreGivenAgain(t *testing.T) {
	r := New()
	if ids, _ := r.Vacant(0); ids != nil {
		t.Errorf("a small registry has use for %d ids", ids.GetCardinality())
	}
	const before = 3 * PageSize
	for n := range before {
		if _, err := r.Create(testKey(n)); err != nil {
			t.Fatal(err)
		}
	}
	r.Expect(math.MaxUint32 - 1)
	r.Create(testKey(before))
	full := func() {
		t.Helper()
		var limit *store.LimitError
		if _, err := r.Create("\x01one too many"); !errors.As(err, &limit) {
			t.Fatalf("create without ids left: %v", err)
		}
		if left, _ := r.Left(); left != 0 {
			t.Fatalf("%d ids are left", left)
		}
	}
	full()
	var gone []model.SeriesNumber
	for id := range model.SeriesNumber(before) {
		if id%2 == 0 || id/PageSize == 1 {
			gone = append(gone, id)
		}
	}
	r.Forget(gone)
	full() // until it is told that they may be given again
	ids, next := r.Vacant(0)
	if more, _ := r.Vacant(next); next < before || more.Intersects(ids) || more.Minimum() != ids.Maximum()+1 {
		t.Fatalf("ids from %d on follow those up to %d", more.Minimum(), ids.Maximum())
	}
	if last, end := r.Vacant(math.MaxUint32 - PageSize/2); end != 0 || last.Minimum()%PageSize != 0 || last.Maximum() != math.MaxUint32-2 {
		t.Fatalf("the last vacant ids are %d to %d, next is %d", last.Minimum(), last.Maximum(), end)
	}
	if !slices.EqualFunc(ids.ToArray()[:len(gone)], gone, func(n uint32, id model.SeriesNumber) bool { return n == uint32(id) }) || ids.GetCardinality() < reuseMax {
		t.Fatalf("%d vacant ids", ids.GetCardinality())
	}
	ids.RemoveRange(before, 1<<32) // never given, as if something named them
	epoch := r.Epoch()
	r.Reuse(ids)
	r.Reuse(roaring.New())
	if r.Epoch() != epoch+1 {
		t.Errorf("the epoch moved by %d", r.Epoch()-epoch)
	}
	for i, want := range gone {
		if id, err := r.Create(testKey(10_000 + i)); err != nil || id != want {
			t.Fatalf("id %d, %v; want %d", id, err, want)
		}
		if i == 5 && vacant(r).Intersects(ids) {
			t.Fatal("ids that wait to be given again are vacant")
		}
	}
	full()
	if _, reused := r.Left(); reused != int64(len(gone)) {
		t.Errorf("%d ids were given again, want %d", reused, len(gone))
	}
	for i, id := range gone {
		if got, ok := r.Lookup([]byte(testKey(10_000 + i))); !ok || got != id || r.Key(id) != testKey(10_000+i) {
			t.Fatalf("id %d stands for %q, found as %d, %v", id, r.Key(id), got, ok)
		}
		if _, ok := r.Lookup([]byte(testKey(int(id)))); ok {
			t.Fatalf("the forgotten key of id %d is found", id)
		}
	}
	for id := range model.SeriesNumber(before) {
		if want := testKey(int(id)); !slices.Contains(gone, id) && r.Key(id) != want {
			t.Fatalf("id %d stands for %q, want %q", id, r.Key(id), want)
		}
	}
	if got, _ := r.Bytes(); got != bytesOf(r) {
		t.Errorf("%d bytes, want %d", got, bytesOf(r))
	}
	for at := range 2 { // the last page that ids were given from may stay loose
		if r.pages[at].loose != nil {
			t.Errorf("page %d is not packed", at)
		}
	}
}

// TestReuseBesideEmptyPages: ids are reused although the pages before and after have no series.
func TestReuseBesideEmptyPages(t *testing.T) {
	r := New()
	var gone []model.SeriesNumber
	for n := range model.SeriesNumber(4 * PageSize) {
		if _, err := r.Create(testKey(int(n))); err != nil {
			t.Fatal(err)
		}
		if n/PageSize != 3 {
			gone = append(gone, n)
		}
	}
	r.Forget(gone)
	want := []uint32{PageSize, 2 * PageSize, 4*PageSize - 1}
	r.Forget([]model.SeriesNumber{4*PageSize - 1})
	r.Reuse(roaring.BitmapOf(want...))
	for i, id := range want {
		if got, err := r.Create(testKey(10_000 + i)); err != nil || uint32(got) != id {
			t.Fatalf("id %d, %v; want %d", got, err, id)
		}
		if i == 1 { // the page goes before the next id is reused
			r.Forget([]model.SeriesNumber{2 * PageSize})
		}
	}
	if r.Pages() != 2 || r.pages[1].loose != nil || r.pages[3].loose == nil {
		t.Errorf("%d pages, the first is loose: %v, the last: %v", r.Pages(), r.pages[1].loose != nil, r.pages[3].loose != nil)
	}
}
