package agg

import (
	"slices"
	"unsafe"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// smallBlock is the number of samples up to which a first block is copied out of its
// cursor, so that the cursor can be closed if no block follows. With one sample per
// series, a group of 100,000 series then takes a few MiB instead of 100,000 open
// cursors.
const smallBlock = 256

// sourceBytes is the memory of a source and a cursor without its block.
const sourceBytes = 1024

// A source is one series of a merged group, positioned at a sample.
type source struct {
	kind   model.Kind
	order  int32
	cursor query.Cursor
	block  *store.Block
	own    store.Block  // copy of a small first block
	after  *store.Block // the block after own, already read
	i      int

	lease   *query.Lease
	charged int64 // bytes that were charged for the largest block so far
}

// open positions a source at its first sample; it returns nil if there is none.
func (r *Run) open(s store.Series, o store.ReadOptions, order int32, l *query.Lease) (*source, error) {
	src := &source{kind: s.Type.Kind(), order: order, cursor: r.Open(s, o), lease: l}
	err := src.begin(o.Limit)
	if err != nil || src.block == nil {
		src.cursor.Close()
		return nil, err
	}
	return src, nil
}

func (s *source) begin(limit int) error {
	block, err := s.cursor.Next()
	if err != nil || block == nil {
		return err
	}
	n := block.Len()
	if err := s.lease.Take(sourceBytes); err != nil {
		return err
	}
	if err := s.charge(block); err != nil {
		return err
	}
	s.block = block
	if n > smallBlock {
		return nil
	}
	s.own.Columns, s.own.Aggregates = copyColumns(&block.Columns), slices.Clone(block.Aggregates)
	s.block = &s.own
	if limit > 0 && n >= limit {
		s.cursor.Close()
		return nil
	}
	if s.after, err = s.cursor.Next(); err != nil {
		return err
	}
	if s.after != nil {
		s.charged = 0 // own stays in memory as well
		return s.charge(s.after)
	}
	s.cursor.Close()
	return nil
}

// charge charges the memory of a block, as far as it exceeds that of earlier ones: a
// cursor has one block at a time.
func (s *source) charge(b *store.Block) error {
	bytes := int64(b.Len())*16 + int64(len(b.Data)) + aggregatesBytes(b.Aggregates)
	if bytes <= s.charged {
		return nil
	}
	if err := s.lease.Take(bytes - s.charged); err != nil {
		return err
	}
	s.charged = bytes
	return nil
}

// aggregatesBytes is the memory of aggregates.
func aggregatesBytes(all []model.Aggregate) int64 {
	n := int64(len(all)) * int64(unsafe.Sizeof(model.Aggregate{}))
	for i := range all {
		n += int64(len(all[i].Sketch))
	}
	return n
}

func copyColumns(c *model.Columns) model.Columns {
	var copied model.Columns
	copied.Append(c, 0, c.Len())
	return copied
}

// next moves to the next sample.
func (s *source) next() (bool, error) {
	if s.i++; s.i < len(s.block.Times) {
		return true, nil
	}
	return s.nextBlock()
}

// nextBlock moves to the first sample of the next block.
func (s *source) nextBlock() (bool, error) {
	s.i = 0
	if s.after != nil {
		s.block, s.after = s.after, nil
		return true, nil
	}
	block, err := s.cursor.Next()
	if err != nil || block == nil {
		s.cursor.Close()
		return false, err
	}
	s.block = block
	return true, s.charge(block)
}

// point fills p with the current sample.
func (s *source) point(p *Point) {
	*p = Point{TimeMS: s.block.Times[s.i], Kind: s.kind, order: s.order}
	switch {
	case s.kind.Fixed():
		p.Bits = s.block.Values[s.i]
		if s.block.Aggregates != nil && s.block.Aggregates[s.i].Count > 0 {
			p.Whole = &s.block.Aggregates[s.i]
		}
	case s.kind.Variable():
		p.Data = s.block.Bytes(s.i)
	}
}

// A lone source is a stream of its own.
type loneStream struct {
	*source
	begun bool
}

func (s *loneStream) Next(p *Point) (bool, error) {
	if s.begun {
		if ok, err := s.next(); !ok || err != nil {
			return false, err
		}
	}
	s.begun = true
	s.point(p)
	return true, nil
}

func (s *loneStream) NextBlock() (*model.Columns, model.Kind, error) {
	if s.begun {
		if ok, err := s.nextBlock(); !ok || err != nil {
			return nil, s.kind, err
		}
	}
	s.begun = true
	return &s.block.Columns, s.kind, nil
}

// value orders samples of equal times.
func (s *source) value() float64 {
	if s.kind.Fixed() {
		return model.Float(s.kind, s.block.Values[s.i])
	}
	return 0
}

// drain counts the remaining samples, which sample_size includes.
func (s *source) drain() error {
	for {
		block, err := s.cursor.Next()
		if err != nil || block == nil {
			s.cursor.Close()
			return err
		}
	}
}
