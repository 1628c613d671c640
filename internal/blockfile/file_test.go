package blockfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/quantile"
	"varve/internal/store"
)

const path = "0000000001.blk"

// mixed is a file's worth of all kinds: many series per page, several pages per
// series, all borders of time.
func mixed() (pieces []piece) {
	for id := model.SeriesNumber(10); id < 400; id++ {
		pieces = append(pieces, regular(id, model.Kind(id%6+1), int64(id)*1000, 10_000, int(id%40)+1))
	}
	for i := range int64(40) {
		p := piece{Series: 500, Kind: model.Double}
		for j := range int64(300) {
			ms := i*1_000_000 + j*j
			p.AppendFixed(ms, math.Float64bits(math.Sqrt(float64(ms))), 0)
		}
		pieces = append(pieces, p)
	}
	pieces = append(pieces,
		regular(501, model.Long, math.MinInt64, 1<<50, 3),
		regular(501, model.Long, -1, 1, 3),
		regular(501, model.Long, math.MaxInt64-2, 1, 3))
	for i := range int64(30) {
		p := piece{Series: math.MaxUint32, Kind: model.String}
		p.add(i*10, strings.Repeat(fmt.Sprint(i*7919), 1000), uint32(i))
		pieces = append(pieces, p)
	}
	return pieces
}

func TestRoundTrip(t *testing.T) {
	fs := vfs.NewMem()
	want := mixed()
	props := writeFile(t, fs, path, want)
	f := openFile(t, fs, path)
	if f.Pages() < 5 {
		t.Errorf("only %d pages", f.Pages())
	}
	got, err := scanAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(dumpAll(want), dumpAll(got)); d != "" {
		t.Fatal(d)
	}
	if f.Properties != props || f.Sequence != 7 || f.Deletions != 3 || f.Chunks != int64(len(want)) || f.Range() != model.AllTime {
		t.Errorf("properties %+v, written %+v", f.Properties, props)
	}
	var samples int64
	ids := map[model.SeriesNumber]bool{}
	for _, p := range want {
		samples += int64(p.Len())
		ids[p.Series] = true
		if !f.Series.Contains(uint32(p.Series)) {
			t.Errorf("series %d is not listed", p.Series)
		}
	}
	if f.Samples != samples || f.Series.GetCardinality() != uint64(len(ids)) {
		t.Errorf("%d samples of %d series, want %d of %d", f.Samples, f.Series.GetCardinality(), samples, len(ids))
	}
	if f.Bytes != int64(len(readContent(t, fs, path))) {
		t.Errorf("%d bytes", f.Bytes)
	}
}

// TestIter asks for every series, and for some that are not there, in ranges at
// all borders, in random order and ascending, forwards and backwards.
func TestIter(t *testing.T) {
	fs := vfs.NewMem()
	pieces := mixed()
	writeFile(t, fs, path, pieces)
	f := openFile(t, fs, path)
	bySeries := map[model.SeriesNumber][]piece{}
	for _, p := range pieces {
		bySeries[p.Series] = append(bySeries[p.Series], p)
	}
	want := func(id model.SeriesNumber, r model.TimeRange, down bool) (all []piece) {
		for _, p := range bySeries[id] {
			if r.StartMS <= r.EndMS && p.Times[0] <= r.EndMS && p.Times[p.Len()-1] >= r.StartMS {
				all = append(all, p)
			}
		}
		if down {
			slices.Reverse(all)
		}
		return all
	}
	check := func(t interface{ Fatalf(string, ...any) }, it *Iter, id model.SeriesNumber, r model.TimeRange, down bool) {
		it.Seek(id, r, down)
		got, err := readAll(it)
		if err != nil {
			t.Fatalf("series %d: %v", id, err)
		}
		if w, g := dumpAll(want(id, r, down)), dumpAll(got); !slices.Equal(w, g) {
			t.Fatalf("series %d in %v, down %v: %s", id, r, down, cmp.Diff(w, g))
		}
	}
	t.Run("ascending series", func(t *testing.T) {
		it := f.Iter(false)
		for _, r := range []model.TimeRange{model.AllTime, {StartMS: 0, EndMS: 100_000}} {
			for id := model.SeriesNumber(0); id < 510; id++ {
				check(t, it, id, r, false)
			}
			check(t, it, math.MaxUint32, r, true)
		}
	})
	t.Run("random", func(t *testing.T) {
		var borders []int64
		for _, p := range bySeries[500] {
			borders = append(borders, p.Times[0]-1, p.Times[0], p.Times[0]+1, p.Times[p.Len()-1], p.Times[p.Len()-1]+1)
		}
		times := rapid.OneOf(rapid.SampledFrom(borders), rapid.Int64Range(-10, 41_000_000), rapid.Int64(),
			rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 290, 300, math.MaxInt64 - 1, math.MaxInt64}))
		series := rapid.OneOf(rapid.Uint32Range(8, 402), rapid.SampledFrom([]uint32{0, 500, 501, 502, math.MaxUint32 - 1, math.MaxUint32}))
		rapid.Check(t, func(t *rapid.T) {
			it := f.Iter(rapid.Bool().Draw(t, "keep"))
			for range 10 {
				r := model.TimeRange{StartMS: times.Draw(t, "start"), EndMS: times.Draw(t, "end")}
				if r.StartMS > r.EndMS && rapid.IntRange(0, 5).Draw(t, "empty") > 0 {
					r.StartMS, r.EndMS = r.EndMS, r.StartMS
				}
				id, down := model.SeriesNumber(series.Draw(t, "series")), rapid.Bool().Draw(t, "down")
				if rapid.Bool().Draw(t, "leave") { // in the middle
					it.Seek(id, r, down)
					_, _ = it.Next()
					continue
				}
				check(t, it, id, r, down)
			}
		})
	})
}

// TestProperties compares expiry with what the chunks say.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pieces []piece
		var ends []int64 // each sample's, of its chunk: what the writer knows
		first := int64(math.MaxInt64)
		for id := range model.SeriesNumber(rapid.IntRange(1, 8).Draw(t, "series")) {
			ttls := rapid.SampledFrom([][]uint32{{0}, {1}, {1, 3600}, {0, 5}, {model.MaxTTL}}).Draw(t, "ttls")
			base := rapid.SampledFrom([]int64{0, math.MinInt64, math.MaxInt64 - 10_000}).Draw(t, "base")
			n := int64(rapid.IntRange(1, 9).Draw(t, "n"))
			cut := rapid.Int64Range(0, n-1).Draw(t, "cut") // the series has one chunk, or two
			last := int64(math.MinInt64)
			for _, part := range [][2]int64{{0, cut}, {cut, n}} {
				p := piece{Series: id, Kind: model.Null}
				end := int64(math.MinInt64)
				for i := part[0]; i < part[1]; i++ {
					ttl := ttls[int(i)%len(ttls)]
					p.add(base+i, "", ttl)
					end = max(end, model.ExpiryMS(base+i, ttl))
				}
				for range p.Times {
					ends = append(ends, end)
				}
				pieces, last = append(pieces, p), max(last, end)
			}
			first = min(first, last)
		}
		fs := vfs.NewMem()
		w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pieces {
			if err := w.Add(pieces[i].Series, pieces[i].Kind, &pieces[i].Columns, 0, pieces[i].Len()); err != nil {
				t.Fatal(err)
			}
		}
		props, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(ends)
		if want := ends[len(ends)-1]; props.ExpiresMS != want {
			t.Fatalf("expires at %d, want %d", props.ExpiresMS, want)
		}
		if want := ends[(len(ends)+1)/2-1]; props.HalfExpiresMS != want {
			t.Fatalf("half expires at %d, want %d", props.HalfExpiresMS, want)
		}
		if props.SeriesExpireMS != first {
			t.Fatalf("a series expires at %d, want %d", props.SeriesExpireMS, first)
		}
	})
}

// TestLongStrings writes a chunk of long strings as several.
func TestLongStrings(t *testing.T) {
	fs := vfs.NewMem()
	p := piece{Series: 1, Kind: model.String}
	for i := range int64(30) {
		p.add(i, strings.Repeat(string(rune('a'+i)), int(i)*2000), 0)
	}
	p.add(30, strings.Repeat("long", chunkBytes), 0)
	p.add(31, "", 0)
	writeFile(t, fs, path, []piece{p})
	f := openFile(t, fs, path)
	got, err := scanAll(f)
	if err != nil {
		t.Fatal(err)
	}
	back := piece{Series: 1, Kind: model.String}
	for _, g := range got {
		if len(g.Data) > chunkBytes && g.Len() > 1 {
			t.Errorf("chunk of %d samples, %d bytes", g.Len(), len(g.Data))
		}
		for i := range g.Times {
			back.AppendFrom(g.Kind, &g.Columns, i)
		}
	}
	if p.dump() != back.dump() || len(got) < 10 || f.Chunks != int64(len(got)) {
		t.Errorf("%d chunks, %d listed, or samples changed", len(got), f.Chunks)
	}
}

func TestWriterOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		piece piece
	}{
		{"a series that came before", regular(4, model.Long, 0, 1, 1)},
		{"a time that is there", regular(5, model.Long, 109, 1, 2)},
	} {
		fs := vfs.NewMem()
		w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
		if err != nil {
			t.Fatal(err)
		}
		first := regular(5, model.Long, 100, 1, 10)
		if err := w.Add(5, model.Long, &first.Columns, 0, 10); err != nil {
			t.Fatal(err)
		}
		err = w.Add(c.piece.Series, c.piece.Kind, &c.piece.Columns, 0, c.piece.Len())
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, again := w.Finish(); again != err {
			t.Errorf("%s: %v, then %v", c.name, err, again)
		}
		wantNoFile(t, fs)
	}
}

func wantNoFile(t *testing.T, fs vfs.FS) {
	t.Helper()
	if names, err := fs.List(""); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestNoSamples(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(1, model.Long, &model.Columns{}, 0, 0); err != nil {
		t.Error(err)
	}
	if _, err := w.Finish(); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Error(err)
	}
	w.Abort()
	wantNoFile(t, fs)
}

func TestAbort(t *testing.T) {
	fs := &watchedFS{FS: vfs.NewMem()}
	w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := regular(5, model.Long, 0, 1, 10)
	w.Abort()
	w.Abort()
	if err := w.Add(5, model.Long, &p.Columns, 0, 10); err == nil {
		t.Error("added after abort")
	}
	if _, err := w.Finish(); err == nil {
		t.Error("finished after abort")
	}
	wantNoFile(t, fs)
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files open", n)
	}
	writeFile(t, fs, path, []piece{p})
	w, err = Create(fs, "2", chunk.Fast, Origin{Sequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(5, model.Long, &p.Columns, 0, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if _, err := fs.Stat("2"); err != nil {
		t.Errorf("abort removed a finished file: %v", err)
	}
}

// TestWriteErrors fails the first, second, third ... operation of writing a
// file, until it passes.
func TestWriteErrors(t *testing.T) {
	pieces := mixed()
	failed := 0
	for i := int32(0); ; i++ {
		mem := vfs.NewMem()
		index := errorfs.OnIndex(i)
		writes := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRemove || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
				return nil
			}
			return index.MaybeError(op)
		})
		fs := &watchedFS{FS: errorfs.Wrap(mem, writes)}
		err := tryWrite(fs, pieces)
		if n := fs.open.Load(); n != 0 {
			t.Fatalf("operation %d: %d files left open", i, n)
		}
		if err == nil {
			break
		}
		failed++
		if !errors.Is(err, errorfs.ErrInjected) || !strings.Contains(err.Error(), path) {
			t.Errorf("operation %d: %v", i, err)
		}
		wantNoFile(t, mem)
	}
	if failed < 4 {
		t.Errorf("only %d operations failed", failed)
	}
	fs := &watchedFS{FS: vfs.NewMem(), failClose: true}
	if err := tryWrite(fs, pieces); !errors.Is(err, errClose) {
		t.Errorf("close: %v", err)
	}
	wantNoFile(t, fs)
}

func tryWrite(fs vfs.FS, pieces []piece) error {
	w, err := Create(fs, path, chunk.Fast, Origin{Sequence: 1})
	if err != nil {
		return err
	}
	for i := range pieces {
		p := &pieces[i]
		if err := w.Add(p.Series, p.Kind, &p.Columns, 0, p.Len()); err != nil {
			w.Abort()
			return err
		}
	}
	_, err = w.Finish()
	return err
}

// TestReadErrors fails each operation of opening and scanning: what the file
// system says is not taken for damage, and nothing stays open.
func TestReadErrors(t *testing.T) {
	mem := vfs.NewMem()
	writeFile(t, mem, path, mixed()[:30])
	for i := int32(0); ; i++ {
		fs := &watchedFS{FS: errorfs.Wrap(mem, errorfs.OnIndex(i))}
		f, err := Open(fs, path, 1, NewCache(0))
		if err == nil {
			_, err = scanAll(f)
			if e := f.Close(); e != nil {
				t.Error(e)
			}
		}
		if n := fs.open.Load(); n != 0 {
			t.Fatalf("operation %d: %d files left open", i, n)
		}
		if err == nil {
			return
		}
		var damage *store.CorruptionError
		if !errors.Is(err, errorfs.ErrInjected) || errors.As(err, &damage) {
			t.Errorf("operation %d: %v", i, err)
		}
	}
}

// TestCache holds the cache to its bound, and reads right through it.
func TestCache(t *testing.T) {
	fs := vfs.NewMem()
	pieces := mixed()
	writeFile(t, fs, path, pieces)
	const capacity = 16 * (20<<10 + pageOverhead) // a page per shard
	cache := NewCache(capacity)
	var files []*File
	for n := range uint64(3) {
		f, err := Open(fs, path, n, cache)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	for range 2 {
		for _, f := range files {
			for i := range f.Pages() {
				for range 2 {
					p, _, err := f.indexedPage(i)
					if err != nil {
						t.Fatal(err)
					}
					if err := checkFirst(p, f.pages[i].first); err != nil {
						t.Fatal(err)
					}
				}
			}
			if n := cache.Bytes(); n > capacity || n <= 0 {
				t.Fatalf("%d bytes, capacity %d", n, capacity)
			}
		}
	}
	if h, m := cache.Hits.Load(), cache.Misses.Load(); h < int64(files[0].Pages()) || m < int64(files[0].Pages()) {
		t.Errorf("%d hits, %d misses", h, m)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := cache.Bytes(); n != 0 {
		t.Errorf("%d bytes of closed files", n)
	}
	for i := range cache.shards {
		if s := &cache.shards[i]; len(s.pages) != 0 || s.recent.Len() != 0 {
			t.Errorf("shard %d keeps %d pages, %d in the list", i, len(s.pages), s.recent.Len())
		}
	}
}

// TestCacheForgetsOldest asks for one page again and again while others pass.
func TestCacheForgetsOldest(t *testing.T) {
	cache := NewCache(16 * 3 * (1000 + pageOverhead))
	for i := range 100 {
		cache.put(1, i*16, chunk.Page{}, 1000) // all in one shard
		if _, _, ok := cache.get(1, 0); !ok {
			t.Fatalf("the page asked for last is gone after %d others", i)
		}
	}
	if _, _, ok := cache.get(1, 98*16); !ok {
		t.Error("a page asked for lately is gone")
	}
	if _, _, ok := cache.get(1, 90*16); ok {
		t.Error("a page that nobody asks for is kept")
	}
	cache.put(2, 0, chunk.Page{}, 1<<40)
	if cache.Bytes() > 3*(1000+pageOverhead) {
		t.Errorf("%d bytes", cache.Bytes())
	}
}

// TestCacheChargesIndexes asks for a page until it has an index.
func TestCacheChargesIndexes(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, path, walks(2000, 5))
	cache := NewCache(16 << 20)
	f, err := Open(fs, path, 1, cache)
	if err != nil {
		t.Fatal(err)
	}
	page, x, err := f.indexedPage(0)
	if err != nil || x != nil {
		t.Fatal("index of a page that is read first:", x, err)
	}
	before := cache.Bytes()
	for range 2 {
		if page, x, err = f.indexedPage(0); err != nil || x == nil {
			t.Fatal(x, err)
		}
		if got, want := cache.Bytes(), before+x.Bytes(); got != want || x.Bytes() < 1000 {
			t.Errorf("%d bytes, want %d with an index of %d", got, want, x.Bytes())
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	cache.putIndex(1, 0, page.Index()) // of a page that is gone
	if n := cache.Bytes(); n != 0 {
		t.Errorf("%d bytes of a closed file", n)
	}
}

// damaged opens and reads b whole. It returns what is wrong with it.
func damaged(t *testing.T, b []byte) ([]piece, error) {
	t.Helper()
	fs := &watchedFS{FS: vfs.NewMem()}
	content(t, fs, path, b)
	f, err := Open(fs, path, 1, NewCache(0))
	if err != nil {
		if fs.open.Load() != 0 {
			t.Error("a file that cannot be read stays open")
		}
		return nil, err
	}
	defer f.Close()
	return scanAll(f)
}

func small(t testing.TB) []byte {
	fs := vfs.NewMem()
	writeFile(t, fs, path, []piece{
		regular(1, model.Long, 1000, 10, 5),
		regular(2, model.Double, 1000, 10, 40),
		regular(2, model.Double, 5000, 10, 2),
		regular(70_000, model.String, -5, 1, 2),
	})
	return readContent(t, fs, path)
}

// wantDamage checks that err names the file and an offset in it.
func wantDamage(t *testing.T, size int, err error) {
	t.Helper()
	var damage *store.CorruptionError
	if !errors.As(err, &damage) || damage.File != path || damage.Offset < 0 || damage.Offset > int64(size) || damage.Reason == "" {
		t.Errorf("got %v", err)
	}
}

func TestFlippedBits(t *testing.T) {
	b := small(t)
	for at := range b {
		for bit := range 8 {
			b[at] ^= 1 << bit
			_, err := damaged(t, b)
			b[at] ^= 1 << bit
			wantDamage(t, len(b), err)
			if t.Failed() {
				t.Fatalf("bit %d of byte %d of %d", bit, at, len(b))
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	b := small(t)
	for n := range b {
		_, err := damaged(t, b[:n])
		wantDamage(t, n, err)
	}
	_, err := damaged(t, append(b, 0))
	wantDamage(t, len(b)+1, err)
}

func TestUnknownVersion(t *testing.T) {
	b := small(t)
	b[8] = 4
	_, err := damaged(t, b)
	wantDamage(t, len(b), err)
	if !strings.Contains(err.Error(), "version 4 is not known to this build") || !strings.Contains(err.Error(), "newer") {
		t.Error(err)
	}
}

// TestNewer: a file of a newer build has another version and a property that is not known,
// or none where they are now; a version alone is damage, and so is a property alone.
func TestNewer(t *testing.T) {
	b := small(t)
	other := func(version byte, old, new string) []byte {
		changed := bytes.Replace(b, []byte(old), []byte(new), 1)
		changed[8] = version
		return changed
	}
	for name, c := range map[string]struct {
		content []byte
		want    bool
	}{
		"as it is":                  {b, false},
		"a damaged version":         {other(4, "", ""), false},
		"a newer one":               {other(4, `"chunks"`, `"chonks"`), true},
		"another layout":            {other(9, `{"sequence"`, `{"age"`), true},
		"a property of a newer one": {other(1, `"chunks"`, `"chonks"`), false},
		"no block file":             {[]byte("VARVE is no block file"), false},
		"nothing":                   {nil, false},
	} {
		fs := vfs.NewMem()
		content(t, fs, path, c.content)
		if got := Newer(fs, path); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if Newer(vfs.NewMem(), path) {
		t.Error("a file that is not there is newer")
	}
}

// noise is a series whose samples fill a page.
func noise(series model.SeriesNumber) piece {
	p := piece{Series: series, Kind: model.Long}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range int64(3000) {
		p.AppendFixed(i, rng.Uint64(), 0)
	}
	return p
}

// TestMisplacedPage swaps two whole pages: each has a right checksum.
func TestMisplacedPage(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, path, []piece{noise(1), noise(2)})
	b := readContent(t, fs, path)
	f := openFile(t, fs, path)
	if f.Pages() != 2 || f.pages[0].length != f.pages[1].length {
		t.Fatalf("pages %v", f.pages)
	}
	one, two := f.pages[0], f.pages[1]
	swapped := slices.Concat(b[:one.offset], b[two.offset:][:two.length], b[one.offset:][:one.length], b[two.offset+uint64(two.length):])
	_, err := damaged(t, swapped)
	wantDamage(t, len(b), err)
}

// TestIterStaysAtError reads a page whose iteration fails.
func TestIterStaysAtError(t *testing.T) {
	b := small(t)
	b[headerSize+20] ^= 1
	fs := vfs.NewMem()
	content(t, fs, path, b)
	f := openFile(t, fs, path)
	it := f.Iter(true)
	for range 2 {
		it.Seek(2, model.AllTime, false)
		for range 3 {
			e, err := it.Next()
			wantDamage(t, len(b), err)
			if e != nil {
				t.Errorf("a chunk after an error: %v", e)
			}
		}
	}
}

// TestIterGoesOnAfterADamagedPage fails to read the second page, then goes back
// in the first one.
func TestIterGoesOnAfterADamagedPage(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, path, []piece{regular(1, model.Null, 0, 1, 1), noise(2), noise(3)})
	f := openFile(t, fs, path)
	b := readContent(t, fs, path)
	b[f.pages[1].offset+20] ^= 1
	content(t, fs, path, b)
	f = openFile(t, fs, path)
	for _, keep := range []bool{false, true} {
		it := f.Iter(keep)
		for _, c := range []struct {
			series  model.SeriesNumber
			damaged bool
		}{{2, false}, {3, true}, {1, false}} {
			it.Seek(c.series, model.AllTime, false)
			e, err := it.Next()
			if c.damaged {
				wantDamage(t, len(b), err)
			} else if err != nil || e == nil || e.Series != c.series {
				t.Errorf("series %d of a sound page: %v, %v", c.series, e, err)
			}
		}
	}
}

// TestHostileIndex gives sizes in the trailer that do not fit the file.
func TestHostileIndex(t *testing.T) {
	b := small(t)
	trailer := b[len(b)-trailerLen:]
	for _, at := range []int{0, 8, 12, 16} {
		for _, v := range []uint32{0, 1, 1 << 20, math.MaxUint32} {
			old := binary.LittleEndian.Uint32(trailer[at:])
			if v == old {
				continue
			}
			binary.LittleEndian.PutUint32(trailer[at:], v)
			n := testing.AllocsPerRun(1, func() {
				_, err := damaged(t, b)
				wantDamage(t, len(b), err)
			})
			if n > 200 {
				t.Errorf("%v allocations", n)
			}
			binary.LittleEndian.PutUint32(trailer[at:], old)
		}
	}
}

// TestConcurrentReads has goroutines share a file and a cache that is too small
// for it.
func TestConcurrentReads(t *testing.T) {
	fs := vfs.NewMem()
	pieces := mixed()
	writeFile(t, fs, path, pieces)
	f, err := Open(fs, path, 1, NewCache(100<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := dumpAll(pieces)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			it := f.Iter(true)
			at := 0
			for at < len(want) {
				it.Seek(pieces[at].Series, model.AllTime, worker%2 == 1)
				got, err := readAll(it)
				if err != nil || len(got) == 0 {
					t.Errorf("series %d: %d chunks, %v", pieces[at].Series, len(got), err)
					return
				}
				if worker%2 == 1 {
					slices.Reverse(got)
				}
				if !slices.Equal(dumpAll(got), want[at:at+len(got)]) {
					t.Errorf("series %d differs", pieces[at].Series)
				}
				at += len(got)
			}
		})
	}
	wg.Wait()
}

// TestCraftedIndex changes an index and puts its checksum right: what does not
// agree with itself is refused all the same.
func TestCraftedIndex(t *testing.T) {
	fs := vfs.NewMem()
	writeFile(t, fs, path, mixed())
	whole := readContent(t, fs, path)
	f := openFile(t, fs, path)
	last := f.pages[len(f.pages)-1]
	index := int(last.offset) + int(last.length)
	entry := func(b []byte, i int) []byte { return b[index+i*indexEntry:] }
	bitmap := index + f.Pages()*indexEntry
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   string
	}{
		{"nothing", func(b []byte) []byte { return b }, ""},
		{"bytes between pages and index", func(b []byte) []byte {
			b = slices.Insert(b, index, 1, 2, 3)
			binary.LittleEndian.PutUint64(b[len(b)-trailerLen:], uint64(index+3))
			return b
		}, "pages end here"},
		{"a page that begins late", func(b []byte) []byte { entry(b, 1)[16]++; return b }, "page 1 does not follow"},
		{"a page without bytes", func(b []byte) []byte { copy(entry(b, 0)[4:8], make([]byte, 4)); return b }, "page 0 does not follow"},
		{"a page of the size of the file", func(b []byte) []byte { entry(b, 2)[7] = 0xff; return b }, "page 2 does not follow"},
		{"pages out of order", func(b []byte) []byte { copy(entry(b, 2)[:4], entry(b, 0)[:4]); return b }, "page 2 does not follow"},
		{"another first series", func(b []byte) []byte { entry(b, 0)[0]--; return b }, "expected series 9 at"},
		{"another first time", func(b []byte) []byte { entry(b, 0)[8]++; return b }, "first, got series 10"},
		{"another bitmap cookie", func(b []byte) []byte { b[bitmap]++; return b }, "series: "},
		{"no properties", func(b []byte) []byte { b[len(b)-trailerLen-1] = ' '; return b }, "properties: "},
	} {
		b := c.change(slices.Clone(whole))
		if !fixIndex(b) {
			t.Fatalf("%s: no index", c.name)
		}
		_, err := damaged(t, b)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		wantDamage(t, len(b), err)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestSampleCount compares a file's number of samples with what was added to it,
// also of a series of long strings, which is cut into several chunks.
func TestSampleCount(t *testing.T) {
	fs := vfs.NewMem()
	long := piece{Series: 3, Kind: model.String}
	for i := range int64(100) {
		long.add(i, string(make([]byte, chunkBytes/10)), 0)
	}
	pieces := []piece{regular(1, model.Long, 0, 10, 3), regular(2, model.Double, 5, 10, 40), long}
	if p := writeFile(t, fs, path, pieces); p.Samples != 143 || p.Chunks < 10 {
		t.Errorf("%d samples in %d chunks, want 143", p.Samples, p.Chunks)
	}
}

// TestFilesOfSketches: builds that cannot read sketches refuse the file by its version.
func TestFilesOfSketches(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create(fs, path, chunk.Best, Origin{Sequence: 5, StepMS: 60_000, Sketches: true})
	if err != nil {
		t.Fatal(err)
	}
	var c model.Columns
	var a model.Aggregate
	a.Add(60_005, 2.5)
	a.Sketch = quantile.Of(2.5)
	c.AppendBytes(60_000, a.Append(nil), 0)
	if err := w.Add(7, model.AggregateKind, &c, 0, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, fs, path)
	b := readContent(t, fs, path)
	if !f.Sketches || f.StepMS != 60_000 || b[8] != 3 {
		t.Errorf("version %d: %+v", b[8], f.Properties)
	}
	for _, v := range []byte{1, 2} {
		bad := bytes.Clone(b)
		bad[8] = v
		_, err := damaged(t, bad)
		wantDamage(t, len(bad), err)
	}
	for property, want := range map[string]string{
		`,"step_ms":60000`: "the header says buckets of 60000 ms, the properties say 0",
		`,"sketches":true`: "the header says sketches: true, the properties say false",
	} {
		bad := bytes.Replace(b, []byte(property), bytes.Repeat([]byte(" "), len(property)), 1)
		if bytes.Equal(bad, b) || !fixIndex(bad) {
			t.Fatalf("there is no %s", property)
		}
		_, err := damaged(t, bad)
		wantDamage(t, len(bad), err)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", property, err)
		}
	}
	content(t, fs, "cut", b[:len(b)-1])
	if got := SalvageHead(fs, "cut"); got != (Properties{StepMS: 60_000, Sketches: true}) {
		t.Errorf("a file without properties: %+v", got)
	}
}

// TestFilesOfBuckets: their step is in header and properties, and a bucket reaches to its
// last instant.
func TestFilesOfBuckets(t *testing.T) {
	fs := vfs.NewMem()
	w, err := Create(fs, path, chunk.Best, Origin{Sequence: 5, StepMS: 60_000})
	if err != nil {
		t.Fatal(err)
	}
	var c model.Columns
	for ms := int64(0); ms <= 600_000; ms += 60_000 {
		c.AppendBytes(ms, model.Aggregate{Sum: 1, Count: 1, Min: 1, Max: 1, Last: 1, LastMS: ms + 5}.Append(nil), 0)
	}
	if err := w.Add(7, model.AggregateKind, &c, 0, c.Len()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, fs, path)
	if f.StepMS != 60_000 || f.MinMS != 0 || f.MaxMS != 659_999 || f.Samples != 11 {
		t.Errorf("%+v", f.Properties)
	}
	if p, err := SalvageProperties(fs, path); err != nil || p != f.Properties {
		t.Errorf("salvaged: %+v, %v", p, err)
	}
	b := readContent(t, fs, path)
	for at, v := range map[int]byte{8: 1, 12: 59} { // another version, another step
		bad := bytes.Clone(b)
		bad[at] = v
		_, err := damaged(t, bad)
		wantDamage(t, len(bad), err)
	}
	content(t, fs, "cut", b[:len(b)-1])
	if got := SalvageHead(fs, "cut"); got != (Properties{StepMS: 60_000}) {
		t.Errorf("a file without properties: %+v", got)
	}
}

// TestLateUnion: files that are merged have the first and the last of their late samples. Zero is no time.
func TestLateUnion(t *testing.T) {
	none, early, late := Late{}, Late{FirstMS: 10, LastMS: 30}, Late{FirstMS: 20, LastMS: 40}
	for _, c := range []struct{ a, b, want Late }{
		{none, none, none}, {none, early, early}, {early, early, early}, {early, late, Late{FirstMS: 10, LastMS: 40}}, {early, Late{FirstMS: 15, LastMS: 20}, early},
	} {
		if ab, ba := c.a.Union(c.b), c.b.Union(c.a); ab != c.want || ba != c.want {
			t.Errorf("%v and %v: %v, %v, want %v", c.a, c.b, ab, ba, c.want)
		}
	}
}

// TestCacheTakesAPageOnce: two readers that have read the same page at once count once. A page that
// is larger than a shard leaves the others there.
func TestCacheTakesAPageOnce(t *testing.T) {
	cache := NewCache(16 * 3 * (1000 + pageOverhead))
	for range 5 {
		cache.put(1, 0, chunk.Page{}, 1000)
		cache.put(1, 16, chunk.Page{}, 1000) // in the same shard
	}
	cache.put(1, 32, chunk.Page{}, 1<<40)
	if got, want := cache.Bytes(), int64(2*(1000+pageOverhead)); got != want {
		t.Errorf("%d bytes for two pages, want %d", got, want)
	}
	for _, page := range []int{0, 16} {
		if _, _, ok := cache.get(1, page); !ok {
			t.Errorf("page %d is gone", page)
		}
	}
}
