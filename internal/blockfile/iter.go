package blockfile

import (
	"slices"

	"varve/internal/chunk"
	"varve/internal/model"
)

// An Iter yields the chunks of one series that overlap a range, in time order
// or against it. It is used by one goroutine, and again for other series by
// Seek, keeping the page it read last.
type Iter struct {
	file   *File
	keep   bool
	series uint32
	within model.TimeRange
	down   bool

	next, last int // pages still to look at: next..last, or last..next downwards

	page   chunk.Page
	pageAt int // number of page, -1 = none

	found []chunk.Entry // of the current page, in the order of delivery
	at    int
}

// Iter makes an iterator over f. With keep, pages go through the cache.
func (f *File) Iter(keep bool) *Iter { return &Iter{file: f, keep: keep, pageAt: -1} }

// File returns what the iterator reads.
func (it *Iter) File() *File { return it.file }

// Seek starts anew at a series and range.
func (it *Iter) Seek(series uint32, within model.TimeRange, down bool) {
	it.series, it.within, it.down = series, within, down
	it.found, it.at = it.found[:0], 0
	lo, hi := it.file.find(series, within)
	it.next, it.last = lo, hi
	if down {
		it.next, it.last = hi, lo
	}
	if lo > hi {
		it.next, it.last = 0, -1
		if down {
			it.next, it.last = -1, 0
		}
	}
}

// Next returns the next chunk, nil at the end. It is valid until the following
// call of Next or Seek.
func (it *Iter) Next() (*chunk.Entry, error) {
	for it.at == len(it.found) {
		if !it.down && it.next > it.last || it.down && it.next < it.last {
			return nil, nil
		}
		if err := it.scan(it.next); err != nil {
			return nil, err
		}
		if it.down {
			it.next--
		} else {
			it.next++
		}
	}
	it.at++
	return &it.found[it.at-1], nil
}

// scan collects the wanted chunks of page i.
func (it *Iter) scan(i int) error {
	if it.pageAt != i {
		p, err := it.file.Page(i, it.keep)
		if err != nil {
			return err
		}
		it.page, it.pageAt = p, i
	}
	it.found, it.at = it.found[:0], 0
	entries := it.page.Iter()
	var e chunk.Entry
	for entries.Next(&e) {
		if e.Series > it.series {
			break
		}
		if e.Series == it.series && e.FirstMS <= it.within.EndMS && e.LastMS >= it.within.StartMS {
			it.found = append(it.found, e)
		}
	}
	if err := entries.Err(); err != nil {
		return it.file.corrupt(int64(it.file.pages[i].offset), "page %d: %v", i, err)
	}
	if it.down {
		slices.Reverse(it.found)
	}
	return nil
}
