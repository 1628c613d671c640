package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/embedded/buckets"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/retention"
	"varve/internal/store"
)

const (
	// foldShare is the share of a file's data that has to be old enough for a
	// coarser stage before it is folded. What is not is written again as it is: at a
	// half, each sample once more on average; at three quarters, a third of them.
	foldShare = 0.75

	// foldLag is for how long data waits at most for the rest of its file.
	foldLag = 24 * time.Hour

	// foldPause is for how long the files that a fold leaves, or that it could not fold
	// for lack of space, are not folded again; foldHeld, where memory held data back.
	foldPause = 10 * time.Minute
	foldHeld  = 6 * time.Hour

	// foldAgain is for how long a fold is put off that a deletion has overtaken.
	foldAgain = time.Second
)

// ages says which policies the series of a file have.
type ages struct {
	book     *retention.Book // from which the rest is, nil = not known
	policies []policyCount
	notUntil int64 // ms
}

// pause puts off the next fold.
func (a *ages) pause(nowMS int64, d time.Duration) { a.notUntil = nowMS + d.Milliseconds() }

// paused reports whether a fold was put off. A pause that is longer than any was set
// before the clock was put back.
func (a *ages) paused(nowMS int64) bool {
	return nowMS < a.notUntil && a.notUntil <= nowMS+foldHeld.Milliseconds()
}

type policyCount struct {
	policyKind
	series int
}

// A policyKind is what counts of a series: its rule, nil if it has none, whether its data
// can be folded, or only go, and whether percentiles of it are kept.
type policyKind struct {
	rule     *retention.Rule
	folds    bool
	sketches bool // its buckets have sketches
}

// border returns the time before which data of a step has something to be done with.
func (k policyKind) border(plan retention.Plan, stepMS int64) int64 {
	if !k.folds {
		return plan[0].FromMS
	}
	return plan.Border(stepMS)
}

// agesOf returns f.ages, counted again after a change of the book. merging must be held.
func (s *Store) agesOf(f *openFile, book *retention.Book) *ages {
	a := &f.ages
	if a.book == book {
		return a
	}
	counts := map[policyKind]int{}
	for it := f.Series.Iterator(); it.HasNext(); {
		id := model.SeriesNumber(it.Next())
		p := s.policyOf(id)
		counts[policyKind{p.Rule, f.StepMS != 0 || s.kindInFiles(id).Fixed(), p.Sketches()}]++
	}
	if a.book != nil { // another book
		a.notUntil = 0
	}
	a.book, a.policies = book, a.policies[:0]
	for kind, n := range counts {
		a.policies = append(a.policies, policyCount{kind, n})
	}
	return a
}

// overdue estimates which share of a file's data is old enough for a coarser stage,
// and for how long the oldest has been. all says that all of it has outlived its
// last stage.
func (s *Store) overdue(f *openFile, book *retention.Book, nowMS int64) (share, lagMS float64, all bool) {
	a := s.agesOf(f, book)
	if a.paused(nowMS) {
		return 0, 0, false
	}
	var due, total float64
	all = true
	for _, p := range a.policies {
		total += float64(p.series)
		if p.rule == nil {
			all = false
			continue
		}
		plan := p.rule.Stages.Plan(nowMS)
		old := float64(p.border(plan, f.StepMS)) - float64(f.MinMS)
		due += float64(p.series) * min(1, max(0, old/(float64(f.MaxMS)-float64(f.MinMS)+1)))
		lagMS = max(lagMS, old)
		all = all && f.MaxMS < plan[0].FromMS
	}
	return due / total, lagMS, all
}

// nextFold returns files of one step whose data is to be folded together, since so large
// a share of a file is old enough, or some has been for so long; nil if there are none. held,
// if not nil, says which files are not to be folded yet.
func (s *Store) nextFold(st *state, enough float64, late time.Duration, held func(*state, []*openFile, int64) bool) []*openFile {
	book := s.book()
	if book == nil || len(book.Rules) == 0 {
		return nil
	}
	nowMS := s.now().UnixMilli()
	later := map[*openFile]bool{}
	if held != nil {
		defer func() { s.heldBytes.Store(sizeOf(slices.Collect(maps.Keys(later)))) }()
	}
	for _, f := range st.files {
		share, lagMS, all := s.overdue(f, book, nowMS)
		if share < enough && lagMS < float64(late.Milliseconds()) || share == 0 || later[f] {
			continue
		}
		files := s.entangled(st, f)
		if anyDamaged(files) {
			continue
		}
		if held != nil && !(all && len(files) == 1) && held(st, files, nowMS) {
			for _, f := range files {
				later[f] = true
			}
			continue
		}
		if all && len(files) == 1 || s.spaceToMerge(st, files) == nil {
			return files
		}
		s.metrics.mergesPutOff.Inc()
	}
	return nil
}

// entangled returns f and the files that have samples of its series and times, or of
// those of these files, oldest first: only together, and in this order, they say which
// sample of a time is valid.
func (s *Store) entangled(st *state, f *openFile) []*openFile {
	found := []*openFile{f}
	in := asSet(found)
	for i := 0; i < len(found); i++ {
		for _, o := range st.files {
			if !in[o] && (s.hides(o, found[i]) || s.hides(found[i], o)) {
				in[o] = true
				found = append(found, o)
			}
		}
	}
	sortFiles(found)
	return found
}

// fold rewrites files with the data that is old enough for a coarser stage made
// coarser, and without that which has outlived the last one. One commit exchanges all.
// merging must be held.
func (s *Store) fold(ctx context.Context, files []*openFile) error {
	began := s.now()
	st, deletions := s.acquireWithDeletions()
	defer s.release(st)
	files = s.entangled(st, files[0]) // a checkpoint may have added some
	if _, _, all := s.overdue(files[0], s.book(), began.UnixMilli()); all && len(files) == 1 {
		s.metrics.outlived.Add(float64(files[0].Samples))
		return s.replace(files, nil)
	}
	counts, err := s.partitionsIn(ctx, files)
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("plan the folding of files: %w", err)
	}
	f := s.newFolder(ctx, st, files, &counts, deletions, began)
	folded, err := f.result()
	if errors.As(err, new(*spaceError)) {
		for _, file := range files {
			file.ages.pause(began.UnixMilli(), foldPause)
		}
	}
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("fold %d files: %w", len(files), err)
	}
	if done, err := s.replaceFolded(files, folded, deletions); err != nil || !done {
		return err
	}
	s.metrics.folds.Inc()
	s.metrics.folded.Add(float64(f.fold.Folded))
	s.metrics.outlived.Add(float64(f.fold.Gone))
	s.logger.Debug("fold done", "files", len(files), "into", len(folded), "folded", f.fold.Folded, "gone", f.fold.Gone, "took", s.now().Sub(began))
	return nil
}

// replaceFolded installs what a fold has made, unless a deletion came meanwhile: it
// may cut a bucket in two whose samples were there when they were read. Then it is
// folded again, a little later.
func (s *Store) replaceFolded(old, folded []*openFile, deletions uint64) (done bool, err error) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	st := s.acquire()
	late := slices.ContainsFunc(st.deletions(), func(d *record.Deletion) bool {
		return d.Sequence > deletions && slices.ContainsFunc(old, func(f *openFile) bool { return concerns(d, f.File) })
	})
	s.release(st)
	if late {
		for _, f := range old {
			f.ages.pause(s.now().UnixMilli(), foldAgain)
		}
		return false, s.discard(folded)
	}
	return true, s.replace(old, folded)
}

// A folder folds files of one step.
type folder struct {
	ctx    context.Context
	store  *Store
	state  *state
	files  []*openFile
	stepMS int64
	now    time.Time
	origin blockfile.Origin

	merging  bool // all stays as it is
	sketches bool // buckets that are made may have sketches
	held     bool // some series were left out
	fold     buckets.Fold
	rest     partition.Gather            // what stays as it is
	made     map[int64]*partition.Gather // by step
	id       model.SeriesNumber
	data     []byte // scratch
}

func (s *Store) newFolder(ctx context.Context, st *state, files []*openFile, counts *partition.Counts, deletions uint64, now time.Time) *folder {
	_, sequence, _ := extent(asSet(files))
	f := &folder{
		ctx: ctx, store: s, state: st, files: files, stepMS: files[0].StepMS, now: now,
		origin: blockfile.Origin{Sequence: sequence, Deletions: deletions, StepMS: files[0].StepMS, Sketches: anySketches(files)},
		made:   map[int64]*partition.Gather{},
	}
	for _, file := range files {
		for _, p := range s.agesOf(file, s.book()).policies {
			f.sketches = f.sketches || p.sketches
		}
	}
	f.rest.Out = s.place.NewOutput(counts, chunk.Best, f.origin).Watch()
	f.fold.Made = f.add
	return f
}

// result returns the files that take the place of those that were folded.
func (f *folder) result() (done []*openFile, err error) {
	err = f.series()
	outputs := []*partition.Output{f.rest.Out}
	for _, g := range f.made {
		outputs = append(outputs, g.Out)
	}
	for i, out := range outputs {
		if err != nil {
			for _, out := range outputs[i:] {
				out.Abort()
			}
			return nil, errors.Join(err, f.store.discard(done))
		}
		var files []*openFile
		files, err = finished(out)
		done = append(done, files...)
	}
	if err != nil {
		return nil, errors.Join(err, f.store.discard(done))
	}
	for _, file := range done {
		if file.StepMS == f.stepMS {
			file.ages.pause(f.now.UnixMilli(), f.pause())
		}
	}
	return done, nil
}

func (f *folder) pause() time.Duration {
	if f.held {
		return foldHeld
	}
	return foldPause
}

// discard removes files that no manifest names.
func (s *Store) discard(files []*openFile) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close(), s.fs.Remove(f.Path))
	}
	return err
}

func (f *folder) series() error {
	ids := roaring.New()
	var iters []*blockfile.Iter
	for _, file := range f.files {
		ids.Or(file.Series)
		iters = append(iters, file.Iter(false))
	}
	for it := ids.Iterator(); it.HasNext(); {
		f.id = model.SeriesNumber(it.Next())
		kind := f.store.kindInFiles(f.id)
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
func (f *folder) one(kind model.Kind, iters []*blockfile.Iter) error {
	f.fold.Begin(f.task(kind))
	read := f.samples
	if f.stepMS != 0 {
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

// task says what is to be done with the current series.
func (f *folder) task(kind model.Kind) buckets.Task {
	p := retention.Policy{}
	if !f.merging {
		p = f.store.policyOf(f.id)
	}
	if p.Rule == nil {
		return buckets.Task{Plan: retention.Plan{{FromMS: model.AllTime.StartMS, StepMS: f.stepMS}}, StepMS: f.stepMS}
	}
	stages := p.Rule.Stages
	return buckets.Task{
		Plan: f.restricted(stages.Plan(f.now.UnixMilli()), kind), StepMS: f.stepMS, SlotMS: stages[0].Step * 1000,
		// The book may be another one than that by which the files were begun.
		Sketches: f.sketches && p.Sketches(),
	}
}

// restricted returns a plan for series that must not be folded: samples expire, but are not
// folded. This concerns values that are not numbers, and series with samples in memory that
// are so old that they may replace samples in files. Such series are folded once these
// samples are in files too.
func (f *folder) restricted(plan retention.Plan, kind model.Kind) retention.Plan {
	if f.stepMS != 0 {
		return plan
	}
	old := model.TimeRange{StartMS: model.AllTime.StartMS, EndMS: plan.Border(0) - 1}
	held := kind.Fixed() && f.state.inHeads(f.id, old)
	f.held = f.held || held
	if kind.Fixed() && !held {
		return plan
	}
	return retention.Plan{{FromMS: plan[0].FromMS}}
}

// samples folds the samples of a series.
func (f *folder) samples(kind model.Kind, iters []*blockfile.Iter) error {
	c := f.store.cursors.Read(f.ctx, &f.state.layers, f.now.UnixMilli(), f.id, kind, store.ReadOptions{Range: model.AllTime, Stale: true})
	defer c.Close()
	if err := c.OpenFiles(iters, false); err != nil {
		return err
	}
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
func (f *folder) run(kind model.Kind, cols *model.Columns, from, to int) error {
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
func (f *folder) buckets(_ model.Kind, iters []*blockfile.Iter) error {
	// Buckets keep their sketches even if the policy no longer asks for them, since it
	// may ask for them again. Files without sketches are read without them.
	r := buckets.Reader{Needs: model.AllStats, Sketches: f.origin.Sketches}
	r.Open(f.id, model.AllTime, false, f.store.bucketSources(f.state, f.id, iters))
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

// add takes a bucket that was made.
func (f *folder) add(b store.Bucket) error {
	g := f.made[b.StepMS]
	if g == nil {
		origin := f.origin
		origin.StepMS, origin.Sketches = b.StepMS, f.sketches
		g = &partition.Gather{Out: f.store.place.NewOutput(&partition.Counts{}, chunk.Best, origin).Watch()}
		g.Begin(f.id, model.AggregateKind)
		f.made[b.StepMS] = g
	}
	return f.append(g, b)
}

func (f *folder) append(g *partition.Gather, b store.Bucket) error {
	f.data = b.Aggregate.Append(f.data[:0])
	g.Columns.AppendBytes(b.StartMS, f.data, 0)
	return g.FlushIfFull()
}

// mergeBuckets writes the buckets of files of one step to out.
func (s *Store) mergeBuckets(ctx context.Context, st *state, files []*openFile, out *partition.Output) error {
	f := &folder{ctx: ctx, store: s, state: st, files: files, stepMS: files[0].StepMS, now: s.now(), merging: true}
	f.origin.Sketches = anySketches(files)
	f.rest.Out = out
	return f.series()
}

// anySketches reports whether some of the files may have sketches.
func anySketches(files []*openFile) bool {
	return slices.ContainsFunc(files, func(f *openFile) bool { return f.Sketches })
}

// bucketSources returns sources of a series' buckets. Those without any are left out.
func (s *Store) bucketSources(st *state, id model.SeriesNumber, iters []*blockfile.Iter) (sources []*buckets.Source) {
	for _, it := range iters {
		file := it.File()
		if !file.Series.Contains(uint32(id)) {
			continue
		}
		src := &buckets.Source{Iter: it, StepMS: file.StepMS}
		for _, d := range st.deletions() {
			if d.Sequence > file.Deletions && d.Range.Overlaps(file.Range()) && d.IDs.Contains(uint32(id)) {
				src.Deletions = append(src.Deletions, d.Range)
			}
		}
		sources = append(sources, src)
	}
	return sources
}

// read opens a cursor over what there is of a series: samples, and buckets.
func (s *Store) read(ctx context.Context, st *state, nowMS int64, id model.SeriesNumber, kind model.Kind, o store.ReadOptions) store.Cursor {
	policy := s.policyOf(id)
	o.Range = keptRange(policy, o.Range, nowMS)
	samples := func(o store.ReadOptions) store.Cursor {
		return note(s.cursors.Read(ctx, &st.layers, nowMS, id, kind, o), o.Stages)
	}
	if !st.buckets && o.Buckets != store.BucketsOnly || o.Buckets == store.WithoutBuckets {
		return samples(o)
	}
	var iters []*blockfile.Iter
	lastMS := int64(0)
	for _, f := range st.files {
		if f.StepMS != 0 && f.Range().Overlaps(o.Range) && f.Series.Contains(uint32(id)) {
			iters = append(iters, f.Iter(true))
			lastMS = max(lastMS, f.MaxMS)
		}
	}
	switch {
	case len(iters) > 0:
	case o.Buckets == store.BucketsOnly:
		return noData{}
	default:
		return samples(o)
	}
	if policy.Aggregation == nil {
		policy.Aggregation = &retention.DefaultAggregation
	}
	_, percentile := policy.Aggregation.Method.Percentile()
	return buckets.NewCursor(buckets.Query{
		Sketches: policy.Sketches() && (percentile || o.Sketches),
		Context:  ctx, Series: id, Kind: kind, Policy: policy, Options: o,
		Sources: s.bucketSources(st, id, iters), LastMS: lastMS, Samples: samples,
		Failed: func(err error) { s.noteDamage(st, err) },
	})
}

// noData is a cursor at its end.
type noData struct{}

func (noData) Next() (*store.Block, error) { return nil, nil }
func (noData) Close()                      {}
