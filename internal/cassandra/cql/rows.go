package cql

import (
	"context"
	"strings"
	"sync/atomic"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"varve/internal/work"
)

// Rows are the rows that a statement selects, page by page. They count as a statement in flight
// while a page is fetched, not while it is read. Rows may be used by one goroutine only.
type Rows struct {
	session *Session
	ctx     context.Context
	cancel  context.CancelFunc
	st      *Statement
	level   Level
	args    []any

	page    *gocql.Iter
	pageBuf int // unread rows of the page
	ahead   chan fetched
	state   []byte // paging state of the next page
	more    bool   // there may be a next page
	err     error

	scanned, bytes int // rows of the page that were read, and what they take; only without PageSize
	asked          int // size of the page that was asked for last
}

type fetched struct {
	iter *gocql.Iter
	err  error
}

// Query selects rows. The first page is fetched at the first Scan. The caller must call Close. Bytes in
// args must not change before that, nor afterwards if ctx has ended.
func (s *Session) Query(ctx context.Context, st *Statement, args ...any) *Rows {
	return s.QueryAt(ctx, st.Level, st, args...)
}

// QueryAt is Query at a level other than that of the statement.
func (s *Session) QueryAt(ctx context.Context, level Level, st *Statement, args ...any) *Rows {
	ctx, cancel := context.WithCancel(ctx)
	return &Rows{session: s, ctx: ctx, cancel: cancel, st: st, level: level, args: args, more: true}
}

// Scan reads the next row into dest, one pointer for each column, nil to skip a column. In
// addition to the usual Go types, dest may have a *TagMap, *Raw, *Millis and *UUID; null sets a
// pointer to a pointer to nil. The memory of a non-nil []byte is reused. Scan returns false at
// the end, or after an error, which Close returns.
func (r *Rows) Scan(dest ...any) bool {
	for r.pageBuf == 0 {
		if r.err != nil || !r.more {
			return false
		}
		r.next()
	}
	if r.err != nil {
		return false
	}
	r.pageBuf--
	if r.page.Scan(dest...) {
		if r.st.PageSize == 0 { // not for each of millions of cells
			r.scanned++
			r.bytes += sizeOf(dest)
		}
		return true
	}
	r.err = r.session.told(r.ctx, r.st, r.page.Close(), classRefused, 1)
	r.pageBuf = 0
	return false
}

// next makes the next page the current one.
func (r *Rows) next() {
	var f fetched
	if r.ahead != nil {
		f = <-r.ahead
		r.ahead = nil
	} else {
		f.iter, f.err = r.fetch(r.state, r.pageSize())
	}
	if r.err = f.err; r.err != nil {
		return
	}
	r.page, r.pageBuf, r.state = f.iter, f.iter.NumRows(), f.iter.PageState()
	r.more = len(r.state) > 0
	if r.more && r.st.Prefetch && (r.st.PageSize > 0 || r.scanned > 0) {
		ahead, state, size := make(chan fetched, 1), r.state, r.pageSize()
		fetch := func() {
			var f fetched
			f.err = work.Do("fetch a page", func() (err error) {
				f.iter, err = r.fetch(state, size)
				return err
			})
			ahead <- f
		}
		if r.session.spawn(fetch) { // otherwise the next Scan will fail because the session has ended
			r.ahead = ahead
		}
	}
	r.scanned, r.bytes = 0, 0
}

// Pages of a statement without PageSize. A node holds a page several times until it is sent: a
// few pages of 5000 row keys of 8 KB each end one with a heap of 512 MB. A row key may have 64 KB,
// and many first pages are fetched at the same time.
const (
	firstPage   = 64      // rows of the first page
	firstOfMany = 16      // the same, of statements of which a request executes many at once
	maxPage     = 5000    // rows of each other one
	maxScanPage = 1000    // the same, of scans: a node gives up a page of too many tombstones, which each partition may have
	pageBytes   = 1 << 20 // about
	maxPageGrow = 4       // how many times longer a page is than the one before

	// Pages of rows with RowBytes: short rows in front of long ones do not make a page much longer.
	firstLongPage = 16
	maxLongPage   = 128
)

// pageRoom is how many bytes the pages of rows with RowBytes that are being fetched from a node may have
// together, if each row is as long as it may be: 12 queries that read 40 series of texts of 64 KB, in pages
// of 64, filled the heap of a node with 512 MB. Reads of other rows do not wait for that room.
const pageRoom = 16 << 20

// pageSize returns the rows of the page to fetch next, by those of the last page that was read:
// short rows say nothing about long ones after them.
func (r *Rows) pageSize() int {
	first, most := firstPage, maxPage
	switch {
	case r.st.RowBytes > 0:
		first, most = firstLongPage, maxLongPage
	case r.st.Many:
		first = firstOfMany
	case r.st.Scan:
		most = maxScanPage
	}
	// A node that is asked for a page at least as long as the limit of a statement ignores where the
	// page is to begin (SelectStatement.execute, Cassandra 4.1 and 5.0). Only the first page may be
	// that long: it has everything.
	if strings.HasSuffix(r.st.Text, "LIMIT ?") {
		if limit, ok := r.args[len(r.args)-1].(int); ok {
			most = min(most, limit-1)
		} else {
			most = first
		}
	}
	switch {
	case r.st.PageSize > 0:
		r.asked = r.st.PageSize
	case r.scanned == 0:
		r.asked = first
	default:
		rows := pageBytes / (r.bytes/r.scanned + 1)
		r.asked = max(1, min(rows, most, maxPageGrow*r.asked))
	}
	return r.asked
}

func (r *Rows) fetch(state []byte, size int) (*gocql.Iter, error) {
	s, st := r.session, r.st
	// Pages of later attempts, which begin at the same row, are dropped.
	var page atomic.Pointer[gocql.Iter]
	if err := checkTexts(r.args); err != nil {
		return nil, err
	}
	err := s.do(r.ctx, call{st: st, kind: reads, size: sizeOf(r.args), room: size * st.RowBytes, hedged: !st.Scan, lasting: true, run: func(ctx context.Context, d *gocql.Session) error {
		q := d.Query(s.text(st), r.args...).Consistency(s.levels[reads][r.level]).Idempotent(true).DefaultTimestamp(false)
		if st.KeyArgs > 0 { // the driver itself does not find the keys of a list
			q = q.RoutingKey(partitionKey(r.args[:st.KeyArgs]))
		}
		it := q.PageSize(size).PageState(state).IterContext(ctx)
		if it.NumRows() == 0 {
			if err := it.Close(); err != nil {
				return err
			}
		}
		page.CompareAndSwap(nil, it)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	iter := page.Load()
	s.metrics.rows.WithLabelValues(st.Name).Add(float64(iter.NumRows()))
	s.metrics.warnings.Add(float64(len(iter.Warnings())))
	return iter, nil
}

// Close ends the reading, and returns the error of Scan, if any. It may be called more than
// once.
func (r *Rows) Close() error {
	r.cancel()
	r.more, r.pageBuf = false, 0
	return r.err
}

// One reads at most one row; false means that there is none.
func (s *Session) One(ctx context.Context, st *Statement, args []any, dest ...any) (bool, error) {
	rows := s.Query(ctx, st, args...)
	ok := rows.Scan(dest...)
	return ok, rows.Close()
}
