package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/rowtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const width = 1 << 20 // of a partition, in milliseconds

// place returns a Place in a directory of fs.
func place(t *testing.T, fs vfs.FS) *Place {
	t.Helper()
	if err := fs.MkdirAll("blocks", 0o755); err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	return &Place{
		FS: fs, Width: rowtime.Spec{Width: width}, Cache: blockfile.NewCache(1 << 20),
		Next: func() (uint64, string) {
			number++
			return number, path.Join("blocks", fmt.Sprint(number))
		},
		Sync:  func() error { return nil },
		Space: func() error { return nil },
	}
}

func countsOf(samples map[int64]int64) *Counts {
	c := &Counts{}
	for start, n := range samples {
		c.Add(start, n)
	}
	return c
}

// TestSpan compares spans with sets.
func TestSpan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func() (map[int64]int64, *Span) {
		set := map[int64]int64{}
		for range rng.IntN(6) {
			set[rng.Int64N(20)-10] = 1
		}
		return set, countsOf(set).Span()
	}
	for range 2000 {
		a, b := rng.Int64N(20)-10, rng.Int64N(20)-10
		x, spanX := draw()
		y, spanY := draw()
		want := false
		for start := range x {
			want = want || y[start] > 0
		}
		if got := spanX.Intersects(spanY); got != want || spanY.Intersects(spanX) != want {
			t.Fatalf("%v and %v: %t, want %t", x, y, got, want)
		}
		if got := Only(a).Intersects(spanX); got != (x[a] > 0) {
			t.Fatalf("%d and %v: %t", a, x, got)
		}
		if Only(a).Intersects(Only(b)) != (a == b) || !Any().Intersects(spanX) || !spanX.Intersects(Any()) {
			t.Fatalf("%d, %d, any and %v", a, b, x)
		}
	}
	many := &Counts{}
	for i := range int64(spannedMax + 1) {
		many.Add(i, 1)
		if i == spannedMax-1 && many.Span().Intersects(Only(-1)) {
			t.Errorf("%d partitions are not listed", spannedMax)
		}
	}
	if !many.Span().Intersects(Only(-1)) {
		t.Errorf("%d partitions are listed", spannedMax+1)
	}
}

func TestDense(t *testing.T) {
	large, want := map[int64]int64{}, []int64{}
	for i := range int64(outputFiles + 10) {
		large[i] = DenseSamples + i
		if i >= 10 {
			want = append(want, i)
		}
	}
	for _, c := range []struct {
		samples map[int64]int64
		dense   []int64
	}{
		{nil, nil},
		{map[int64]int64{7: 1}, []int64{7}},
		{map[int64]int64{7: 1, 8: DenseSamples - 1}, nil},
		{map[int64]int64{7: 1, 8: DenseSamples}, []int64{8}},
		{large, want},
	} {
		got := countsOf(c.samples).dense()
		if slices.Sort(got); !slices.Equal(got, c.dense) {
			t.Errorf("%v: %v, want %v", c.samples, got, c.dense)
		}
	}
}

// TestManyPartitions: memory is bounded, and the partitions that matter are still known.
func TestManyPartitions(t *testing.T) {
	for _, samples := range []int64{1, 2, 300} {
		manyPartitions(t, samples)
	}
}

func manyPartitions(t *testing.T, samples int64) {
	c := &Counts{}
	c.Add(-1, DenseSamples)
	for i := range int64(5 * countedMax) {
		c.Add(i, samples)
		if len(c.samples) >= countedMax {
			t.Fatalf("%d partitions are kept", len(c.samples))
		}
	}
	if got := c.dense(); !slices.Equal(got, []int64{-1}) {
		t.Errorf("dense: %v", got)
	}
	if !c.Span().Intersects(Only(math.MinInt64)) {
		t.Error("the span leaves out partitions that were forgotten")
	}
}

// A series of a test, by time.
type series struct {
	id   model.SeriesNumber
	kind model.Kind
	cols model.Columns
}

// write gathers the series in pieces of any size.
func write(out *Output, all []*series, rng *rand.Rand) error {
	g := Gather{Out: out}
	for _, s := range all {
		g.Begin(s.id, s.kind)
		for from := 0; from < s.cols.Len(); {
			to := min(from+1+rng.IntN(3*chunk.TargetSamples), s.cols.Len())
			if err := g.Append(&s.cols, from, to); err != nil {
				return err
			}
			from = to
		}
		if err := g.End(); err != nil {
			return err
		}
	}
	return nil
}

// drawn returns two series with many samples in the partitions 0 and -width, and some elsewhere;
// one of them has byte strings.
func drawn(rng *rand.Rand) (all []*series, counts *Counts) {
	counts = &Counts{}
	spec := rowtime.Spec{Width: width}
	for id := range model.SeriesNumber(2) {
		var times []int64
		for range 2 * DenseSamples {
			times = append(times, rng.Int64N(2*width)-width)
		}
		for i := range int64(20) {
			times = append(times, 10*width*i, -10*width*i-1, rng.Int64()-rng.Int64())
		}
		times = append(times, math.MinInt64, math.MaxInt64)
		slices.Sort(times)
		s := &series{id: 5 + id, kind: model.Long}
		if id == 1 {
			s.kind = model.String
		}
		for i, ms := range slices.Compact(times) {
			if id == 0 {
				s.cols.AppendFixed(ms, rng.Uint64(), uint32(i%3))
			} else {
				s.cols.AppendBytes(ms, fmt.Append(nil, ms), 0)
			}
			counts.Add(spec.Partition(ms), 1)
		}
		all = append(all, s)
	}
	return all, counts
}

// TestOutput: a dense partition has a file of its own, all others share one, no chunk crosses a
// partition's border, and all samples are there.
func TestOutput(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := place(t, vfs.NewMem())
	all, counts := drawn(rng)
	synced := 0
	p.Sync = func() error { synced++; return nil }
	out := p.NewOutput(counts, chunk.Fast, blockfile.Origin{Sequence: 9, Deletions: 4})
	if err := write(out, all, rng); err != nil {
		t.Fatal(err)
	}
	files, err := out.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 || synced != 1 {
		t.Fatalf("%d files, synced %d times", len(files), synced)
	}
	got, own := map[model.SeriesNumber][]string{}, map[int64]bool{}
	for _, f := range files {
		defer f.Close()
		if f.Sequence != 9 || f.Deletions != 4 {
			t.Errorf("properties %+v", f.Properties)
		}
		var d chunk.Decoder
		starts := map[int64]int64{}
		err := f.Scan(context.Background(), func(e *chunk.Entry) {
			start := p.Width.Partition(e.FirstMS)
			starts[start]++
			if end := p.Width.PartitionEnd(start); e.LastMS > end {
				t.Errorf("a chunk from %d to %d, of a partition that ends at %d", e.FirstMS, e.LastMS, end)
			}
			var c model.Columns
			if err := d.DecodeEntry(e, &c); err != nil {
				t.Fatal(err)
			}
			got[e.Series] = append(got[e.Series], samplesOf(e.Kind, &c)...)
		})
		if err != nil {
			t.Fatal(err)
		}
		for start := range starts {
			if !f.Span.Intersects(Only(start)) {
				t.Errorf("the span of file %d lacks %d", f.Number, start)
			}
			if len(starts) == 1 {
				own[start] = true
			}
		}
		if f.Span.Intersects(Only(3 * width)) {
			t.Errorf("file %d has a span with more than its samples", f.Number)
		}
	}
	if !maps.Equal(own, map[int64]bool{0: true, -width: true}) {
		t.Errorf("files of their own: %v", own)
	}
	for _, s := range all {
		want := samplesOf(s.kind, &s.cols)
		slices.Sort(want)
		slices.Sort(got[s.id])
		if !slices.Equal(got[s.id], want) {
			t.Errorf("series %d: %d samples, want %d", s.id, len(got[s.id]), len(want))
		}
	}
}

// TestFullChunks: all chunks of a series but the last have chunk.TargetSamples, however its samples
// come in.
func TestFullChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	s := &series{id: 1, kind: model.Long}
	for ms := range int64(5 * gatherSamples) {
		s.cols.AppendFixed(ms, uint64(ms), 0)
	}
	out := place(t, vfs.NewMem()).NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
	if err := write(out, []*series{s}, rng); err != nil {
		t.Fatal(err)
	}
	files, err := out.Finish()
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	defer files[0].Close()
	if want := int64(5 * gatherSamples / chunk.TargetSamples); files[0].Chunks != want {
		t.Errorf("%d chunks, want %d", files[0].Chunks, want)
	}
}

// TestChunkToTheEndOfAPartition: the last millisecond of a partition is in the same chunk as those before
// it, and a chunk has no more than chunk.TargetSamples.
func TestChunkToTheEndOfAPartition(t *testing.T) {
	for n, want := range map[int64]int64{2: 2, chunk.TargetSamples: 2, chunk.TargetSamples + 1: 3} {
		var c model.Columns
		for ms := width - n; ms < width; ms++ {
			c.AppendFixed(ms, uint64(ms), 0)
		}
		c.AppendFixed(width, 1, 0) // of the next partition
		out := place(t, vfs.NewMem()).NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
		if err := out.Add(1, model.Long, &c); err != nil {
			t.Fatal(err)
		}
		files, err := out.Finish()
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if files[0].Chunks != want {
			t.Errorf("%d samples up to the end of a partition, and one after it, are %d chunks, want %d", n, files[0].Chunks, want)
		}
		files[0].Close()
	}
}

func samplesOf(kind model.Kind, c *model.Columns) (all []string) {
	for i, ms := range c.Times {
		value := ""
		if kind.Fixed() {
			value = fmt.Sprint(c.Values[i])
		} else {
			value = string(c.Bytes(i))
		}
		all = append(all, fmt.Sprint(ms, " ", value, " ", c.TTL(i)))
	}
	return all
}

func TestNothing(t *testing.T) {
	files, err := place(t, vfs.NewMem()).NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{}).Finish()
	if len(files) != 0 || err != nil {
		t.Error(files, err)
	}
}

// TestFullDisk fails each write, and the sync of the names, in turn: no file is left, whether the
// output is aborted at the error or finished in spite of it.
func TestFullDisk(t *testing.T) {
	all, counts := drawn(rand.New(rand.NewPCG(5, 6)))
	for failing, done := 0, false; !done; failing++ {
		for _, abort := range []bool{true, false} {
			mem, writes := vfs.NewMem(), 0
			fail := func() error {
				if writes++; writes == failing {
					return syscall.ENOSPC
				}
				return nil
			}
			p := place(t, mem)
			p.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync {
					return fail()
				}
				return nil
			}))
			p.Sync = fail
			if failing == 0 {
				p.Next = func() (uint64, string) { return 1, "missing/1" }
			}
			out := p.NewOutput(counts, chunk.Fast, blockfile.Origin{})
			err := write(out, all, rand.New(rand.NewPCG(7, 8)))
			if err != nil && abort {
				out.Abort()
			} else {
				var files []File
				if files, err = out.Finish(); err == nil {
					done = true
				}
				for _, f := range files {
					f.Close()
				}
			}
			if done {
				break
			}
			if failing > 0 && !errors.Is(err, syscall.ENOSPC) || err == nil {
				t.Fatalf("write %d: %v", failing, err)
			}
			if left, err := mem.List("blocks"); err != nil || len(left) > 0 {
				t.Fatalf("write %d, aborted: %t: files %v are left, %v", failing, abort, left, err)
			}
		}
		if done && failing < 10 {
			t.Errorf("only %d writes", failing)
		}
	}
}

// TestFilesThatStay: if unfinished files cannot be removed, the error says so beside its cause, and
// only then.
func TestFilesThatStay(t *testing.T) {
	full, stuck := errors.New("full"), errors.New("stuck")
	for _, c := range []error{nil, stuck} {
		p := place(t, vfs.NewMem())
		p.FS = errorfs.Wrap(p.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRemove {
				return c
			}
			return nil
		}))
		p.Sync = func() error { return full }
		out := p.NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
		s := &series{id: 1, kind: model.Long}
		s.cols.AppendFixed(1, 1, 0)
		if err := write(out, []*series{s}, rand.New(rand.NewPCG(1, 1))); err != nil {
			t.Fatal(err)
		}
		_, err := out.Finish()
		if !errors.Is(err, full) || errors.Is(err, stuck) != (c != nil) || strings.Contains(err.Error(), "remove unfinished block file") != (c != nil) {
			t.Errorf("removing fails with %v: %v", c, err)
		}
	}
}

// opened counts the files that are open for writing.
type opened struct {
	vfs.FS
	n int
}

type openedFile struct {
	vfs.File
	fs *opened
}

func (o *opened) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := o.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	o.n++
	return &openedFile{f, o}, nil
}

func (f *openedFile) Close() error {
	f.fs.n--
	return f.File.Close()
}

// TestNoFileStaysOpen: after a write that fails, no unfinished file stays open, whether the output is aborted
// or finished in spite of it.
func TestNoFileStaysOpen(t *testing.T) {
	all, counts := drawn(rand.New(rand.NewPCG(5, 6)))
	for _, abort := range []bool{true, false} {
		p, broken := place(t, vfs.NewMem()), false
		fs := &opened{FS: errorfs.Wrap(p.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if broken && op.Kind == errorfs.OpFileWrite {
				return syscall.EIO
			}
			return nil
		}))}
		p.FS = fs
		out := p.NewOutput(counts, chunk.Fast, blockfile.Origin{})
		if err := write(out, all, rand.New(rand.NewPCG(7, 8))); err != nil || fs.n < 2 {
			t.Fatalf("%d files are open, %v", fs.n, err)
		}
		broken = true
		if abort {
			out.Abort()
		} else if _, err := out.Finish(); !errors.Is(err, syscall.EIO) {
			t.Errorf("finished: %v", err)
		}
		if fs.n != 0 {
			t.Errorf("aborted: %t: %d files stay open", abort, fs.n)
		}
	}
}

// TestGatherIsBounded: the samples that a gather holds are bounded by their number and by the bytes of
// their values.
func TestGatherIsBounded(t *testing.T) {
	value := make([]byte, gatherBytes/100)
	for _, kind := range []model.Kind{model.Long, model.String} {
		out := place(t, vfs.NewMem()).NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
		g := Gather{Out: out}
		g.Begin(1, kind)
		most := 0
		for ms := range int64(2 * gatherSamples) {
			var one model.Columns
			if kind == model.Long {
				one.AppendFixed(ms, 1, 0)
			} else if one.AppendBytes(ms, value, 0); ms == 250 {
				break
			}
			if err := g.Append(&one, 0, 1); err != nil {
				t.Fatal(err)
			}
			most = max(most, g.Columns.Len())
			if g.Full() {
				t.Fatalf("%v: %d samples with %d bytes are held", kind, g.Columns.Len(), len(g.Columns.Data))
			}
		}
		if want := map[model.Kind]int{model.Long: gatherSamples - 1, model.String: 100}[kind]; most != want {
			t.Errorf("%v: at most %d samples are held, want %d", kind, most, want)
		}
		out.Abort()
	}
}

// TestWatch: a merge ends when the disk is getting full, a checkpoint continues.
func TestWatch(t *testing.T) {
	full := errors.New("full")
	value := []byte(strings.Repeat("x", 64<<10))
	for _, watch := range []bool{false, true} { // numbers count as well as texts
		p, n, looks := place(t, vfs.NewMem()), 0, 0
		p.Space = func() error {
			if looks++; looks == 1 {
				return nil
			}
			return full
		}
		out := p.NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
		if watch {
			out.Watch()
		}
		var err error
		for ; n < 4*lookEvery/8 && err == nil; n += 1 << 10 {
			c := model.Columns{}
			for i := range 1 << 10 {
				c.AppendFixed(int64(n+i), uint64(i), 0)
			}
			err = out.Add(1, model.Long, &c)
		}
		out.Abort()
		if watch && (!errors.Is(err, full) || n != 2*lookEvery/8) || !watch && (err != nil || looks != 0) {
			t.Errorf("watched: %t: after %d numbers, and %d looks: %v", watch, n, looks, err)
		}
	}
	for _, watch := range []bool{false, true} {
		p, written := place(t, vfs.NewMem()), 0
		p.Space = func() error { return full }
		out := p.NewOutput(&Counts{}, chunk.Fast, blockfile.Origin{})
		if watch {
			out.Watch()
		}
		var err error
		for ; written < 2*lookEvery && err == nil; written += len(value) {
			c := model.Columns{}
			c.AppendBytes(int64(written), value, 0)
			err = out.Add(1, model.String, &c)
		}
		out.Abort()
		if watch && (!errors.Is(err, full) || written > lookEvery+len(value)) || !watch && err != nil {
			t.Errorf("watched: %t: after %d bytes: %v", watch, written, err)
		}
	}
}
