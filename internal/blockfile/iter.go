package blockfile

import (
	"slices"

	"varve/internal/chunk"
	"varve/internal/model"
)

// An Iter yields the chunks of one series that overlap a range, in ascending or
// descending time. One goroutine uses it. Seek moves it to another series, and it keeps
// the page it read last.
type Iter struct {
	file   *File
	keep   bool
	series model.SeriesNumber
	within model.TimeRange
	down   bool

	next, last int // pages still to read: next..last, or last..next downwards

	page    chunk.Page
	index   *chunk.Index // of page, or nil
	pageAt  int          // number of page, -1 = none
	entries chunk.Iter
	ahead   chunk.Entry // the page's next chunk to examine, if more
	more    bool
	passed  int64 // series of the chunk before ahead, -1 = none

	found []chunk.Entry // of the current page, in the order of delivery
	at    int
	err   error // ends everything until the next Seek
}

// Iter makes an iterator over f. With keep, pages are cached.
func (f *File) Iter(keep bool) *Iter { return &Iter{file: f, keep: keep, pageAt: -1} }

// File returns the file of the iterator.
func (it *Iter) File() *File { return it.file }

// Corrupt makes the error for the chunk that Next returned last, when it cannot
// be decoded.
func (it *Iter) Corrupt(err error) error {
	return it.file.corrupt(int64(it.file.pages[it.pageAt].offset), "page %d, series %d: %v", it.pageAt, it.series, err)
}

// Seek makes the iterator yield the chunks of another series and range.
func (it *Iter) Seek(series model.SeriesNumber, within model.TimeRange, down bool) {
	it.series, it.within, it.down = series, within, down
	it.found, it.at, it.err = it.found[:0], 0, nil
	lo, hi := 0, -1
	if within.StartMS <= within.EndMS {
		lo, hi = it.file.find(series, within)
	}
	it.next, it.last = lo, hi
	if down {
		it.next, it.last = hi, lo
	}
}

// Next returns the next chunk, nil at the end. It is valid until the following
// call of Next or Seek. After an error it returns that error until Seek.
func (it *Iter) Next() (*chunk.Entry, error) {
	for it.err == nil && it.at == len(it.found) {
		if !it.down && it.next > it.last || it.down && it.next < it.last {
			return nil, nil
		}
		it.err = it.scan(it.next)
		if it.down {
			it.next--
		} else {
			it.next++
		}
	}
	if it.err != nil {
		return nil, it.err
	}
	it.at++
	return &it.found[it.at-1], nil
}

// scan collects the wanted chunks of page i. If series are requested in ascending
// order, as by a merge, each page is scanned once.
func (it *Iter) scan(i int) error {
	if err := it.rewind(i); err != nil {
		return err
	}
	it.found, it.at = it.found[:0], 0
	it.entries.Want(it.series)
	for ; it.more && it.ahead.Series <= it.series; it.step() {
		e := &it.ahead
		if e.Series == it.series && e.FirstMS <= it.within.EndMS && e.LastMS >= it.within.StartMS {
			it.found = append(it.found, *e)
		}
	}
	if err := it.entries.Err(); err != nil {
		return it.file.corrupt(int64(it.file.pages[i].offset), "page %d: %v", i, err)
	}
	if it.down {
		slices.Reverse(it.found)
	}
	return nil
}

// rewind makes page i current, with ahead at or before the series' first chunk.
func (it *Iter) rewind(i int) error {
	if it.pageAt == i && it.passed < int64(it.series) {
		if it.more && it.ahead.Series < it.series {
			it.jump()
		}
		return nil
	}
	if it.pageAt != i {
		if err := it.open(i); err != nil {
			return err
		}
	}
	it.entries, it.passed, it.more = it.page.Iter(), -1, false
	it.entries.Want(it.series)
	if !it.jump() {
		it.step()
	}
	return nil
}

// open reads page i. After an error, the previous page stays current.
func (it *Iter) open(i int) error {
	var (
		page  chunk.Page
		index *chunk.Index
		err   error
	)
	if it.keep {
		page, index, err = it.file.indexedPage(i)
	} else {
		page, err = it.file.Page(i)
	}
	if err != nil {
		return err
	}
	it.page, it.index, it.pageAt = page, index, i
	return nil
}

// jump uses the index to move ahead to a chunk at or before the series' first one. It
// never moves back, and reports whether it moved.
func (it *Iter) jump() bool {
	if it.index == nil || !it.entries.Seek(it.index, it.series) {
		return false
	}
	it.more = false // the chunk that was ahead is skipped
	it.step()
	it.passed = int64(it.ahead.Series) - 1
	return true
}

// step moves ahead to the next chunk of the page.
func (it *Iter) step() {
	if it.more {
		it.passed = int64(it.ahead.Series)
	}
	it.more = it.entries.Next(&it.ahead)
}
