package events

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"varve/internal/cassandra/cql"
	"varve/internal/timeline"
	"varve/internal/work"
)

// The directory of a timeline is divided into blocks of ten days, so that no partition has more
// than 86,400 buckets. The blocks with buckets are listed in a partition of their own, as if
// they were buckets of the block allBlocks.
const (
	blockMicros = 10 * 86400 * 1_000_000
	allBlocks   = math.MinInt64
)

const (
	starts     = "SELECT start FROM timeline_buckets WHERE timeline = ? AND block = ? AND start >= ? AND start < ?"
	startsPage = 2000
)

var (
	putMark    = write("put_mark", "INSERT INTO timeline_buckets (timeline, block, start) VALUES (?, ?, ?)"+forEver)
	deleteMark = write("delete_mark", "DELETE FROM timeline_buckets"+hiding+" WHERE timeline = ? AND block = ? AND start = ?")
	marksDown  = read("read_marks", startsPage, starts+" LIMIT ?")
	marksUp    = read("read_marks", startsPage, starts+" ORDER BY start ASC LIMIT ?")
)

func blockOf(start int64) int64 {
	r := start % blockMicros
	if r < 0 {
		r += blockMicros
	}
	return start - r
}

// byBlock groups starts by block.
func byBlock(starts []int64) map[int64][]int64 {
	blocks := map[int64][]int64{}
	for _, start := range starts {
		blocks[blockOf(start)] = append(blocks[blockOf(start)], start)
	}
	return blocks
}

// Mark implements timeline.Shelf. It also writes the list of blocks.
func (s *Shelf) Mark(ctx context.Context, timeline string, starts []int64, now time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	blocks := byBlock(starts)
	blocks[allBlocks] = slices.Collect(maps.Keys(blocks))
	var batches [][]cql.Entry
	for block, starts := range blocks {
		batches = append(batches, markBatches(putMark, []any{timeline, block}, starts)...)
	}
	return s.writeAll(ctx, now.UnixMicro(), batches)
}

// markBatches returns batches of statements for starts of one block.
func markBatches(st *cql.Statement, first []any, starts []int64) (batches [][]cql.Entry) {
	for some := range slices.Chunk(starts, batchRows) {
		var b []cql.Entry
		for _, start := range some {
			b = append(b, cql.Entry{Statement: st, Args: append(slices.Clip(first), start)})
		}
		batches = append(batches, b)
	}
	return batches
}

func (s *Shelf) writeAll(ctx context.Context, stamp int64, batches [][]cql.Entry) error {
	return work.Parallel(ctx, writesAtOnce, len(batches), "write to the tables of timelines", func(ctx context.Context, i int) error {
		return s.session.Batch(ctx, stamp, batches[i])
	})
}

// Unmark implements timeline.Shelf. It also removes blocks without buckets, unless they were
// marked since.
func (s *Shelf) Unmark(ctx context.Context, name string, starts []int64, before time.Time) error {
	if err := s.check(); err != nil {
		return err
	}
	hide := before.UnixMicro() - 1
	var batches [][]cql.Entry
	blocks := byBlock(starts)
	for block, starts := range blocks {
		batches = append(batches, markBatches(deleteMark, []any{hide, name, block}, starts)...)
	}
	if err := s.writeAll(ctx, 0, batches); err != nil {
		return err
	}
	for block := range blocks {
		left, err := s.startsOf(ctx, name, block, math.MinInt64, math.MaxInt64, timeline.Descending, 1)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			continue
		}
		if err := s.session.Exec(ctx, deleteMark, 0, hide, name, int64(allBlocks), block); err != nil {
			return err
		}
	}
	return nil
}

// blocksAtOnce is the maximum number of blocks that are read in parallel.
const blocksAtOnce = 8

// Marks implements timeline.Shelf. It reads the block that is probably the first one at the
// same time as the list of blocks. Of the others it first reads one, and then more and more in
// parallel.
func (s *Shelf) Marks(ctx context.Context, name string, from, toExcl int64, d timeline.Direction, limit int) ([]int64, error) {
	if err := s.check(); err != nil || from >= toExcl {
		return nil, err
	}
	m := &marks{shelf: s, name: name, from: from, toExcl: toExcl, direction: d, limit: limit}
	blocks := s.session.Query(ctx, inOrder(d), name, int64(allBlocks), blockOf(from), toExcl, int32(math.MaxInt32))
	defer blocks.Close()
	var wave []int64
	likely, guessed := m.likely()
	begin := func(ctx context.Context, i int) (err error) {
		if i == 0 {
			wave, err = nextBlocks(blocks, 1)
		} else if guessed {
			m.ahead, err = m.block(ctx, likely)
		}
		return err
	}
	if err := work.Parallel(ctx, 2, 2, "read the directory of a timeline", begin); err != nil {
		return nil, err
	}
	for n := 1; len(wave) > 0; n = min(2*n, blocksAtOnce) {
		known := m.ahead != nil && wave[0] == likely
		found, err := m.read(ctx, wave, known)
		if err != nil || len(found) == limit {
			return found, err
		}
		if wave, err = nextBlocks(blocks, n); err != nil {
			return nil, err
		}
	}
	return m.found, nil
}

// nextBlocks reads the next n entries of the list of blocks.
func nextBlocks(rows *cql.Rows, n int) (blocks []int64, err error) {
	var block int64
	for len(blocks) < n {
		if !rows.Scan(&block) {
			return blocks, rows.Close()
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// marks is one call of Marks.
type marks struct {
	shelf        *Shelf
	name         string
	from, toExcl int64
	direction    timeline.Direction
	limit        int

	ahead []int64 // starts of the block that is probably the first one
	found []int64
}

// likely returns the block that is probably the first one that has buckets: that of the
// present, or where the range begins.
func (m *marks) likely() (block int64, ok bool) {
	if m.direction == timeline.Ascending {
		return blockOf(m.from), m.from > timeline.MinTime
	}
	block = blockOf(min(m.toExcl-1, m.shelf.now().UnixMicro()))
	return block, block >= blockOf(m.from)
}

func (m *marks) block(ctx context.Context, block int64) ([]int64, error) {
	return m.shelf.startsOf(ctx, m.name, block, m.from, m.toExcl, m.direction, m.limit)
}

// read reads blocks in parallel, unless enough starts were found already, and returns the
// starts found so far, up to the limit. If known is set, the first block was read ahead.
func (m *marks) read(ctx context.Context, wave []int64, known bool) ([]int64, error) {
	if known {
		m.found = append(m.found, m.ahead...)
		wave = wave[1:]
	}
	if len(m.found) < m.limit {
		starts := make([][]int64, len(wave))
		err := work.Parallel(ctx, blocksAtOnce, len(wave), "read the directory of a timeline", func(ctx context.Context, i int) (err error) {
			starts[i], err = m.block(ctx, wave[i])
			return err
		})
		if err != nil {
			return nil, err
		}
		m.found = append(m.found, slices.Concat(starts...)...)
	}
	return m.found[:min(len(m.found), m.limit)], nil
}

func inOrder(d timeline.Direction) *cql.Statement {
	if d == timeline.Ascending {
		return marksUp
	}
	return marksDown
}

// startsOf reads a block.
func (s *Shelf) startsOf(ctx context.Context, name string, block, from, toExcl int64, d timeline.Direction, limit int) ([]int64, error) {
	rows := s.session.Query(ctx, inOrder(d), name, block, from, toExcl, int32(min(limit, math.MaxInt32)))
	var all []int64
	var start int64
	for rows.Scan(&start) {
		all = append(all, start)
	}
	return all, rows.Close()
}
