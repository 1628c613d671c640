package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"varve/internal/blockfile"
	"varve/internal/embedded/buckets"
	"varve/internal/embedded/folding"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/retention"
	"varve/internal/store"
)

const (
	// foldShare is the share of a file's data that must be old enough for a coarser stage before
	// the file is folded. The rest is rewritten as it is: at a share of a half, each sample is
	// rewritten once on average; at three quarters, a third of them.
	foldShare = 0.75

	// foldLag is the longest time that data waits for the rest of its file.
	foldLag = 24 * time.Hour

	// foldPause is the time before a fold looks again at files that it has written, or could
	// not fold for lack of space. foldHeld is the same for files of which samples in memory
	// held data back.
	foldPause = 10 * time.Minute
	foldHeld  = 6 * time.Hour

	// foldAgain is how long a fold is put off after a deletion has overtaken it.
	foldAgain = time.Second
)

// ages says which policies the series of a file have.
type ages struct {
	book     *retention.Book // the book that the other fields were derived from, nil = not known
	policies []policyCount
	notUntil int64 // ms
}

// pauseFolds puts off the next fold of files.
func pauseFolds(files []*openFile, now time.Time, d time.Duration) {
	for _, f := range files {
		f.ages.notUntil = now.Add(d).UnixMilli()
	}
}

// paused reports whether a fold was put off. If the pause is longer than any that pauseFolds
// sets, the clock was set back since, and the pause does not count.
func (a *ages) paused(nowMS int64) bool {
	return nowMS < a.notUntil && a.notUntil <= nowMS+foldHeld.Milliseconds()
}

type policyCount struct {
	policyKind
	series int
}

// A policyKind has the properties of a series that matter for folding: its rule (nil if it has
// none), whether its data can be folded or only removed, and whether its buckets keep
// percentiles.
type policyKind struct {
	rule     *retention.Rule
	folds    bool
	sketches bool // its buckets have sketches, for percentiles
}

// border returns the time before which data of a step needs work.
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

// overdue estimates the share of a file's data that is old enough for a coarser
// stage, and for how long the oldest data has been old enough. all reports whether
// all data of the file has outlived its last stage.
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

// nextFold returns files of one step that are to be folded together, nil if there are none. A
// file is due if at least the share enough of its data is old enough, or if some data has
// been old enough for late. held, if not nil, reports which files must not be folded yet.
func (s *Store) nextFold(st *state, enough float64, late time.Duration, held func(st *state, files []*openFile, nowMS int64, gone bool) bool) []*openFile {
	book := s.book()
	if book == nil || len(book.Rules) == 0 {
		return nil
	}
	nowMS := s.now().UnixMilli()
	s.noteRules(book, nowMS)
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
		gone := all && len(files) == 1
		if held != nil && held(st, files, nowMS, gone) {
			for _, f := range files {
				later[f] = true
			}
			continue
		}
		if gone || s.spaceToMerge(st, files) == nil {
			return files
		}
		s.metrics.mergesPutOff.Inc()
	}
	return nil
}

// entangled returns f, and the files that share series and times with f or with another
// file that it returns, oldest first. Only together and in this order do they say which
// sample of a time is valid. A file of buckets is folded alone: see [buckets.Reader].
func (s *Store) entangled(st *state, f *openFile) []*openFile {
	return st.grow([]*openFile{f}, func(o, to *openFile) bool { return f.StepMS == 0 && (s.hides(o, to) || s.hides(to, o)) })
}

// HoldFolds waits until no fold of data in r is running, and keeps new folds of such data from
// beginning until release is called.
func (s *Store) HoldFolds(ctx context.Context, r model.TimeRange) (release func(), err error) {
	return s.holds.Hold(ctx, r)
}

// claim begins a fold of a file, and of the files that must be folded together with it, unless their
// range is held. The fold also sees data that is written after claim, in memory or in further files.
func (s *Store) claim(f *openFile, book *retention.Book, now time.Time) (r model.TimeRange, ok bool) {
	st := s.acquire()
	defer s.release(st)
	r = s.foldRange(s.entangled(st, f), book, now)
	return r, s.holds.Begin(r)
}

// foldRange returns the range of the data in files that is old enough for a coarser stage.
// merging must be held.
func (s *Store) foldRange(files []*openFile, book *retention.Book, now time.Time) model.TimeRange {
	_, r := extent(files)
	border := int64(math.MinInt64)
	for _, f := range files {
		for _, p := range s.agesOf(f, book).policies {
			if p.rule != nil {
				border = max(border, p.border(p.rule.Stages.Plan(now.UnixMilli()), f.StepMS))
			}
		}
	}
	r.EndMS = min(r.EndMS, max(border, math.MinInt64+1)-1)
	return r
}

// fold rewrites files: data that is old enough for a coarser stage becomes coarser, and
// data that has outlived the last stage is dropped. One commit exchanges all files.
// merging must be held.
func (s *Store) fold(ctx context.Context, files []*openFile) error {
	began, book := s.now(), s.book()
	if s.cfg.LateHold > 0 && book != s.rulesSeen { // the rules have changed since files were chosen
		return s.putOffFold(files, began)
	}
	claimed, ok := s.claim(files[0], book, began)
	if !ok {
		return s.putOffFold(files, began)
	}
	defer s.holds.End()
	if _, err := s.awaitDeletions(); err != nil { // see merge
		return err
	}
	st, deletions := s.acquireWithDeletions()
	defer s.release(st)
	files = s.entangled(st, files[0]) // a checkpoint may have added files
	if r := s.foldRange(files, book, began); r.StartMS < claimed.StartMS || r.EndMS > claimed.EndMS {
		return s.putOffFold(files, began)
	}
	if _, _, all := s.overdue(files[0], book, began.UnixMilli()); all && len(files) == 1 {
		s.metrics.outlived.Add(float64(files[0].Samples))
		return s.replace(files, nil)
	}
	counts, err := s.partitionsIn(ctx, files)
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("plan the folding of files: %w", err)
	}
	f := s.newFolder(ctx, st, files, &counts, deletions, began)
	folded, err := s.foldedBy(f, files[0].StepMS, began)
	if errors.As(err, new(*spaceError)) {
		pauseFolds(files, began, foldPause)
	}
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("fold %d files: %w", len(files), err)
	}
	if done, err := s.replaceFolded(files, folded, deletions, book); err != nil || !done {
		return err
	}
	s.metrics.folds.Inc()
	done, gone := f.Counts()
	s.metrics.folded.Add(float64(done))
	s.metrics.outlived.Add(float64(gone))
	s.logger.Debug("fold done", "files", len(files), "into", len(folded), "folded", done, "gone", gone, "took", s.now().Sub(began))
	return nil
}

// putOffFold makes the fold of files wait for a moment.
func (s *Store) putOffFold(files []*openFile, now time.Time) error {
	s.metrics.foldsPutOff.Inc()
	pauseFolds(files, now, foldAgain)
	return nil
}

// replaceFolded installs the result of a fold, with two exceptions, in which the files are folded
// again a little later. A deletion was logged during the fold: it may apply to some of the samples
// that a new bucket has counted. Or the rules are no longer those of book: the fold may have used
// rules by which more data is folded than it claimed.
func (s *Store) replaceFolded(old, folded []*openFile, deletions uint64, book *retention.Book) (done bool, err error) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	st := s.acquire()
	late := slices.ContainsFunc(st.deletions(), func(d *record.Deletion) bool {
		return d.Sequence > deletions && slices.ContainsFunc(old, func(f *openFile) bool { return concerns(d, f.File) })
	})
	s.release(st)
	if late || s.book() != book {
		pauseFolds(old, s.now(), foldAgain)
		return false, s.discard(folded)
	}
	return true, s.replace(old, folded)
}

// newFolder begins the folding of files of one step.
func (s *Store) newFolder(ctx context.Context, st *state, files []*openFile, counts *partition.Counts, deletions uint64, now time.Time) *folding.Folder {
	sequence, _ := extent(files)
	origin := blockfile.Origin{Sequence: sequence, Deletions: deletions, StepMS: files[0].StepMS, Sketches: anySketches(files)}
	sketches := false
	for _, file := range files {
		for _, p := range s.agesOf(file, s.book()).policies {
			sketches = sketches || p.sketches
		}
	}
	src := s.foldSource(ctx, st, files, now.UnixMilli())
	src.Policy = s.policyOf
	return folding.New(src, &s.place, counts, origin, sketches)
}

// foldSource returns how a fold reads the data of files of one step.
func (s *Store) foldSource(ctx context.Context, st *state, files []*openFile, nowMS int64) folding.Source {
	src := folding.Source{
		StepMS: files[0].StepMS, NowMS: nowMS, Kind: s.kindInFiles, InMemory: st.inHeads,
		Samples: func(id model.SeriesNumber, kind model.Kind, iters []*blockfile.Iter) (store.Cursor, error) {
			c := s.cursors.Read(ctx, &st.layers, nowMS, id, kind, store.ReadOptions{Range: model.AllTime, Stale: true})
			if err := c.OpenFiles(iters, false); err != nil {
				c.Close()
				return nil, err
			}
			return c, nil
		},
		Buckets: func(id model.SeriesNumber, iters []*blockfile.Iter) []*buckets.Source {
			return s.bucketSources(st, id, iters)
		},
	}
	for _, f := range files {
		src.Files = append(src.Files, f.File)
	}
	return src
}

// foldedBy runs a fold of files of a step and returns the files that take their place.
func (s *Store) foldedBy(f *folding.Folder, stepMS int64, began time.Time) (done []*openFile, err error) {
	err = f.Run()
	outputs := f.Outputs()
	for i, out := range outputs {
		if err != nil {
			for _, out := range outputs[i:] {
				out.Abort()
			}
			return nil, errors.Join(err, s.discard(done))
		}
		var files []*openFile
		files, err = finished(out)
		done = append(done, files...)
	}
	if err != nil {
		return nil, errors.Join(err, s.discard(done))
	}
	pause := foldPause
	if f.Held() {
		pause = foldHeld
	}
	for _, file := range done {
		if file.StepMS == stepMS {
			pauseFolds([]*openFile{file}, began, pause)
		}
	}
	return done, nil
}

// discard removes files that no manifest names.
func (s *Store) discard(files []*openFile) (err error) {
	for _, f := range files {
		err = errors.Join(err, f.Close(), s.fs.Remove(f.Path))
	}
	return err
}

// mergeBuckets writes the buckets of files of one step to out.
func (s *Store) mergeBuckets(ctx context.Context, st *state, files []*openFile, out *partition.Output) error {
	return folding.Merge(s.foldSource(ctx, st, files, s.now().UnixMilli()), out, anySketches(files))
}

// anySketches reports whether some of the files may have sketches.
func anySketches(files []*openFile) bool {
	return slices.ContainsFunc(files, func(f *openFile) bool { return f.Sketches })
}

// bucketSources returns sources of a series' buckets. Files without buckets of the
// series are left out.
func (s *Store) bucketSources(st *state, id model.SeriesNumber, iters []*blockfile.Iter) (sources []*buckets.Source) {
	for _, it := range iters {
		file := it.File()
		if !file.Series.Contains(uint32(id)) {
			continue
		}
		hidden := st.hiding.Load().Hidden(nil, id, file.Deletions, file.Range())
		sources = append(sources, &buckets.Source{Iter: it, StepMS: file.StepMS, Deletions: hidden})
	}
	return sources
}

// read opens a cursor over the data of a series that its policy keeps: samples, and buckets.
func (s *Store) read(ctx context.Context, st *state, nowMS int64, id model.SeriesNumber, kind model.Kind, o store.ReadOptions) store.Cursor {
	o.Range = keptRange(s.policyOf(id), o.Range, nowMS)
	return s.readStored(ctx, st, nowMS, id, kind, o)
}

// readStored is like read, but includes data that the current policy hides and
// that other rules may show again.
func (s *Store) readStored(ctx context.Context, st *state, nowMS int64, id model.SeriesNumber, kind model.Kind, o store.ReadOptions) store.Cursor {
	if !st.buckets && o.Buckets != store.BucketsOnly || o.Buckets == store.WithoutBuckets {
		return s.readSamples(ctx, st, nowMS, id, kind, o)
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
		return s.readSamples(ctx, st, nowMS, id, kind, o)
	}
	policy := s.policyOf(id)
	if policy.Aggregation == nil {
		policy.Aggregation = &retention.DefaultAggregation
	}
	_, percentile := policy.Aggregation.Method.Percentile()
	return buckets.NewCursor(buckets.Query{
		Sketches: policy.Sketches() && (percentile || o.Sketches),
		Context:  ctx, Series: id, Kind: kind, Policy: policy, Options: o,
		Sources: s.bucketSources(st, id, iters), LastMS: lastMS,
		Samples: func(o store.ReadOptions) store.Cursor { return s.readSamples(ctx, st, nowMS, id, kind, o) },
		Failed:  func(err error) { s.noteDamage(st, err) },
	})
}

// readSamples is like read, but reads no buckets.
func (s *Store) readSamples(ctx context.Context, st *state, nowMS int64, id model.SeriesNumber, kind model.Kind, o store.ReadOptions) store.Cursor {
	return o.Stages.Note(s.cursors.Read(ctx, &st.layers, nowMS, id, kind, o))
}

// noData is a cursor at its end.
type noData struct{}

func (noData) Next() (*store.Block, error) { return nil, nil }
func (noData) Close()                      {}
