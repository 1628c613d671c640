package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"varve/internal/store"
)

// noteDamage remembers the file of st whose damage err reports. From then on merges leave that
// file alone, and Damaged reports it. noteDamage returns whether err is about damage to one of
// the files.
func (s *Store) noteDamage(st *state, err error) bool {
	damage, ok := errors.AsType[*store.CorruptionError](err)
	if !ok {
		return false
	}
	s.metrics.damagedReads.Inc()
	for _, f := range st.files {
		if f.Path != damage.File {
			continue
		}
		if f.damage.CompareAndSwap(nil, damage) {
			s.logger.Error("a block file is damaged; merges skip it, and queries that need the damaged part fail; varve check reports the loss, varve repair moves the file to quarantine",
				"file", f.Path, "offset", damage.Offset, "reason", damage.Reason)
		}
		return true
	}
	return false
}

// Damaged returns nil as long as no damage was found in a block file, and otherwise
// the first damage that was found in the oldest damaged file. It does not search for
// damage: Check does.
func (s *Store) Damaged() error {
	st := s.acquire()
	defer s.release(st)
	if n, first := st.damaged(); n > 0 {
		return fmt.Errorf("%d of %d block files are damaged, run varve check: %w", n, len(st.files), first)
	}
	return nil
}

// damaged counts the files in which damage was found, and returns the first damage found in the
// oldest of them.
func (st *state) damaged() (n int, first *store.CorruptionError) {
	for _, f := range st.files {
		if d := f.damage.Load(); d != nil {
			n++
			first = cmp.Or(first, d)
		}
	}
	return n, first
}

func anyDamaged(files []*openFile) bool {
	return slices.ContainsFunc(files, func(f *openFile) bool { return f.damage.Load() != nil })
}
