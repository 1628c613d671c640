package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/chunk"
	"varve/internal/model"
	"varve/internal/rowtime"
	"varve/internal/store"
)

// A Form says how to decode the cells of a row.
type Form uint8

const (
	// Typed rows have values of one type, which is in their key.
	Typed Form = iota

	// LegacyLong and LegacyDouble are the two halves of a row that was written before KairosDB
	// 0.9.4: its key has no type, and bit 0 of each column says whether the value is a long or
	// a double.
	LegacyLong
	LegacyDouble
)

// A Row is a row with samples of a series.
type Row struct {
	TimeMS int64 // row time
	Form   Form
}

// blockSamples is the maximum number of samples in a block of a RowCursor.
const blockSamples = chunk.TargetSamples

// fixedPage is the page size of rows with values of a fixed size, near 100 KB.
const fixedPage = 5000

// blockBytes bounds the texts of a block, which has at least one: a query reads many series ahead.
const blockBytes = 256 << 10

// sliceStatements read a slice of one row: ascending or descending, with or without a limit,
// with or without the time-to-live and write time that the chunk cache needs.
var sliceStatements = newSliceStatements()

type sliceForm struct {
	descending, limited, keep, variable bool
}

func newSliceStatements() map[sliceForm]*cql.Statement {
	statements := map[sliceForm]*cql.Statement{}
	for bits := range 16 {
		f := sliceForm{descending: bits&1 > 0, limited: bits&2 > 0, keep: bits&4 > 0, variable: bits&8 > 0}
		statements[f] = newSliceStatement(f)
	}
	return statements
}

func newSliceStatement(f sliceForm) *cql.Statement {
	text := "SELECT column1, value"
	if f.keep {
		text += ", TTL(value), WRITETIME(value)"
	}
	text += " FROM data_points WHERE key = ? AND column1 >= ? AND column1 <= ?"
	if f.descending {
		text += " ORDER BY column1 DESC"
	}
	if f.limited {
		text += " LIMIT ?"
	}
	st := &cql.Statement{Name: "read_row", Text: text, PageSize: fixedPage, Prefetch: !f.limited}
	if f.variable {
		st.PageSize, st.RowBytes = 0, rowtime.MaxStringBytes
	}
	return st
}

// A slice is a range of cells of a row.
type slice struct {
	from, to uint32          // columns, both inclusive
	within   model.TimeRange // range of decoded times
	empty    bool
}

// sliceOf returns the slice of a row for samples of range r. It begins where KairosDB's does, as
// recorded answers require: see [rowtime.Spec.FirstShown].
func sliceOf(spec rowtime.Spec, row Row, r model.TimeRange) slice {
	from, toExcl := spec.Slice(row.TimeMS, r)
	if from == 0 && toExcl == 0 {
		return slice{empty: true}
	}
	s := slice{from: from, to: toExcl - 1, within: r}
	if row.Form != Typed {
		s.to |= 1 // the double at the last millisecond
	}
	s.within.StartMS = spec.FirstShown(row.TimeMS, r.StartMS)
	return s
}

// A RowCursor yields the samples of one row in blocks, in the requested order. It may be used
// by one goroutine only.
type RowCursor struct {
	look   *Look
	ctx    context.Context
	kind   model.Kind
	series model.Series
	row    Row
	o      store.ReadOptions
	slice  slice
	left   int // remaining samples if o.Limit > 0
	opened bool
	err    error

	rows    *cql.Rows // nil if cached has the whole slice, or at the end
	column  cql.Raw
	value   cql.Raw
	ttl     *int32
	wrote   int64
	dest    []any
	keep    *chunkRecorder // not nil while the slice is recorded for the cache
	entries []chunk.Entry  // of the chunk cache, in reading order
	decoder chunk.Decoder

	cols  model.Columns
	stats [1]model.Stats
	block store.Block
}

// ReadRow opens a cursor over one row of s. o.Limit bounds the samples of this
// row.
func (l *Look) ReadRow(ctx context.Context, s model.Series, row Row, o store.ReadOptions) *RowCursor {
	return &RowCursor{look: l, ctx: ctx, kind: s.Type.Kind(), series: s, row: row, o: o, left: o.Limit}
}

// Next returns the next block, nil at the end. The block is overwritten by the
// following call.
func (c *RowCursor) Next() (*store.Block, error) {
	if c.err != nil {
		return nil, c.err
	}
	b, err := c.advance()
	if err != nil {
		c.Close()
		c.err = fmt.Errorf("read row %d of %s: %w", c.row.TimeMS, c.series, err)
		return nil, c.err
	}
	if b == nil {
		c.Close()
	}
	return b, nil
}

func (c *RowCursor) advance() (*store.Block, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	if !c.opened {
		c.opened = true
		if err := c.open(); err != nil {
			return nil, err
		}
	}
	if c.o.Limit > 0 && c.left == 0 {
		return nil, nil
	}
	if c.rows == nil {
		return c.fromCache()
	}
	c.cols.Reset()
	if err := c.fill(); err != nil {
		return nil, err
	}
	return c.handOut(), nil
}

// handOut returns cols as a block, nil if there are none.
func (c *RowCursor) handOut() *store.Block {
	if c.cols.Len() == 0 {
		return nil
	}
	c.left -= c.cols.Len()
	c.block = store.Block{Columns: c.cols}
	c.block.TTLs = nil
	return &c.block
}

// open finds the slice in the cache or begins to read it.
func (c *RowCursor) open() error {
	reader := c.look.reader
	if c.slice = sliceOf(c.look.reader.ks.Spec, c.row, c.o.Range); c.slice.empty {
		return nil
	}
	if c.look.now || c.o.Exact {
		c.slice.within = c.o.Range
	}
	key, err := rowKeyBytes(c.series, c.row)
	if err != nil {
		return err
	}
	if age := c.chunkAge(); age > 0 {
		if e := reader.chunks.get(key, c.row.Form, c.slice, age); e != nil {
			c.look.trace[countCachedSlices].Add(1)
			c.entries = e.in(c.slice.within, c.o.Descending)
			return nil
		}
		if !c.o.Descending && c.o.Limit == 0 && !c.o.Exact {
			c.keep = reader.chunks.record(key, c.row.Form, c.slice)
		}
	}
	c.query(key)
	return nil
}

// chunkAge is how old a copy of the row may be, 0 if the row must be read.
func (c *RowCursor) chunkAge() time.Duration {
	if !c.look.reader.finished(c.row) {
		return 0
	}
	return c.look.chunkAge(c.ctx)
}

func (c *RowCursor) query(key []byte) {
	form := sliceForm{descending: c.o.Descending, limited: c.o.Limit > 0, keep: c.keep != nil, variable: c.kind.Variable()}
	args := []any{key, rowtime.ColumnBytes(c.slice.from), rowtime.ColumnBytes(c.slice.to)}
	if form.limited {
		args = append(args, c.limit())
	}
	c.dest = []any{&c.column, &c.value}
	if form.keep {
		c.dest = append(c.dest, &c.ttl, &c.wrote)
	}
	c.look.trace[countSlices].Add(1)
	c.rows = c.look.reader.ks.Session.QueryAt(c.ctx, c.look.level, sliceStatements[form], args...)
}

// limit is how many cells to request for the wanted number of samples. It is unlimited for
// slices that may also have unwanted cells.
func (c *RowCursor) limit() int {
	n := c.o.Limit
	if c.row.Form != Typed || c.look.reader.ks.Spec.Unit == rowtime.Seconds {
		return 1<<31 - 1 // the cursor stops reading pages once there are enough
	}
	return min(n, 1<<31-1)
}

// rowKeyBytes returns the key of a row in data_points.
func rowKeyBytes(s model.Series, row Row) ([]byte, error) {
	k := rowtime.Key{Metric: s.Metric, RowTimeMS: row.TimeMS, Type: s.Type, Tags: s.Tags}
	if row.Form != Typed {
		k.Type = rowtime.TypeLegacy
	}
	return k.Append(nil)
}

// fill reads cells into cols until a block is full or the row ends.
func (c *RowCursor) fill() error {
	wanted := blockSamples
	if c.o.Limit > 0 {
		wanted = min(wanted, c.left)
	}
	cells, bytes := 0, 0
	defer func() {
		c.look.trace[countCells].Add(int64(cells))
		c.look.trace[countCellBytes].Add(int64(bytes))
	}()
	for c.cols.Len() < wanted && len(c.cols.Data) < blockBytes {
		if !c.rows.Scan(c.dest...) {
			if err := c.rows.Close(); err != nil {
				return err
			}
			return c.ended()
		}
		cells++
		bytes += len(c.column) + len(c.value)
		if err := c.add(); err != nil {
			return err
		}
	}
	if c.keep != nil {
		c.keep.add(c.kind, &c.cols)
	}
	return nil
}

// ended finishes the row after its last cell.
func (c *RowCursor) ended() error {
	if c.keep == nil {
		return nil
	}
	c.keep.add(c.kind, &c.cols)
	err := c.keep.finish()
	c.keep = nil
	return err
}

// add decodes a cell, and appends it if it is wanted.
func (c *RowCursor) add() error {
	column, err := rowtime.ParseColumn(c.column)
	if err != nil {
		return c.damaged(err)
	}
	ms := c.look.reader.ks.Spec.Time(c.row.TimeMS, column)
	if !c.slice.within.Contains(ms) {
		return nil
	}
	if c.keep != nil {
		c.keep.cell(c.ttl, c.wrote)
	}
	if c.row.Form != Typed {
		return c.addLegacy(ms, column&1 == 1)
	}
	bits, data, err := rowtime.DecodeValue(c.kind, c.value)
	if err != nil {
		return c.damaged(err)
	}
	switch {
	case c.kind.Fixed():
		c.cols.AppendFixed(ms, bits, 0)
	case c.kind.Variable():
		c.cols.AppendBytes(ms, data, 0)
	default:
		c.cols.AppendNull(ms, 0)
	}
	return nil
}

func (c *RowCursor) addLegacy(ms int64, floating bool) error {
	if floating != (c.row.Form == LegacyDouble) {
		return nil
	}
	_, bits, err := rowtime.DecodeLegacyValue(floating, c.value)
	if err != nil {
		return c.damaged(err)
	}
	c.cols.AppendFixed(ms, bits, 0)
	return nil
}

func (c *RowCursor) damaged(err error) error {
	return &store.CorruptionError{File: "table data_points, column " + fmt.Sprintf("%x", []byte(c.column)), Reason: err.Error()}
}

// fromCache returns the next block of what the chunk cache has.
func (c *RowCursor) fromCache() (*store.Block, error) {
	for len(c.entries) > 0 {
		e := &c.entries[0]
		c.entries = c.entries[1:]
		if c.summarizes(e) {
			c.stats[0] = e.Stats
			c.block = store.Block{Stats: c.stats[:]}
			return &c.block, nil
		}
		c.cols.Reset()
		if err := c.decoder.DecodeEntry(e, &c.cols); err != nil {
			return nil, err
		}
		if c.clip(); c.cols.Len() > 0 {
			return c.handOut(), nil
		}
	}
	return nil, nil
}

// summarizes reports whether a chunk can be answered by its statistics.
func (c *RowCursor) summarizes(e *chunk.Entry) bool {
	w := c.slice.within
	return c.o.Summarize != nil && c.o.Limit == 0 && e.HasStats &&
		w.StartMS <= e.FirstMS && e.LastMS <= w.EndMS && e.LastMS <= c.o.Summarize.Final(e.FirstMS)
}

// clip reduces a decoded chunk to the wanted samples, in the wanted order.
func (c *RowCursor) clip() {
	lo, hi := c.cols.Within(c.slice.within)
	if c.o.Limit > 0 && hi-lo > c.left {
		if c.o.Descending {
			lo = hi - c.left
		} else {
			hi = lo + c.left
		}
	}
	if lo == 0 && hi == c.cols.Len() && !c.o.Descending {
		return
	}
	var part, spare model.Columns
	part.Append(&c.cols, lo, hi)
	if c.o.Descending {
		part.Reverse(&spare)
	}
	c.cols = part
}

// Close releases the cursor. It may be called at any time.
func (c *RowCursor) Close() {
	if c.rows != nil {
		_ = c.rows.Close() // Next has returned the error
	}
	if c.keep != nil {
		c.keep.drop()
		c.keep = nil
	}
	c.entries, c.opened, c.slice.empty = nil, true, true
	if c.err == nil {
		c.rows = nil
	}
}

// sortRows sorts rows by time, and removes duplicates. Of rows with the same time, the typed one is the last, since
// it is newer.
func sortRows(rows []Row) []Row {
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Or(cmp.Compare(a.TimeMS, b.TimeMS), cmp.Compare(b.Form, a.Form)) })
	return slices.Compact(rows)
}
