package embedded

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
)

// leaving are the series that are forgotten in memory, but not yet in the
// catalogue. After a crash they are there again, with every sample that a file
// has. So until the next checkpoint has committed their removal, files keep what
// hides older samples of them: an expired sample, for example.
type leaving struct {
	mu     sync.Mutex
	byKind [model.Custom + 1]roaring.Bitmap
}

func (l *leaving) add(id model.SeriesNumber, kind model.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byKind[kind].Add(uint32(id))
}

// committed says that the catalogue has removed the series.
func (l *leaving) committed(ids []model.SeriesNumber) {
	gone := setOf(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range l.byKind {
		l.byKind[kind].AndNot(gone)
	}
}

// kind returns the kind of a series, 0 if it is not one that is leaving.
func (l *leaving) kind(id model.SeriesNumber) model.Kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range l.byKind {
		if l.byKind[kind].Contains(uint32(id)) {
			return model.Kind(kind)
		}
	}
	return 0
}

// kindInFiles returns the kind of a series that files may have samples of. It is 0
// for series that the catalogue has removed: nothing that files have of them will
// ever be valid.
func (s *Store) kindInFiles(id model.SeriesNumber) model.Kind {
	if kind := s.series.Kind(id); kind != 0 {
		return kind
	}
	return s.leaving.kind(id)
}
