package catalogue

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
)

// Leaving are the series that are forgotten in memory, but not yet in the
// catalogue. After a crash they exist again, with every sample that a file has. So until the
// next checkpoint has committed their removal, files keep samples that hide older ones of
// these series, for example expired samples. It is safe for concurrent use.
type Leaving struct {
	mu     sync.Mutex
	byKind [model.Custom + 1]roaring.Bitmap
}

// Add records that a series with samples of a kind is forgotten in memory.
func (l *Leaving) Add(id model.SeriesNumber, kind model.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byKind[kind].Add(uint32(id))
}

// Committed records that the catalogue has removed the series.
func (l *Leaving) Committed(gone *roaring.Bitmap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range l.byKind {
		l.byKind[kind].AndNot(gone)
	}
}

// Kind returns the kind of a series, 0 if it is not one that is leaving.
func (l *Leaving) Kind(id model.SeriesNumber) model.Kind {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind := range l.byKind {
		if l.byKind[kind].Contains(uint32(id)) {
			return model.Kind(kind)
		}
	}
	return 0
}
