package folding

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/buckets"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/rowtime"
	"varve/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Series of the tests.
const (
	number    = model.SeriesNumber(1) // folded
	text      = model.SeriesNumber(2) // cannot be folded
	inMemory  = model.SeriesNumber(3) // has late samples in memory
	free      = model.SeriesNumber(4) // has no policy
	forgotten = model.SeriesNumber(5)
)

func place(t *testing.T) *partition.Place {
	t.Helper()
	fs, n := vfs.NewMem(), uint64(0)
	return &partition.Place{
		FS: fs, Width: rowtime.Spec{Width: 1 << 40}, Cache: blockfile.NewCache(1 << 20),
		Next:  func() (uint64, string) { n++; return n, path.Join("/", fmt.Sprint(n)) },
		Sync:  func() error { return nil },
		Space: func() error { return nil },
	}
}

// written has a sample each 10 s of the first 10 minutes in each series.
func written(t *testing.T, p *partition.Place) []*blockfile.File {
	t.Helper()
	g := partition.Gather{Out: p.NewOutput(&partition.Counts{}, chunk.Best, blockfile.Origin{Sequence: 1})}
	for id := number; id <= forgotten; id++ {
		g.Begin(id, kindOf(id))
		for i := range int64(60) {
			if id == text {
				g.Columns.AppendBytes(i*10_000, fmt.Append(nil, i), 0)
			} else {
				g.Columns.AppendFixed(i*10_000, uint64(i), 0)
			}
		}
		if err := g.End(); err != nil {
			t.Fatal(err)
		}
	}
	return finish(t, g.Out)
}

func finish(t *testing.T, out *partition.Output) (files []*blockfile.File) {
	t.Helper()
	all, err := out.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		files = append(files, f.File)
		t.Cleanup(func() { f.Close() })
	}
	return files
}

func kindOf(id model.SeriesNumber) model.Kind {
	if id == text {
		return model.String
	}
	return model.Long
}

// source reads files like a store in which forgotten is no longer a series.
func source(t *testing.T, files []*blockfile.File, nowMS int64, opened *int) Source {
	stages, err := retention.ParseStages("10s:5m,60s:8m")
	if err != nil {
		t.Fatal(err)
	}
	return Source{
		Files: files, StepMS: files[0].StepMS, NowMS: nowMS,
		Kind: func(id model.SeriesNumber) model.Kind {
			if id == forgotten {
				return 0
			}
			return kindOf(id)
		},
		Policy: func(id model.SeriesNumber) retention.Policy {
			if id == free {
				return retention.Policy{}
			}
			return retention.Policy{Rule: &retention.Rule{Stages: stages}}
		},
		InMemory: func(id model.SeriesNumber, r model.TimeRange) bool {
			return id == inMemory && r.Overlaps(model.TimeRange{StartMS: 70_000, EndMS: 70_000})
		},
		Samples: func(id model.SeriesNumber, _ model.Kind, _ []*blockfile.Iter) (store.Cursor, error) {
			*opened++
			c := &cursor{opened: opened}
			eachChunk(t, files, func(e *chunk.Entry, cols *model.Columns) {
				if e.Series == id {
					c.blocks = append(c.blocks, &store.Block{Columns: *cols})
				}
			})
			return c, nil
		},
		Buckets: func(id model.SeriesNumber, iters []*blockfile.Iter) (sources []*buckets.Source) {
			for _, it := range iters {
				if it.File().Series.Contains(uint32(id)) {
					sources = append(sources, &buckets.Source{Iter: it, StepMS: it.File().StepMS})
				}
			}
			return sources
		},
	}
}

type cursor struct {
	blocks []*store.Block
	end    error // nil: all was read
	opened *int
}

func (c *cursor) Close() { *c.opened-- }

func (c *cursor) Next() (*store.Block, error) {
	if len(c.blocks) == 0 {
		return nil, c.end
	}
	b := c.blocks[0]
	c.blocks = c.blocks[1:]
	return b, nil
}

func eachChunk(t *testing.T, files []*blockfile.File, f func(*chunk.Entry, *model.Columns)) {
	t.Helper()
	for _, file := range files {
		err := file.Scan(context.Background(), func(e *chunk.Entry) {
			var d chunk.Decoder
			var c model.Columns
			if err := d.DecodeEntry(e, &c); err != nil {
				t.Fatal(err)
			}
			f(e, &c)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents has a line for each series of the files: their samples, or the sums of their buckets.
func contents(t *testing.T, files []*blockfile.File) (lines []string) {
	t.Helper()
	for _, file := range files {
		eachChunk(t, []*blockfile.File{file}, func(e *chunk.Entry, c *model.Columns) {
			line := fmt.Sprintf("step %d, series %d: %d from %d to %d", file.StepMS/1000, e.Series, c.Len(), c.Times[0]/1000, c.Times[c.Len()-1]/1000)
			if e.Kind == model.AggregateKind {
				for i := range c.Times {
					a, err := model.ParseAggregate(c.Bytes(i))
					if err != nil {
						t.Fatal(err)
					}
					line += fmt.Sprintf(", %d of %v", a.Count, a.Sum)
				}
			}
			lines = append(lines, line)
		})
	}
	return lines
}

// Samples older than 5 minutes become buckets, buckets older than 8 minutes go. Series whose
// values are no numbers or that have such old samples in memory keep theirs until they go;
// series without a policy keep all.
func TestFold(t *testing.T) {
	p, opened := place(t), 0
	fold := func(files []*blockfile.File, nowMS int64) (made []*blockfile.File, f *Folder) {
		f = New(source(t, files, nowMS, &opened), p, &partition.Counts{}, blockfile.Origin{Sequence: 7, StepMS: files[0].StepMS}, false)
		if err := f.Run(); err != nil {
			t.Fatal(err)
		}
		for _, out := range f.Outputs() {
			made = append(made, finish(t, out)...)
		}
		return made, f
	}
	want := func(got []*blockfile.File, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, contents(t, got)); diff != "" {
			t.Error(diff)
		}
	}

	made, f := fold(written(t, p), 600_000)
	want(made,
		"step 0, series 1: 30 from 300 to 590",
		"step 0, series 2: 48 from 120 to 590",
		"step 0, series 3: 48 from 120 to 590",
		"step 0, series 4: 60 from 0 to 590",
		"step 60, series 1: 3 from 120 to 240, 6 of 87, 6 of 123, 6 of 159")
	if folded, gone := f.Counts(); folded != 18 || gone != 36 || !f.Held() {
		t.Errorf("%d folded, %d gone, held: %v", folded, gone, f.Held())
	}
	if made[0].Sequence != 7 || opened != 0 {
		t.Errorf("sequence %d, %d cursors left open", made[0].Sequence, opened)
	}

	later, _ := fold(made[1:], 700_000)
	want(later, "step 60, series 1: 2 from 180 to 240, 6 of 123, 6 of 159") // the first one in part

	out := p.NewOutput(&partition.Counts{}, chunk.Best, blockfile.Origin{StepMS: 60_000})
	src := source(t, made[1:], 700_000, &opened)
	src.Policy = nil
	if err := Merge(src, out, false); err != nil {
		t.Fatal(err)
	}
	want(finish(t, out), "step 60, series 1: 3 from 120 to 240, 6 of 87, 6 of 123, 6 of 159")
}

// Buckets that are old enough for the next stage become coarser, those of the current stage stay.
func TestFoldBuckets(t *testing.T) {
	p, opened := place(t), 0
	stages, err := retention.ParseStages("10s:5m,60s:8m,120s:1h")
	if err != nil {
		t.Fatal(err)
	}
	fold := func(files []*blockfile.File, nowMS int64) (made []*blockfile.File, f *Folder) {
		src := source(t, files, nowMS, &opened)
		src.Kind = func(id model.SeriesNumber) model.Kind {
			if id == number {
				return model.Long
			}
			return 0
		}
		src.Policy = func(model.SeriesNumber) retention.Policy {
			return retention.Policy{Rule: &retention.Rule{Stages: stages}}
		}
		f = New(src, p, &partition.Counts{}, blockfile.Origin{Sequence: 7, StepMS: files[0].StepMS}, true)
		if err := f.Run(); err != nil {
			t.Fatal(err)
		}
		for _, out := range f.Outputs() {
			made = append(made, finish(t, out)...)
		}
		return made, f
	}
	made, _ := fold(written(t, p), 480_000)
	want := []string{"step 0, series 1: 42 from 180 to 590", "step 60, series 1: 3 from 0 to 120, 6 of 15, 6 of 51, 6 of 87"}
	if diff := cmp.Diff(want, contents(t, made)); diff != "" {
		t.Error(diff)
	}
	if sketched(t, made[1]) {
		t.Error("buckets have sketches that the policy does not ask for")
	}
	made, f := fold(made[1:], 600_000)
	want = []string{"step 60, series 1: 1 from 120 to 120, 6 of 87", "step 120, series 1: 1 from 0 to 0, 12 of 66"}
	if diff := cmp.Diff(want, contents(t, made)); diff != "" {
		t.Error(diff)
	}
	if folded, gone := f.Counts(); folded != 2 || gone != 0 {
		t.Errorf("%d folded, %d gone", folded, gone)
	}
}

func sketched(t *testing.T, f *blockfile.File) (some bool) {
	t.Helper()
	eachChunk(t, []*blockfile.File{f}, func(_ *chunk.Entry, c *model.Columns) {
		for i := range c.Times {
			a, err := model.ParseAggregate(c.Bytes(i))
			if err != nil {
				t.Fatal(err)
			}
			some = some || a.Sketch != ""
		}
	})
	return some
}

// Of several samples in a slot of the first stage, the last one counts.
func TestFoldSlots(t *testing.T) {
	p, opened := place(t), 0
	g := partition.Gather{Out: p.NewOutput(&partition.Counts{}, chunk.Best, blockfile.Origin{Sequence: 1})}
	g.Begin(number, model.Long)
	for i := range int64(12) {
		g.Columns.AppendFixed(i*5000, uint64(i), 0)
	}
	if err := g.End(); err != nil {
		t.Fatal(err)
	}
	f := New(source(t, finish(t, g.Out), 480_000, &opened), p, &partition.Counts{}, blockfile.Origin{}, false)
	if err := f.Run(); err != nil {
		t.Fatal(err)
	}
	var made []*blockfile.File
	for _, out := range f.Outputs() {
		made = append(made, finish(t, out)...)
	}
	if diff := cmp.Diff([]string{"step 60, series 1: 1 from 0 to 0, 6 of 36"}, contents(t, made)); diff != "" {
		t.Error(diff)
	}
}

// A series is held back only by samples in memory that are older than the samples that are folded now.
func TestHeldBySamplesBeforeTheBorder(t *testing.T) {
	p, opened := place(t), 0
	files := written(t, p)
	for _, c := range []struct {
		ms   int64
		held bool
	}{{299_999, true}, {300_000, false}} {
		src := source(t, files, 600_000, &opened)
		src.InMemory = func(id model.SeriesNumber, r model.TimeRange) bool {
			return id == inMemory && r.Overlaps(model.TimeRange{StartMS: c.ms, EndMS: c.ms})
		}
		f := New(src, p, &partition.Counts{}, blockfile.Origin{}, false)
		if err := f.Run(); err != nil || f.Held() != c.held {
			t.Errorf("a sample of %d in memory: held %v, %v", c.ms, f.Held(), err)
		}
		for _, out := range f.Outputs() {
			out.Abort()
		}
	}
}

// A fold ends with the error of its reads: files that are written without it would replace those that
// it could not read.
func TestFoldEndsWithErrors(t *testing.T) {
	broken := errors.New("broken")
	p, opened := place(t), 0
	run := func(src Source) (*Folder, error) {
		f := New(src, p, &partition.Counts{}, blockfile.Origin{Sequence: 7, StepMS: src.StepMS}, false)
		err := f.Run()
		for _, out := range f.Outputs() {
			if err != nil {
				out.Abort()
			}
		}
		return f, err
	}
	files := written(t, p)

	src := source(t, files, 600_000, &opened)
	src.Samples = func(model.SeriesNumber, model.Kind, []*blockfile.Iter) (store.Cursor, error) { return nil, broken }
	if _, err := run(src); !errors.Is(err, broken) {
		t.Errorf("samples that cannot be opened: %v", err)
	}

	src = source(t, files, 600_000, &opened)
	open := src.Samples
	src.Samples = func(id model.SeriesNumber, kind model.Kind, iters []*blockfile.Iter) (store.Cursor, error) {
		c, err := open(id, kind, iters)
		c.(*cursor).end = broken
		return c, err
	}
	if _, err := run(src); !errors.Is(err, broken) || opened != 0 {
		t.Errorf("samples that cannot be read: %v, %d cursors left open", err, opened)
	}

	f, err := run(source(t, files, 600_000, &opened))
	if err != nil {
		t.Fatal(err)
	}
	var made []*blockfile.File
	for _, out := range f.Outputs() {
		made = append(made, finish(t, out)...)
	}
	fails := false
	unread := errorfs.Wrap(p.FS, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if fails && op.Kind == errorfs.OpFileReadAt {
			return broken
		}
		return nil
	}))
	file, err := blockfile.Open(unread, path.Join("/", fmt.Sprint(made[1].Number)), 7, blockfile.NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	fails = true
	defer file.Close()
	if _, err := run(source(t, []*blockfile.File{file}, 700_000, &opened)); !errors.Is(err, broken) {
		t.Errorf("buckets that cannot be read: %v", err)
	}
	out := p.NewOutput(&partition.Counts{}, chunk.Best, blockfile.Origin{StepMS: 60_000})
	defer out.Abort()
	if err := Merge(source(t, []*blockfile.File{file}, 700_000, &opened), out, false); !errors.Is(err, broken) {
		t.Errorf("a merge of buckets that cannot be read: %v", err)
	}
}
