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
	"varve/internal/embedded/catalogue"
	"varve/internal/embedded/overlay"
	"varve/internal/embedded/partition"
	"varve/internal/model"
	"varve/internal/notify"
	"varve/internal/record"
	"varve/internal/store"
	"varve/internal/writelog"
)

// merger drops expired files and merges others, one merge at a time.
func (s *Store) merger(ctx context.Context) {
	tick := time.NewTicker(s.cfg.MaintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.filesChanged:
		case <-tick.C:
		}
		err := s.maintain(ctx)
		if s.catalogue.Broken() != nil {
			return // see checkpointer
		}
		if err != nil && ctx.Err() == nil {
			s.metrics.mergeFailures.Inc()
			s.logger.Error("merge failed; will retry", "error", err)
		}
	}
}

// askMerge wakes the merger.
func (s *Store) askMerge() { notify.Wake(s.filesChanged) }

// maintain removes files without valid samples, then merges files until no due
// merge fits the disk.
func (s *Store) maintain(ctx context.Context) error {
	s.merging.Lock()
	defer s.merging.Unlock()
	if err := s.catalogue.Broken(); err != nil {
		return err
	}
	if err := s.dropDead(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		files, rewrite := s.nextRewrite()
		if len(files) == 0 {
			return nil
		}
		err := rewrite(ctx, files)
		switch {
		case err == nil:
		case anyDamaged(files): // later merges leave damaged files alone
			s.metrics.mergeFailures.Inc()
			s.logger.Error("a merge found a damaged file and was stopped; other merges continue", "error", err)
		case errors.As(err, new(*spaceError)):
			s.metrics.mergesPutOff.Inc()
			s.logger.Warn("a merge was stopped because the disk was getting full; will retry when there is room for all of its input", "error", err)
			return nil
		default:
			return err
		}
	}
	return ctx.Err()
}

// nextRewrite returns the files that are to be folded or merged next, and how; none if
// there is nothing to do that fits the disk.
func (s *Store) nextRewrite() ([]*openFile, func(context.Context, []*openFile) error) {
	st := s.acquire()
	defer s.release(st)
	if files := s.nextFold(st, foldShare, foldLag, s.heldBack); len(files) > 0 {
		return files, s.fold
	}
	return s.nextMerge(st), s.merge
}

// nextMerge returns the first due merge for whose output the disk has room, nil
// if there is none.
func (s *Store) nextMerge(st *state) []*openFile {
	var putOff *spaceError
	for files := range st.due(s, s.expiredMS()) {
		err := s.spaceToMerge(st, files)
		if err == nil {
			return files
		}
		s.metrics.mergesPutOff.Inc()
		if putOff == nil {
			putOff = err
		}
	}
	if (putOff != nil) != s.mergesWait { // log changes only: this runs at each interval
		if s.mergesWait = putOff != nil; s.mergesWait {
			s.logger.Warn("merges are postponed for lack of disk space; they resume when there is enough", "error", putOff)
		} else {
			s.logger.Info("postponed merges resume")
		}
	}
	return nil
}

// Compact writes everything in memory to files, folds samples that are old enough for a
// coarser stage, merges each partition into one file, and frees the space that the log keeps
// for reuse. The store takes reads and writes meanwhile. Compact leaves out merges that do not
// fit the disk or meet damage, and folds just after a start, and returns an error that names
// them. The error is a *store.UnavailableError if there is no damage.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.log.CheckOpen(ctx); err != nil {
		return err
	}
	err := s.orFull(s.compact(ctx))
	if errors.As(err, new(*spaceError)) && !errors.As(err, new(*store.CorruptionError)) && !errors.As(err, new(*store.UnavailableError)) {
		return &store.UnavailableError{Reason: "not everything could be merged", Err: err}
	}
	return err
}

func (s *Store) compact(ctx context.Context) error {
	if err := s.checkpointSmall(); err != nil {
		return err
	}
	s.merging.Lock()
	defer s.merging.Unlock()
	if err := s.dropDead(); err != nil {
		return err
	}
	left, err := s.foldEverything(ctx)
	if err != nil {
		return err
	}
	todo := make(map[uint64]bool)
	st := s.acquire()
	for _, f := range st.files {
		todo[f.Number] = f.damage.Load() == nil
	}
	s.release(st)
	for more := true; more; {
		more = false
		for _, group := range s.unmerged(todo) {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := s.compactGroup(ctx, group, todo)
			switch {
			case err == nil:
			case errors.As(err, new(*spaceError)), anyDamaged(group):
				left = errors.Join(left, err)
			default:
				return errors.Join(left, err)
			}
			more = true
		}
	}
	return left
}

// foldEverything folds all data that is old enough, even if that is a small part of a file. left is
// an error for the folds that it leaves out, because of damage or lack of space, or just after a
// start.
func (s *Store) foldEverything(ctx context.Context) (left, err error) {
	for {
		st := s.acquire()
		files := s.nextFold(st, 0, 0, nil)
		s.release(st)
		if len(files) == 0 {
			return left, ctx.Err()
		}
		if now := s.now(); s.justOpened(now.UnixMilli()) {
			hold := min(s.cfg.LateHold, openedHold)
			return errors.Join(left, &store.UnavailableError{Reason: fmt.Sprintf("retention rules were not applied, all other work was done: for %v after a start, the clock may be wrong, "+
				"so rules neither fold nor remove anything; compact again after that", hold), Wait: s.opened.Add(hold).Sub(now)}), ctx.Err()
		}
		err := s.fold(ctx, files)
		switch {
		case err == nil:
		case errors.As(err, new(*spaceError)), anyDamaged(files):
			left = errors.Join(left, err)
		default:
			return left, err
		}
	}
}

// compactGroup merges the files of a group that are still there, and removes them from the list of
// work.
func (s *Store) compactGroup(ctx context.Context, group []*openFile, todo map[uint64]bool) error {
	st := s.acquire()
	defer s.release(st)
	group = slices.DeleteFunc(group, func(f *openFile) bool { return !slices.Contains(st.files, f) })
	if !slices.ContainsFunc(group, func(f *openFile) bool { return todo[f.Number] }) {
		return nil
	}
	group = s.closure(st, group)
	for _, f := range group {
		delete(todo, f.Number)
	}
	if anyDamaged(group) {
		return nil // merges leave damaged files alone, see due
	}
	if err := s.spaceToMerge(st, group); err != nil {
		return err
	}
	return s.merge(ctx, group)
}

// unmerged returns the groups of files of which some are still to do: those that
// share partitions first, then each partition's.
func (s *Store) unmerged(todo map[uint64]bool) [][]*openFile {
	st := s.acquire()
	defer s.release(st)
	samples := make(map[group]int64)
	for _, f := range st.files {
		samples[group{f.StepMS, s.partition(f)}] += f.Samples
	}
	groups, due := make(map[group][]*openFile), make(map[group]bool)
	for _, f := range st.files {
		g := group{f.StepMS, s.partition(f)}
		if samples[g] < partition.DenseSamples {
			g.start = sparse
		}
		due[g] = due[g] || todo[f.Number]
		if f.damage.Load() == nil {
			groups[g] = append(groups[g], f)
		}
	}
	var order []group
	for g := range groups {
		if due[g] {
			order = append(order, g)
		}
	}
	slices.SortFunc(order, group.compare)
	var all [][]*openFile
	for _, g := range slices.Backward(order) { // sparse is the last
		all = append(all, groups[g])
	}
	return all
}

// merge rewrites files into one file per partition, with deletions and expiry
// applied. merging must be held.
func (s *Store) merge(ctx context.Context, files []*openFile) error {
	began := s.now()
	s.logger.Debug("merge begins", "files", len(files))
	if _, err := s.awaitDeletions(); err != nil { // before the merge: otherwise its work would be lost if replace could not install it
		return err
	}
	st, deletions := s.acquireWithDeletions()
	defer s.release(st)
	counts, err := s.partitionsIn(ctx, files)
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("plan merge: %w", err)
	}
	sequence, _ := extent(files)
	stepMS := files[0].StepMS
	out := s.place.NewOutput(&counts, chunk.Best, blockfile.Origin{Sequence: sequence, Deletions: deletions, StepMS: stepMS, Sketches: anySketches(files), Late: lateIn(files)}).Watch()
	join := s.mergeSeries
	if stepMS != 0 {
		join = s.mergeBuckets
	}
	if err := join(ctx, st, files, out); err != nil {
		out.Abort()
		if errors.As(err, new(*spaceError)) {
			for _, f := range files {
				f.outgrew = true
			}
		}
		return fmt.Errorf("merge %d files: %w", len(files), err)
	}
	merged, err := finished(out)
	if err != nil {
		return fmt.Errorf("merge %d files: %w", len(files), err)
	}
	if err := s.replace(files, merged); err != nil {
		return err
	}
	s.logger.Debug("merge done", "files", len(files), "into", len(merged), "samples", s.samplesIn(merged), "took", s.now().Sub(began))
	s.metrics.merges.Inc()
	s.metrics.mergedSamples.Add(float64(s.samplesIn(merged)))
	s.metrics.mergeSeconds.Observe(s.now().Sub(began).Seconds())
	return nil
}

// acquireWithDeletions returns the current state and the sequence of the last
// deletion that the state includes.
func (s *Store) acquireWithDeletions() (*state, uint64) {
	s.order.Lock()
	defer s.order.Unlock()
	return s.acquire(), s.order.deletions
}

// partitionsIn counts the samples of each partition. It reads only files with
// samples of several partitions.
func (s *Store) partitionsIn(ctx context.Context, files []*openFile) (partition.Counts, error) {
	var counts partition.Counts
	for _, f := range files {
		if p := s.partition(f); p != sparse {
			counts.Add(p, f.Samples)
			continue
		}
		err := f.Scan(ctx, func(e *chunk.Entry) { counts.Add(s.width.Partition(e.FirstMS), int64(e.Count)) })
		if err != nil {
			return counts, err
		}
	}
	return counts, nil
}

// mergeSeries writes the valid samples of every series in files to out. st must
// have been acquired before the files' deletion sequence was taken.
func (s *Store) mergeSeries(ctx context.Context, st *state, files []*openFile, out *partition.Output) error {
	ids, beneath := roaring.New(), roaring.New()
	in := asSet(files)
	var iters []*blockfile.Iter
	for _, f := range files {
		ids.Or(f.Series)
		iters = append(iters, f.Iter(false))
		for _, o := range st.files {
			if !in[o] && s.hides(f, o) {
				beneath.Or(o.Series)
			}
		}
	}
	g := partition.Gather{Out: out}
	for it := ids.Iterator(); it.HasNext(); {
		id := model.SeriesNumber(it.Next())
		kind := s.kindInFiles(id)
		if kind == 0 {
			continue // every sample of it is deleted or expired
		}
		c := s.cursors.Read(ctx, &st.layers, s.expiredMS(), id, kind, store.ReadOptions{Range: model.AllTime, Stale: true})
		g.Begin(id, kind)
		err := c.OpenFiles(iters, beneath.Contains(uint32(id))) // expired samples hide older ones in files that are not merged
		if err == nil {
			err = gatherAll(c, &g)
		}
		c.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// gatherAll adds what c reads.
func gatherAll(c *overlay.Cursor, g *partition.Gather) error {
	for {
		b, err := c.Next()
		if err != nil {
			return err
		}
		if b == nil {
			return g.End()
		}
		if err := g.Append(&b.Columns, 0, b.Len()); err != nil {
			return err
		}
	}
}

// finished completes an output, and returns its files.
func finished(out *partition.Output) ([]*openFile, error) {
	files, err := out.Finish()
	opened := make([]*openFile, len(files))
	for i, f := range files {
		opened[i] = &openFile{File: f.File}
		opened[i].spanned.Store(f.Span)
	}
	return opened, err
}

// replace installs merged files in place of others.
func (s *Store) replace(old, merged []*openFile) error {
	logged, err := s.awaitDeletions()
	if err != nil {
		return errors.Join(err, s.discard(merged))
	}
	if err := s.commitReplaced(old, merged, logged); err != nil {
		return err
	}
	return s.forgetEmpty(context.Background(), lost(old, merged))
}

// awaitDeletions waits until the deletions that merged files may have applied are durable in the log,
// and returns the sequence of the last one. Otherwise a kill or a power cut could lose the log record
// of a deletion after a merge has removed its samples from files; samples that the replay of the log
// restores would then reappear. It does not wait while the disk is full, because merges free space.
func (s *Store) awaitDeletions() (last uint64, err error) {
	s.order.Lock()
	last, s.order.unsynced = s.order.deletions, s.undurable()
	var logged writelog.Entry
	if n := len(s.order.unsynced); n > 0 {
		logged = s.order.unsynced[n-1].entry
	}
	s.order.Unlock()
	s.installing.Lock()
	saved := s.savedDeletions
	s.installing.Unlock()
	if last <= saved || s.log.Full() {
		return last, nil
	}
	ctx := context.Background()
	err = s.log.Wait(ctx, logged)
	if err == nil {
		err = s.log.Sync(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("wait until the deletions of merged files are logged: %w", err)
	}
	return last, nil
}

// commitReplaced exchanges files. The log has the deletions up to logged.
func (s *Store) commitReplaced(old, merged []*openFile, logged uint64) error {
	s.installing.Lock()
	defer s.installing.Unlock()
	gone := asSet(old)
	st := s.acquire()
	next := &state{frozen: st.frozen, frozenDeletions: st.frozenDeletions, files: merged}
	for _, f := range st.files {
		if !gone[f] {
			next.files = append(next.files, f)
		}
	}
	ch := catalogue.Change{AddFiles: manifestOf(merged)}
	for _, f := range old {
		ch.DropFiles = append(ch.DropFiles, f.Number)
	}
	for _, d := range st.deletions() {
		if !next.needed(d) {
			ch.DropDeletions = append(ch.DropDeletions, d.Sequence)
		}
	}
	// The samples that a deletion has removed from the old files may have
	// overwritten samples that are in other files. The deletion must be as durable
	// as the change of files: if the log loses it, those samples come back.
	ch.AddDeletions = next.unsaved(s.savedDeletions, logged, st.deletions())
	s.release(st)
	if err := s.commit(ch, merged); err != nil {
		return err
	}
	s.savedDeletions = max(s.savedDeletions, logged)
	s.install(gone, merged)
	return nil
}

// install publishes the change that replace has committed.
func (s *Store) install(gone map[*openFile]bool, merged []*openFile) {
	s.publish(func(st *state) {
		st.files = slices.DeleteFunc(st.files, func(f *openFile) bool {
			if gone[f] {
				f.dropped = true
			}
			return gone[f]
		})
		st.files = append(st.files, merged...)
		st.setDeletions(slices.DeleteFunc(slices.Clone(st.deletions()), func(d *record.Deletion) bool { return !st.needed(d) }))
	})
}

// lost returns the series that are in the old files but not in the new ones.
func lost(old, merged []*openFile) *roaring.Bitmap {
	ids := roaring.New()
	for _, f := range old {
		ids.Or(f.Series)
	}
	for _, f := range merged {
		ids.AndNot(f.Series)
	}
	return ids
}

// dropDead removes files whose samples are all deleted, or have all expired and hide no samples in
// remaining files. Unlike a merge, this needs no disk space.
func (s *Store) dropDead() error {
	nowMS := s.expiredMS()
	st := s.acquire()
	dead := make(map[*openFile]bool)
	var deleted, expired int64
	for _, f := range st.files { // oldest first
		hiding := func(o *openFile) bool { return s.hides(f, o) && !dead[o] }
		switch {
		case s.allDeleted(st, f):
			deleted += f.Samples
			dead[f] = true
		case f.ExpiresMS <= nowMS && !slices.ContainsFunc(st.files, hiding):
			expired += f.Samples
			dead[f] = true
		}
	}
	s.release(st)
	if len(dead) == 0 {
		return nil
	}
	if err := s.replace(slices.Collect(maps.Keys(dead)), nil); err != nil {
		return err
	}
	s.metrics.deletedSamples.Add(float64(deleted))
	s.metrics.expiredSamples.Add(float64(expired))
	return nil
}
