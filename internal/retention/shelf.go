package retention

import "sync/atomic"

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
