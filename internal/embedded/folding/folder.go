// Package folding rewrites block files of one step, series by series. It replaces data that is
// old enough for a coarser stage of the series' policy by buckets of that stage, drops data older
// than the last stage, and keeps the rest unchanged.
//
//	Files --> Samples or Buckets --> buckets.Fold --+--> rest: as it is
//	          of a series                           +--> made: an output for each coarser step
//
// The caller finishes the outputs and exchanges the files for theirs in one commit.
package folding

import (
	"errors"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/buckets"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/store"
)

// A Source is what a fold reads, and how.
type Source struct {
	Files  []*blockfile.File // oldest first
	StepMS int64             // of their buckets, 0 for samples
	NowMS  int64

	// Kind returns the kind of a series' samples in files, 0 if none of them is valid.
	Kind func(model.SeriesNumber) model.Kind

	// Policy returns the policy of a series. nil keeps everything as it is.
	Policy func(model.SeriesNumber) retention.Policy

	// InMemory reports whether a series has samples of a range that are not in files yet.
	InMemory func(model.SeriesNumber, model.TimeRange) bool

	// Samples reads all valid samples of a series.
	Samples func(model.SeriesNumber, model.Kind, []*blockfile.Iter) (store.Cursor, error)

	// Buckets returns the sources of a series' buckets.
	Buckets func(model.SeriesNumber, []*blockfile.Iter) []*buckets.Source
}

// A Folder folds files of one step. It is used once.
type Folder struct {
	Source
	place  *partition.Place
	origin blockfile.Origin

	sketches bool // new buckets may have sketches
	held     bool // some series were left out
	fold     buckets.Fold
	rest     partition.Gather            // data that stays unchanged
	made     map[int64]*partition.Gather // by step
	id       model.SeriesNumber
	data     []byte // scratch
}

// New returns a folder that writes to a place. counts and origin are for the files with
// data that stays unchanged. With sketches, new buckets may have sketches.
func New(src Source, place *partition.Place, counts *partition.Counts, origin blockfile.Origin, sketches bool) *Folder {
	f := &Folder{Source: src, place: place, origin: origin, sketches: sketches, made: map[int64]*partition.Gather{}}
	f.rest.Out = place.NewOutput(counts, chunk.Best, origin).Watch()
	f.fold.Made = f.add
	return f
}

// Merge writes the buckets of src to out as they are. sketches says that they may have some.
func Merge(src Source, out *partition.Output, sketches bool) error {
	f := &Folder{Source: src, origin: blockfile.Origin{Sketches: sketches}}
	f.rest.Out = out
	return f.Run()
}

// Outputs returns the outputs that Run has written to. The caller finishes or
// aborts each.
func (f *Folder) Outputs() []*partition.Output {
	outputs := []*partition.Output{f.rest.Out}
	for _, g := range f.made {
		outputs = append(outputs, g.Out)
	}
	return outputs
}

// Held reports whether series were left out, because they have equally old samples in memory.
func (f *Folder) Held() bool { return f.held }

// Counts returns how many samples or buckets were folded, and how many were dropped
// because they are older than the last stage.
func (f *Folder) Counts() (folded, gone int64) { return f.fold.Folded, f.fold.Gone }

// Run reads and writes everything.
func (f *Folder) Run() error {
	ids := roaring.New()
	var iters []*blockfile.Iter
	for _, file := range f.Files {
		ids.Or(file.Series)
		iters = append(iters, file.Iter(false))
	}
	for it := ids.Iterator(); it.HasNext(); {
		f.id = model.SeriesNumber(it.Next())
		kind := f.Kind(f.id)
		if kind == 0 {
			continue // every sample of it is deleted or expired
		}
		if err := f.one(kind, iters); err != nil {
			return err
		}
	}
	return nil
}

// one folds a series.
func (f *Folder) one(kind model.Kind, iters []*blockfile.Iter) error {
	f.fold.Begin(f.task(kind))
	read := f.samples
	if f.StepMS != 0 {
		read, kind = f.buckets, model.AggregateKind
	}
	f.rest.Begin(f.id, kind)
	for _, g := range f.made {
		g.Begin(f.id, model.AggregateKind)
	}
	err := errors.Join(read(kind, iters), f.fold.End(), f.rest.End())
	for _, g := range f.made {
		err = errors.Join(err, g.End())
	}
	return err
}

// task returns the fold's task for the current series.
func (f *Folder) task(kind model.Kind) buckets.Task {
	p := retention.Policy{}
	if f.Policy != nil {
		p = f.Policy(f.id)
	}
	if p.Rule == nil {
		return buckets.Task{Plan: retention.Plan{{FromMS: model.AllTime.StartMS, StepMS: f.StepMS}}, StepMS: f.StepMS}
	}
	stages := p.Rule.Stages
	return buckets.Task{
		Plan: f.restricted(stages.Plan(f.NowMS), kind), StepMS: f.StepMS, SlotMS: stages[0].Step * 1000,
		// The book may have changed since the files were begun.
		Sketches: f.sketches && p.Sketches(),
	}
}

// restricted returns a plan for series that must not be folded: samples expire, but are not
// folded. This concerns values that are not numbers, and series with samples in memory that
// are so old that they may replace samples in files. Such series are folded once these
// samples are in files too.
func (f *Folder) restricted(plan retention.Plan, kind model.Kind) retention.Plan {
	if f.StepMS != 0 {
		return plan
	}
	held := kind.Fixed() && f.InMemory(f.id, model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: plan.Border(0) - 1})
	f.held = f.held || held
	if kind.Fixed() && !held {
		return plan
	}
	return retention.Plan{{FromMS: plan[0].FromMS}}
}

// samples folds the samples of a series.
func (f *Folder) samples(kind model.Kind, iters []*blockfile.Iter) error {
	c, err := f.Samples(f.id, kind, iters)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		b, err := c.Next()
		if err != nil || b == nil {
			return err
		}
		for from, to := 0, 0; from < len(b.Times); from = to {
			to = f.fold.Run(b.Times, from)
			if err := f.run(kind, &b.Columns, from, to); err != nil {
				return err
			}
		}
	}
}

// run folds a run of samples.
func (f *Folder) run(kind model.Kind, cols *model.Columns, from, to int) error {
	stays, goes := f.fold.Keeps(cols.Times[from], to-from)
	switch {
	case stays:
		return f.rest.Append(cols, from, to)
	case goes:
		return nil
	}
	return f.fold.Samples(kind, cols.Times[from:to], cols.Values[from:to])
}

// buckets folds the buckets of a series.
func (f *Folder) buckets(_ model.Kind, iters []*blockfile.Iter) error {
	// Buckets keep their sketches even if the policy no longer asks for them, since it
	// may ask for them again. Files without sketches are read without them.
	r := buckets.Reader{Needs: model.AllStats, Sketches: f.origin.Sketches}
	r.Open(f.id, model.AllTime, false, f.Buckets(f.id, iters))
	for {
		b, ok, err := r.Next()
		if err != nil || !ok {
			return err
		}
		stays, goes := f.fold.Keeps(b.StartMS, 1)
		switch {
		case stays:
			err = f.append(&f.rest, b)
		case !goes:
			err = f.fold.Bucket(b)
		}
		if err != nil {
			return err
		}
	}
}

// add writes a new bucket.
func (f *Folder) add(b store.Bucket) error {
	g := f.made[b.StepMS]
	if g == nil {
		origin := f.origin
		origin.StepMS, origin.Sketches = b.StepMS, f.sketches
		g = &partition.Gather{Out: f.place.NewOutput(&partition.Counts{}, chunk.Best, origin).Watch()}
		g.Begin(f.id, model.AggregateKind)
		f.made[b.StepMS] = g
	}
	return f.append(g, b)
}

func (f *Folder) append(g *partition.Gather, b store.Bucket) error {
	f.data = b.Aggregate.Append(f.data[:0])
	g.Columns.AppendBytes(b.StartMS, f.data, 0)
	return g.FlushIfFull()
}
