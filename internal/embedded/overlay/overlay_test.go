package overlay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/head"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds are those of the series of the tests, by id.
var kinds = []model.Kind{model.Double, model.Long, model.String, model.Null}

type sample struct {
	ms    int64
	value string
	float float64 // of fixed kinds
	ttl   uint32
}

func sampleAt(kind model.Kind, c *model.Columns, i int) sample {
	s := sample{ms: c.Times[i], ttl: c.TTL(i)}
	switch {
	case kind.Fixed():
		s.float = model.Float(kind, c.Values[i])
		s.value = fmt.Sprint(s.float)
	case kind.Variable():
		s.value = string(c.Bytes(i))
	}
	return s
}

// A world is layers with a random history, and what they have to show: of each series the
// sample that was written last at each time, unless it was deleted afterwards.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	fs      vfs.FS
	cache   *blockfile.Cache
	pool    Pool
	layers  Layers
	hiding  []*record.Deletion
	deleted uint64 // sequence of the last deletion
	files   uint64
	want    []map[int64]sample // by series
}

// newHead returns a head with short or with long fragments.
func (w *world) newHead() *head.Head { return head.New(w.rng.Int64N(2) * head.MaxBytes) }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewMem(), cache: blockfile.NewCache(1 << 20)}
	w.layers = Layers{
		Active:    w.newHead(),
		Deletions: func() *Deletions { return NewDeletions(w.hiding) },
		Failed:    func(err error) { t.Errorf("failed: %v", err) },
	}
	for range kinds {
		w.want = append(w.want, map[int64]sample{})
	}
	t.Cleanup(func() {
		for _, f := range w.layers.Files {
			f.Close()
		}
	})
	return w
}

const lastMS = 3_000_000

// write writes a run of samples of one series, dense or not, in order or not.
func (w *world) write() {
	id := uint32(w.rng.IntN(len(kinds)))
	kind, step := kinds[id], int64(1000)
	var times []int64
	at := w.rng.Int64N(lastMS/1000) * 1000
	for range 1 + w.rng.IntN(300) {
		times = append(times, at)
		at = min(at+step*(1+w.rng.Int64N(2)), lastMS)
	}
	if w.rng.IntN(4) == 0 {
		w.rng.Shuffle(len(times), func(i, k int) { times[i], times[k] = times[k], times[i] })
	}
	var b store.Batch
	var cols model.Columns
	expires := w.rng.IntN(3) == 0
	for i, ms := range times {
		ttl := uint32(0)
		if expires {
			ttl = uint32(w.rng.IntN(lastMS / 1000))
		}
		number := w.rng.IntN(100)
		switch {
		case kind == model.Double:
			b.AddDouble(store.Ref(id), ms, float64(number), ttl)
			cols.AppendFixed(ms, math.Float64bits(float64(number)), ttl)
		case kind == model.Long:
			b.AddLong(store.Ref(id), ms, int64(number), ttl)
			cols.AppendFixed(ms, uint64(number), ttl)
		case kind == model.String:
			b.AddBytes(store.Ref(id), ms, fmt.Append(nil, number), ttl)
			cols.AppendBytes(ms, fmt.Append(nil, number), ttl)
		default:
			b.AddNull(store.Ref(id), ms, ttl)
			cols.AppendNull(ms, ttl)
		}
		w.want[id][ms] = sampleAt(kind, &cols, i)
	}
	w.layers.Active.Append(&b, slices.Repeat([]model.Kind{kind}, len(times)))
}

// erase deletes some range of some series.
func (w *world) erase() {
	w.deleted++
	d := &record.Deletion{Sequence: w.deleted, Range: w.someRange(), IDs: roaring.New()}
	for id := range kinds {
		if w.rng.IntN(2) == 0 {
			continue
		}
		d.IDs.Add(uint32(id))
		maps.DeleteFunc(w.want[id], func(ms int64, _ sample) bool { return d.Range.Contains(ms) })
	}
	w.hiding = append(w.hiding, d)
	for it := d.IDs.Iterator(); it.HasNext(); {
		if err := w.layers.Active.Delete(model.SeriesNumber(it.Next()), d.Range); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) someRange() model.TimeRange {
	a, b := w.rng.Int64N(lastMS), w.rng.Int64N(lastMS)
	switch w.rng.IntN(4) {
	case 0:
		return model.AllTime
	case 1:
		b = a + w.rng.Int64N(50_000)
	}
	return model.TimeRange{StartMS: min(a, b), EndMS: max(a, b)}
}

// file makes a file of what each series has; none if they have nothing.
func (w *world) file(deletions uint64, of func(id model.SeriesNumber) *model.Columns) []*blockfile.File {
	w.files++
	path := fmt.Sprint(w.files)
	out, err := blockfile.Create(w.fs, path, chunk.Fast, blockfile.Origin{Sequence: w.files, Deletions: deletions})
	if err != nil {
		w.t.Fatal(err)
	}
	samples := 0
	for id, kind := range kinds {
		c, size := of(model.SeriesNumber(id)), 1+w.rng.IntN(200)
		samples += c.Len()
		for from := 0; from < c.Len(); from += size {
			if err := out.Add(model.SeriesNumber(id), kind, c, from, min(from+size, c.Len())); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	if samples == 0 {
		out.Abort()
		return nil
	}
	if _, err := out.Finish(); err != nil {
		w.t.Fatal(err)
	}
	f, err := blockfile.Open(w.fs, path, w.files, w.cache)
	if err != nil {
		w.t.Fatal(err)
	}
	return []*blockfile.File{f}
}

// freeze makes a file of the frozen head if there is one, and freezes the active one.
func (w *world) freeze() {
	if frozen := w.layers.Frozen; frozen != nil {
		w.layers.Files = append(w.layers.Files, w.file(w.layers.FrozenDeletions, func(id model.SeriesNumber) *model.Columns {
			var run head.Run
			var c model.Columns
			if _, err := frozen.Snapshot(id, model.AllTime, &run); err != nil {
				w.t.Fatal(err)
			}
			for _, f := range run.Fragments {
				if err := run.Decode(f, &c); err != nil {
					w.t.Fatal(err)
				}
			}
			c.Append(&run.Open, 0, run.Open.Len())
			return &c
		})...)
	}
	w.layers.Frozen, w.layers.FrozenDeletions, w.layers.Active = w.layers.Active, w.deleted, w.newHead()
}

// merge replaces neighbouring files by one, to which all deletions have been applied.
func (w *world) merge() {
	files := w.layers.Files
	if len(files) < 2 {
		return
	}
	from := w.rng.IntN(len(files) - 1)
	to := from + 2 + w.rng.IntN(len(files)-from-1)
	var iters []*blockfile.Iter
	for _, f := range files[from:to] {
		iters = append(iters, f.Iter(false))
	}
	merged := w.file(w.deleted, func(id model.SeriesNumber) *model.Columns {
		c := w.pool.Read(w.t.Context(), &w.layers, math.MaxInt64, id, kinds[id], store.ReadOptions{Range: model.AllTime})
		kept := len(c.kept)
		defer func() {
			if c.Close(); len(c.kept) != kept {
				w.t.Errorf("a cursor keeps %d iterators of a merge", len(c.kept)-kept)
			}
		}()
		if err := c.OpenFiles(iters, true); err != nil {
			w.t.Fatal(err)
		}
		var all model.Columns
		for {
			b, err := c.Next()
			if err != nil {
				w.t.Fatal(err)
			}
			if b == nil {
				return &all
			}
			all.Append(&b.Columns, 0, b.Len())
		}
	})
	for _, f := range files[from:to] {
		f.Close()
	}
	w.layers.Files = slices.Replace(slices.Clone(files), from, to, merged...)
	w.pool = Pool{} // its cursors have iterators over files that are closed
}

// check compares the samples that a cursor returns for each series with the expected ones.
func (w *world) check() {
	for id, kind := range kinds {
		o := store.ReadOptions{Range: w.someRange(), Descending: w.rng.IntN(2) == 0}
		span := 1 + w.rng.Int64N(1<<w.rng.IntN(22)) // from those of one sample to that of all
		switch w.rng.IntN(3) {
		case 0:
			o.Limit = 1 + w.rng.IntN(200)
		case 1:
			o.Summarize = &store.Summary{Needs: ^model.StatSet(0), Final: func(ms int64) int64 { return ms - ms%span + span - 1 }}
		}
		nowMS := w.rng.Int64N(2 * lastMS)
		var want []sample
		for _, s := range w.want[id] {
			if o.Range.Contains(s.ms) && model.ExpiryMS(s.ms, s.ttl) > nowMS {
				want = append(want, s)
			}
		}
		slices.SortFunc(want, func(a, b sample) int { return cmp.Compare(a.ms, b.ms) })
		if o.Descending {
			slices.Reverse(want)
		}
		if o.Limit > 0 {
			want = want[:min(o.Limit, len(want))]
		}
		c := w.pool.Read(w.t.Context(), &w.layers, nowMS, model.SeriesNumber(id), kind, o)
		if err := compare(c, kind, o, want); err != nil {
			w.t.Fatalf("series %d, %+v, at %d: %v", id, o, nowMS, err)
		}
		c.Close()
	}
}

// compare compares the blocks of a cursor with samples.
func compare(c *Cursor, kind model.Kind, o store.ReadOptions, want []sample) error {
	for {
		b, err := c.Next()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		for i := range b.Columns.Times {
			got := sampleAt(kind, &b.Columns, i)
			if len(want) == 0 || got.ms != want[0].ms || got.value != want[0].value {
				return fmt.Errorf("sample %v, want the first of %v", got, want[:min(1, len(want))])
			}
			want = want[1:]
		}
		for _, s := range b.Stats {
			if s.Count > len(want) {
				return fmt.Errorf("statistics of %d samples, %d are left", s.Count, len(want))
			}
			run := slices.Clone(want[:s.Count])
			if want = want[s.Count:]; o.Descending {
				slices.Reverse(run)
			}
			first, last := run[0], run[len(run)-1]
			low, high, sum := math.Inf(1), math.Inf(-1), 0.0
			for _, each := range run {
				low, high, sum = min(low, each.float), max(high, each.float), sum+each.float
			}
			if s.FirstMS != first.ms || s.LastMS != last.ms || model.Float(kind, s.First) != first.float || model.Float(kind, s.Last) != last.float ||
				s.Min != low || s.Max != high || s.Sum != sum || o.Summarize.Final(first.ms) < last.ms {
				return fmt.Errorf("statistics %+v of %v", s, run)
			}
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("%d samples are missing, from %v on", len(want), want[0])
	}
	return nil
}

// TestModel gives layers random histories and compares the samples that are read with a map.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 60 {
				switch w.rng.IntN(10) {
				case 0:
					w.erase()
				case 1, 2:
					w.freeze()
				case 3:
					w.merge()
				default:
					w.write()
				}
				w.check()
			}
		})
	}
}

// TestUnreadableFiles: whichever read of a file fails, that is the cursor's last word, and told to
// Failed. Samples that are not there are never passed over.
func TestUnreadableFiles(t *testing.T) {
	failures := 0
	for seed := range uint64(12) {
		w := newWorld(t, seed)
		var reads, fails atomic.Int64
		w.cache = blockfile.NewCache(0)
		w.fs = errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileReadAt && reads.Add(1) == fails.Load() {
				return errorfs.ErrInjected
			}
			return nil
		}))
		var told error
		w.layers.Failed = func(err error) { told = err }
		for range 20 {
			w.write()
			if w.rng.IntN(3) == 0 {
				w.freeze()
			}
		}
		for id, kind := range kinds {
			var want []sample
			for _, s := range w.want[id] {
				if model.ExpiryMS(s.ms, s.ttl) > 0 {
					want = append(want, s)
				}
			}
			slices.SortFunc(want, func(a, b sample) int { return cmp.Compare(a.ms, b.ms) })
			for n := int64(1); ; n++ {
				told = nil
				reads.Store(0)
				fails.Store(n)
				o := store.ReadOptions{Range: model.AllTime}
				c := w.pool.Read(t.Context(), &w.layers, 0, model.SeriesNumber(id), kind, o)
				err := compare(c, kind, o, want)
				c.Close()
				if reads.Load() < n {
					if err != nil || told != nil {
						t.Fatalf("series %d, after %d reads: %v, told %v", id, n-1, err, told)
					}
					break
				}
				failures++
				if !errors.Is(err, errorfs.ErrInjected) || !errors.Is(told, errorfs.ErrInjected) {
					t.Fatalf("series %d, read %d fails: %v, told %v", id, n, err, told)
				}
			}
		}
	}
	if failures < 20 {
		t.Errorf("only %d reads failed", failures)
	}
}

// TestUnreadableOverwritten: a read that fails in the middle of a file ends a cursor, also while samples are left
// out because newer ones replace them.
func TestUnreadableOverwritten(t *testing.T) {
	w := newWorld(t, 1)
	reads, fails := 0, 0
	w.cache = blockfile.NewCache(0)
	w.fs = errorfs.Wrap(w.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt {
			if reads++; reads == fails {
				return errorfs.ErrInjected
			}
		}
		return nil
	}))
	const count = 20_000
	w.layers.Failed = func(error) {}
	for files := range 2 { // the second one replaces each sample of the first, and takes many reads as well
		fails = 0
		w.layers.Files = append(w.layers.Files, w.file(0, func(id model.SeriesNumber) *model.Columns {
			var c model.Columns
			for ms := range int64(count) {
				if id == 0 {
					c.AppendFixed(ms, math.Float64bits(w.rng.Float64()), 0)
				}
			}
			return &c
		})...)
		for fails = 1; ; fails++ {
			reads = 0
			c := w.pool.Read(t.Context(), &w.layers, 0, 0, model.Double, store.ReadOptions{Range: model.AllTime})
			read := 0
			b, err := c.Next()
			for ; b != nil && err == nil; b, err = c.Next() {
				read += b.Len()
			}
			c.Close()
			if reads < fails {
				if err != nil || read != count || reads < 3*(files+1) {
					t.Errorf("%d samples of %d in %d reads: %v", read, count, reads, err)
				}
				break
			}
			if !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("read %d of %d files fails: %v, after %d samples", fails, files+1, err, read)
			}
		}
	}
}

// TestCancelled: a reader that has gone is noticed between blocks, and told to Failed.
func TestCancelled(t *testing.T) {
	w := newWorld(t, 1)
	w.write()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var failed error
	w.layers.Failed = func(err error) { failed = err }
	c := w.pool.Read(ctx, &w.layers, 0, 0, kinds[0], store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	for range 2 {
		if b, err := c.Next(); b != nil || !errors.Is(err, context.Canceled) || !errors.Is(failed, context.Canceled) {
			t.Errorf("%v, %v, failed: %v", b, err, failed)
		}
	}
}

// TestSparse: statistics serve where a span has many samples, and not where it has one.
func TestSparse(t *testing.T) {
	w := newWorld(t, 1)
	var cols model.Columns
	for i := range int64(300) {
		cols.AppendFixed(i*1000, math.Float64bits(float64(i)), 0)
	}
	w.layers.Files = w.file(0, func(id model.SeriesNumber) *model.Columns {
		if id == 0 {
			return &cols
		}
		return &model.Columns{}
	})
	for _, c := range []struct {
		span  int64
		stats bool
	}{{1, false}, {1000, false}, {1999, false}, {2000, true}, {10_000, true}, {1 << 40, true}} {
		summary := &store.Summary{Needs: model.AllStats, Final: func(ms int64) int64 { return ms - ms%c.span + c.span - 1 }}
		cursor := w.pool.Read(t.Context(), &w.layers, 0, 0, model.Double, store.ReadOptions{Range: model.AllTime, Summarize: summary})
		samples := 0
		for {
			b, err := cursor.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			samples += b.Len()
			for _, run := range b.Stats {
				samples += run.Count
			}
			if (b.Stats != nil) != c.stats {
				t.Errorf("spans of %d ms: statistics %v", c.span, b.Stats)
			}
		}
		if cursor.Close(); samples != 300 {
			t.Errorf("spans of %d ms: %d samples", c.span, samples)
		}
	}
}

// TestClosed: a cursor that is closed gives nothing more, and can be closed again.
func TestClosed(t *testing.T) {
	w := newWorld(t, 1)
	w.write()
	for range 2 {
		c := w.pool.Read(t.Context(), &w.layers, 0, 0, kinds[0], store.ReadOptions{Range: model.AllTime})
		if _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if b, err := c.Next(); b != nil || err != store.ErrClosed {
			t.Errorf("after Close: %v, %v", b, err)
		}
		c.Close()
	}
}

// TestStaleMarkersAreHidden: markers of staleness in a long run are shown only to a reader that asks for them.
func TestStaleMarkersAreHidden(t *testing.T) {
	const samples = 2000
	w := newWorld(t, 1)
	w.layers.Files = w.file(0, func(id model.SeriesNumber) *model.Columns {
		var c model.Columns
		for ms := range int64(samples) {
			if bits := math.Float64bits(float64(ms)); id == 0 && ms%500 == 499 {
				c.AppendFixed(ms, model.StaleMarker, 0)
			} else if id == 0 {
				c.AppendFixed(ms, bits, 0)
			}
		}
		return &c
	})
	for stale, want := range map[bool]int{false: samples - 4, true: samples} {
		c := w.pool.Read(t.Context(), &w.layers, 0, 0, model.Double, store.ReadOptions{Range: model.AllTime, Stale: stale})
		read := 0
		b, err := c.Next()
		for ; b != nil && err == nil; b, err = c.Next() {
			read += b.Len()
		}
		c.Close()
		if err != nil || read != want {
			t.Errorf("%d samples with markers shown: %t, %v, want %d", read, stale, err, want)
		}
	}
}

// TestReadHolds: a cursor holds the memory of samples that arrived out of order until it is closed, and reports an
// error of Hold.
func TestReadHolds(t *testing.T) {
	const samples, size = 2000, 1000
	h := head.New(0)
	var b store.Batch
	for i := range int64(samples) {
		b.AddBytes(1, i*7919%samples, bytes.Repeat([]byte{byte(i)}, size), 0)
	}
	h.Append(&b, slices.Repeat([]model.Kind{model.String}, samples))
	var pool Pool
	layers := &Layers{Active: h, Deletions: func() *Deletions { return NewDeletions(nil) }, Failed: func(error) {}}
	for _, descending := range []bool{false, true, false} {
		var held, most int64
		c := pool.Read(t.Context(), layers, 0, 1, model.String, store.ReadOptions{Range: model.AllTime, Descending: descending, Hold: func(n int64) error {
			held += n
			most = max(most, held)
			return nil
		}})
		read := 0
		for {
			block, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if block == nil {
				break
			}
			read += block.Len()
		}
		before := held
		c.Close()
		if read != samples || before < 2*samples*size || most > 4*samples*size || held != 0 {
			t.Errorf("%d samples, %d bytes are held at the end, %d at most, %d after Close", read, before, most, held)
		}
		if block, err := c.Next(); block != nil || err != store.ErrClosed || len(c.sources)+len(c.spare)+cap(c.gather.Data) > 0 {
			t.Errorf("after Close: %v, %v, and memory of samples is kept: %d sources, %d spare ones, %d bytes", block, err, len(c.sources), len(c.spare), cap(c.gather.Data))
		}
	}
	full := errors.New("full")
	c := pool.Read(t.Context(), layers, 0, 1, model.String, store.ReadOptions{Range: model.AllTime, Hold: func(n int64) error { return full }})
	if _, err := c.Next(); !errors.Is(err, full) {
		t.Errorf("%v, want the error of Hold", err)
	}
	c.Close()
}

// TestLongTexts: a block of long texts ends after a bounded number of bytes, although it has few
// samples, whether they come from one head or alternate between two, and in both orders.
func TestLongTexts(t *testing.T) {
	const texts, long = 600, 60 << 10
	text := bytes.Repeat([]byte("x"), long)
	for name, layersOf := range map[string]func(*Layers, int) *head.Head{
		"one head":             func(l *Layers, _ int) *head.Head { return l.Active },
		"two that alternate":   func(l *Layers, i int) *head.Head { return []*head.Head{l.Active, l.Frozen}[i%2] },
		"a head after a head":  func(l *Layers, i int) *head.Head { return []*head.Head{l.Frozen, l.Active}[i*2/texts] },
		"texts that overwrite": func(l *Layers, i int) *head.Head { return []*head.Head{l.Frozen, l.Active}[i*7%5%2] },
	} {
		for _, expires := range []bool{false, true} {
			w := newWorld(t, 1)
			w.layers.Active, w.layers.Frozen = head.New(head.MaxBytes), head.New(head.MaxBytes)
			for i := range texts {
				var b store.Batch
				ttl := uint32(0)
				if expires {
					ttl = uint32(1 + i%2*1_000_000) // every second one has expired
				}
				b.AddBytes(2, int64(i)*1000, text, ttl)
				layersOf(&w.layers, i).Append(&b, []model.Kind{model.String})
			}
			for _, descending := range []bool{false, true} {
				c := w.pool.Read(t.Context(), &w.layers, lastMS, 2, model.String, store.ReadOptions{Range: model.AllTime, Descending: descending})
				got, most := 0, 0
				for {
					b, err := c.Next()
					if err != nil {
						t.Fatal(err)
					}
					if b == nil {
						break
					}
					got, most = got+b.Len(), max(most, len(b.Data))
				}
				c.Close()
				want := texts
				if expires {
					want /= 2
				}
				if got != want || most > blockBytes+4*64<<10 {
					t.Errorf("%s, expires %v, descending %v: %d texts of %d, a block of %d bytes", name, expires, descending, got, want, most)
				}
			}
		}
	}
}
