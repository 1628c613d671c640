package retention

import (
	"sync/atomic"
	"time"
)

// ChangeHold is how long after a change of the rules stored data stays as it is, unless somebody
// asks for a compaction. Queries follow the new rules at once, so a mistake shows, and can be
// undone, before anything is lost.
const ChangeHold = time.Hour

// A Shelf holds the book in force. The book may be replaced while others read it.
type Shelf struct{ book atomic.Pointer[Book] }

// NewShelf returns a shelf that holds a book.
func NewShelf(b *Book) *Shelf {
	s := &Shelf{}
	s.Put(b)
	return s
}

// Book returns the book in force. The caller must not change it.
func (s *Shelf) Book() *Book { return s.book.Load() }

// Put replaces the book.
func (s *Shelf) Put(b *Book) { s.book.Store(b) }
