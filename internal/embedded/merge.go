package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/blockfile"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/record"
	"varve/internal/store"
)

// merger drops expired files and merges others, one merge at a time.
func (s *Store) merger(ctx context.Context) {
	defer s.background.Done()
	tick := time.NewTicker(s.cfg.MaintenanceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.filesChanged:
		case <-tick.C:
		}
		if err := s.maintain(ctx); err != nil && ctx.Err() == nil {
			s.metrics.mergeFailures.Inc()
			s.log.Error("merge failed, it will be tried again", "error", err)
		}
	}
}

// askMerge wakes the merger.
func (s *Store) askMerge() {
	select {
	case s.filesChanged <- struct{}{}:
	default:
	}
}

// maintain does what is due: expired files go, then merges until none is due.
func (s *Store) maintain(ctx context.Context) error {
	s.merging.Lock()
	defer s.merging.Unlock()
	if err := s.dropExpired(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		st := s.acquire()
		due := st.due(s, s.now().UnixMilli())
		s.release(st)
		if len(due) == 0 || !s.spaceToMerge(due) {
			return nil
		}
		err := s.merge(ctx, due)
		switch {
		case err == nil:
		case anyDamaged(due): // from now on left alone
			s.metrics.mergeFailures.Inc()
			s.log.Error("merge met a damaged file, others go on", "error", err)
		default:
			return err
		}
	}
	return ctx.Err()
}

// Compact writes everything in memory to files, merges each partition into one
// file, and gives back the space that the log keeps for reuse. It takes as long as it takes; the server goes on meanwhile.
func (s *Store) Compact(ctx context.Context) error {
	if err := s.checkOpen(ctx); err != nil {
		return err
	}
	if err := s.wal.Load().Trim(); err != nil { // the next segment is a fresh, small file
		return err
	}
	if err := s.checkpoint(); err != nil {
		return err
	}
	if err := s.wal.Load().Trim(); err != nil {
		return err
	}
	s.merging.Lock()
	defer s.merging.Unlock()
	if err := s.dropExpired(); err != nil {
		return err
	}
	st := s.acquire()
	todo := make(map[uint64]bool)
	for _, f := range st.files {
		todo[f.Number] = true
	}
	s.release(st)
	var damage error
	for ctx.Err() == nil {
		st := s.acquire()
		next := st.unmerged(s, todo)
		s.release(st)
		if len(next) == 0 {
			return damage
		}
		err := s.merge(ctx, next)
		switch {
		case err == nil:
		case anyDamaged(next):
			damage = errors.Join(damage, err)
		default:
			return err
		}
	}
	return ctx.Err()
}

// unmerged returns all files of a partition of which some are still to do.
func (st *state) unmerged(s *Store, todo map[uint64]bool) []*openFile {
	for _, f := range st.files {
		if !todo[f.Number] || f.damage.Load() != nil {
			continue
		}
		var group []*openFile
		for _, o := range st.files {
			if s.partition(o) == s.partition(f) && o.damage.Load() == nil {
				group = append(group, o)
			}
		}
		if group = st.closure(group); !anyDamaged(group) {
			return group
		}
	}
	return nil
}

// spillPartition stands for files that hold more than one partition.
const spillPartition = math.MaxInt64

// partition returns the start of the only partition a file has samples of.
func (s *Store) partition(f *openFile) int64 {
	start := s.width.Partition(f.MinMS)
	if start != s.width.Partition(f.MaxMS) {
		return spillPartition
	}
	return start
}

// due returns files that should be merged now, nil if none. Files in which damage
// was met are left alone, also where others can then not be merged: nothing of
// them may be lost for good, nor may it be tried again and again.
func (st *state) due(s *Store, nowMS int64) []*openFile {
	groups := make(map[int64][]*openFile)
	var partitions []int64
	for _, f := range st.files {
		p := s.partition(f)
		if groups[p] == nil {
			partitions = append(partitions, p)
		}
		groups[p] = append(groups[p], f)
		if f.damage.Load() != nil {
			groups[p] = nil // newer ones may be merged among themselves
		}
	}
	slices.Sort(partitions)
	for _, p := range partitions {
		run := st.closure(similar(groups[p], s.cfg.MergeFiles))
		if len(run) > 0 && !anyDamaged(run) {
			return run
		}
	}
	for _, f := range st.files {
		var alone []*openFile
		switch {
		case st.mostlyDeleted(f):
			alone = st.closure([]*openFile{f})
		case f.HalfExpiresMS <= nowMS:
			alone = st.closure(st.beneath([]*openFile{f}))
		}
		if len(alone) > 0 && !anyDamaged(alone) {
			return alone
		}
	}
	return nil
}

const (
	// deletedShare is the share of a file's samples, estimated, from which a
	// file is rewritten to give back the space of deleted samples.
	deletedShare = 0.05

	// deletionsMax is the number of deletions from which a file is rewritten
	// so that reads need not consult them.
	deletionsMax = 256
)

// mostlyDeleted estimates whether deletions hide enough of a file to rewrite it.
// Smaller ones wait for the next merge, so that a stream of small deletes does
// not rewrite everything again and again.
func (st *state) mostlyDeleted(f *openFile) bool {
	var share float64
	n := 0
	for _, d := range st.deletions() {
		if !concerns(d, f.File) {
			continue
		}
		n++
		first, last := max(d.Range.StartMS, f.MinMS), min(d.Range.EndMS, f.MaxMS)
		time := (float64(last) - float64(first) + 1) / (float64(f.MaxMS) - float64(f.MinMS) + 1)
		share += time * float64(d.IDs.AndCardinality(f.Series)) / float64(f.Series.GetCardinality())
	}
	return share >= deletedShare || n >= deletionsMax
}

// similar returns the newest files as long as the next older one is not much
// larger than all taken together, if they are at least n: so that each sample
// is rewritten a number of times that grows with the logarithm of its
// partition's size.
func similar(files []*openFile, n int) []*openFile {
	var sum int64
	i := len(files)
	for i > 0 && (sum == 0 || files[i-1].Bytes <= 2*sum) {
		i--
		sum += files[i].Bytes
	}
	if len(files)-i < n {
		return nil
	}
	return files[i:]
}

// closure adds the files that would come between others in age and overlap them
// in time: left out, their samples would win or lose against the wrong ones.
func (st *state) closure(files []*openFile) []*openFile {
	in := make(map[*openFile]bool)
	for _, f := range files {
		in[f] = true
	}
	for {
		lo, hi, span := extent(in)
		grown := false
		for _, f := range st.files {
			if !in[f] && f.Sequence >= lo && f.Sequence <= hi && f.Range().Overlaps(span) {
				in[f], grown = true, true
			}
		}
		if !grown {
			break
		}
	}
	var all []*openFile
	for _, f := range st.files {
		if in[f] {
			all = append(all, f)
		}
	}
	return all
}

// beneath adds the files with older samples that expired ones in files may hide.
// Only when all of them are merged together can expired samples go.
func (st *state) beneath(files []*openFile) []*openFile {
	in := asSet(files)
	for grown := true; grown; {
		grown = false
		for _, f := range st.files {
			if !in[f] && slices.ContainsFunc(files, func(o *openFile) bool { return hides(o, f) }) {
				in[f], grown = true, true
				files = append(files, f)
			}
		}
	}
	return files
}

// hides reports whether f may have samples of the same series and time as the
// older file o.
func hides(f, o *openFile) bool {
	return o.Sequence < f.Sequence && o.Range().Overlaps(f.Range()) && o.Series.Intersects(f.Series)
}

func extent(files map[*openFile]bool) (lo, hi uint64, span model.TimeRange) {
	lo, span = math.MaxUint64, model.TimeRange{StartMS: math.MaxInt64, EndMS: math.MinInt64}
	for f := range files {
		lo, hi = min(lo, f.Sequence), max(hi, f.Sequence)
		span.StartMS, span.EndMS = min(span.StartMS, f.MinMS), max(span.EndMS, f.MaxMS)
	}
	return lo, hi, span
}

// merge rewrites files into one file per partition, with deletions and expiry
// applied. merging must be held.
func (s *Store) merge(ctx context.Context, files []*openFile) error {
	began := s.now()
	s.log.Debug("merge begins", "files", len(files))
	st, deletions := s.acquireWithDeletions()
	defer s.release(st)
	estimate, err := s.partitionsIn(files)
	if err != nil {
		s.noteDamage(st, err)
		return fmt.Errorf("plan merge: %w", err)
	}
	_, sequence, _ := extent(asSet(files))
	out := s.newOutput(estimate, chunk.Best, sequence, deletions)
	if err := s.mergeSeries(ctx, st, files, out); err != nil {
		out.abort()
		return fmt.Errorf("merge %d files: %w", len(files), err)
	}
	merged, err := out.finish()
	if err != nil {
		return fmt.Errorf("merge %d files: %w", len(files), err)
	}
	if err := s.replace(files, merged); err != nil {
		return err
	}
	s.log.Debug("merge done", "files", len(files), "into", len(merged), "samples", s.samplesIn(merged), "took", s.now().Sub(began))
	s.metrics.merges.Inc()
	s.metrics.mergedSamples.Add(float64(s.samplesIn(merged)))
	s.metrics.mergeSeconds.Observe(s.now().Sub(began).Seconds())
	return nil
}

// acquireWithDeletions returns the current state and the sequence up to which it
// knows deletions.
func (s *Store) acquireWithDeletions() (*state, uint64) {
	s.order.Lock()
	defer s.order.Unlock()
	return s.acquire(), s.order.deletions
}

func asSet(files []*openFile) map[*openFile]bool {
	set := make(map[*openFile]bool)
	for _, f := range files {
		set[f] = true
	}
	return set
}

// partitionsIn counts the samples of each partition. Only spill files are read.
func (s *Store) partitionsIn(files []*openFile) (map[int64]int64, error) {
	samples := make(map[int64]int64)
	for _, f := range files {
		if p := s.partition(f); p != spillPartition {
			samples[p] += f.Samples
			continue
		}
		err := f.Scan(func(e *chunk.Entry) { samples[s.width.Partition(e.FirstMS)] += int64(e.Count) })
		if err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// mergeSeries writes the valid samples of every series in files to out. st must
// have been acquired before the files' deletion sequence was taken.
func (s *Store) mergeSeries(ctx context.Context, st *state, files []*openFile, out *output) error {
	ids, beneath := roaring.New(), roaring.New()
	in := asSet(files)
	var iters []*blockfile.Iter
	for _, f := range files {
		ids.Or(f.Series)
		iters = append(iters, f.Iter(false))
		for _, o := range st.files {
			if !in[o] && hides(f, o) {
				beneath.Or(o.Series)
			}
		}
	}
	m := &merging{store: s, ctx: ctx, state: st, iters: iters, out: out}
	for it := ids.Iterator(); it.HasNext(); {
		id := it.Next()
		kind := s.series.Kind(id)
		if kind == 0 {
			continue // forgotten: every sample of it is deleted or expired
		}
		if err := m.series(id, kind, beneath.Contains(id)); err != nil {
			return err
		}
	}
	return nil
}

// merging is one merge under way.
type merging struct {
	store   *Store
	ctx     context.Context
	state   *state
	iters   []*blockfile.Iter
	out     *output
	pending model.Columns // samples of the current series not yet written
	rest    model.Columns
}

// series merges one series. keepExpired keeps expired samples, which hide older
// ones in files that do not take part.
func (m *merging) series(id uint32, kind model.Kind, keepExpired bool) error {
	c := m.store.newCursor(m.ctx, m.state, m.store.now().UnixMilli(), id, kind, store.ReadOptions{Range: model.AllTime})
	defer c.Close()
	c.keepExpired = keepExpired
	if err := c.openIters(m.iters); err != nil {
		return err
	}
	m.pending.Reset()
	for {
		b, err := c.Next()
		if err != nil {
			return err
		}
		if b == nil {
			return m.out.add(id, kind, &m.pending)
		}
		for i := range b.Times {
			m.pending.AppendFrom(kind, &b.Columns, i)
			if m.pending.Len() < mergeSamples && len(m.pending.Data) < mergeBytes {
				continue
			}
			if err := m.flush(id, kind); err != nil {
				return err
			}
		}
	}
}

// mergeSamples and mergeBytes bound what a merge holds of one series in memory.
const (
	mergeSamples = 16 * chunk.TargetSamples
	mergeBytes   = 4 << 20 // of values of variable kinds
)

// flush writes the pending samples but for the last chunk's worth, so that the
// next chunks are full ones too.
func (m *merging) flush(id uint32, kind model.Kind) error {
	cut := m.pending.Len()
	if cut > chunk.TargetSamples && len(m.pending.Data) < mergeBytes {
		cut -= chunk.TargetSamples
	}
	m.rest.Reset()
	for i := cut; i < m.pending.Len(); i++ {
		m.rest.AppendFrom(kind, &m.pending, i)
	}
	head := m.pending
	head.Times = head.Times[:cut]
	err := m.out.add(id, kind, &head)
	m.pending, m.rest = m.rest, m.pending
	return err
}

// replace installs merged files in place of others.
func (s *Store) replace(old, merged []*openFile) error {
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
	ch := change{addFiles: manifestOf(merged)}
	for _, f := range old {
		ch.dropFiles = append(ch.dropFiles, f.Number)
	}
	for _, d := range st.deletions() {
		if !next.needed(d) {
			ch.dropDeletions = append(ch.dropDeletions, d.Sequence)
		}
	}
	// What a deletion has removed from the old files may have been written over
	// older samples, which other files have. The deletion must outlive the log's
	// unsynced end as the change of files does, or those samples come back.
	var saved uint64
	ch.addDeletions, saved = next.unsaved(s.savedDeletions, st.deletions())
	s.release(st)
	if err := s.commit(ch, merged); err != nil {
		return err
	}
	s.savedDeletions = saved
	s.install(gone, merged)
	return s.forgetEmpty(lost(old, merged))
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

// lost returns the series that old files had and new ones have not.
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

// dropExpired removes the files of which every sample has expired and hides
// none in files that stay.
func (s *Store) dropExpired() error {
	nowMS := s.now().UnixMilli()
	st := s.acquire()
	var expired []*openFile
	kept := func(o *openFile) bool { return !slices.Contains(expired, o) }
	for _, f := range st.files { // oldest first
		hiding := slices.ContainsFunc(st.files, func(o *openFile) bool { return hides(f, o) && kept(o) })
		if f.ExpiresMS <= nowMS && !hiding {
			expired = append(expired, f)
		}
	}
	s.release(st)
	if len(expired) == 0 {
		return nil
	}
	s.metrics.expiredSamples.Add(float64(s.samplesIn(expired)))
	return s.replace(expired, nil)
}
