package embedded

import (
	"cmp"
	"slices"
	"sync/atomic"

	"varve/internal/blockfile"
	"varve/internal/embedded/expiry"
	"varve/internal/embedded/overlay"
	"varve/internal/embedded/partition"
	"varve/internal/head"
	"varve/internal/record"
	"varve/internal/store"
)

// state is one consistent set of places where samples are. It never changes
// once published; views hold the one they were opened with, and so the files.
type state struct {
	number uint64     // one more than that of the state before
	active *head.Head // takes appends
	frozen *head.Head // being written to files, or nil

	// frozenDeletions: deletions up to this sequence were applied to frozen.
	frozenDeletions uint64

	files   []*openFile // by age of their samples' writing, oldest first
	buckets bool        // some files have buckets

	layers overlay.Layers // the same, for reading

	// hiding has the deletions that some file or frozen has not applied. A new deletion is added to every
	// state that is still held before it is applied to the active head: a view
	// that misses a sample in the head must not show the one that it replaced.
	hiding atomic.Pointer[overlay.Deletions]

	refs int // guarded by Store.mu
}

// deletions returns the deletions that some file or frozen has not applied. A reader that also
// reads the heads must read them before it calls deletions.
func (st *state) deletions() []*record.Deletion { return st.hiding.Load().List() }

func (st *state) setDeletions(list []*record.Deletion) { st.hiding.Store(overlay.NewDeletions(list)) }

// layOut fills in st.layers.
func (s *Store) layOut(st *state) {
	st.layers = overlay.Layers{
		Files: st.blockFiles(), Frozen: st.frozen, Active: st.active, FrozenDeletions: st.frozenDeletions,
		Deletions: st.hiding.Load, Failed: func(err error) { s.noteDamage(st, err) },
	}
}

// hide adds a deletion to every state that is held.
func (s *Store) hide(d *record.Deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.held {
		if st.needed(d) {
			st.hiding.Store(st.hiding.Load().With(d))
		}
	}
}

// openFile is a block file and the number of states that list it.
type openFile struct {
	*blockfile.File
	refs    int  // guarded by Store.mu
	dropped bool // guarded by Store.mu: remove the file when refs gets 0

	damage  atomic.Pointer[store.CorruptionError] // the first damage that was found
	spanned atomic.Pointer[partition.Span]        // its partitions, nil until they are asked for
	outgrew bool                                  // a merge of it took more space than estimated; guarded by Store.merging
	ages    ages                                  // when its data is to be folded; guarded by Store.merging

	expiry expiry.Series // guarded by Store.expiry, except for the set of expired series
}

func sortFiles(files []*openFile) {
	slices.SortFunc(files, func(a, b *openFile) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Number, b.Number))
	})
}

// acquire returns the current state, held until release.
func (s *Store) acquire() *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.refs++
	return s.current
}

// release gives a state back. Files that no state lists any more are closed,
// and removed if they were dropped.
func (s *Store) release(st *state) {
	s.mu.Lock()
	idle := s.releaseLocked(st)
	s.mu.Unlock()
	s.retire(idle)
}

// releaseLocked returns the files that no state lists any more. s.mu must be held.
func (s *Store) releaseLocked(st *state) (idle []*openFile) {
	st.refs--
	if st.refs > 0 {
		return nil
	}
	delete(s.held, st)
	for _, f := range st.files {
		f.refs--
		if f.refs == 0 {
			idle = append(idle, f)
		}
	}
	return idle
}

func (s *Store) retire(files []*openFile) {
	for _, f := range files {
		if err := f.Close(); err != nil {
			s.logger.Warn("block file could not be closed", "file", f.Path, "error", err)
		}
		if !f.dropped {
			continue
		}
		if err := s.fs.Remove(f.Path); err != nil {
			s.logger.Warn("block file could not be removed; the next start will remove it", "file", f.Path, "error", err)
		}
	}
}

// publish makes a changed copy of the current state current.
func (s *Store) publish(change func(*state)) {
	s.mu.Lock()
	old := s.current
	next := &state{
		number: old.number + 1,
		active: old.active, frozen: old.frozen, frozenDeletions: old.frozenDeletions,
		files: slices.Clone(old.files),
		refs:  1,
	}
	next.hiding.Store(old.hiding.Load())
	change(next)
	sortFiles(next.files)
	next.buckets = false
	for _, f := range next.files {
		f.refs++
		next.buckets = next.buckets || f.StepMS != 0
	}
	s.layOut(next)
	s.current = next
	s.held[next] = struct{}{}
	idle := s.releaseLocked(old)
	s.mu.Unlock()
	s.retire(idle)
}

// unsaved returns the deletions with sequences from after+1 to last that something in st needs.
func (st *state) unsaved(after, last uint64, all []*record.Deletion) (ds []*record.Deletion) {
	for _, d := range all {
		if d.Sequence > after && d.Sequence <= last && st.needed(d) {
			ds = append(ds, d)
		}
	}
	return ds
}

// needed reports whether d still hides samples of a file or of frozen.
func (st *state) needed(d *record.Deletion) bool {
	if st.frozen != nil && d.Sequence > st.frozenDeletions {
		return true
	}
	return slices.ContainsFunc(st.files, func(f *openFile) bool { return concerns(d, f.File) })
}

// concerns reports whether d may hide samples of f.
func concerns(d *record.Deletion, f *blockfile.File) bool {
	return d.Sequence > f.Deletions && d.Range.Overlaps(f.Range()) && d.IDs.Intersects(f.Series)
}
