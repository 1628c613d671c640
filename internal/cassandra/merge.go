package cassandra

import (
	"varve/internal/model"
	"varve/internal/store"
)

// A mergedSource merges the samples of one series from several inputs: the spool and the rows, or
// several keyspaces. Of samples with the same time, that of the first input wins. If that one has
// expired, none is returned.
type mergedSource struct {
	kind       model.Kind
	descending bool
	nowMS      int64
	inputs     []*input // inputs that may have more samples

	gather model.Columns
	out    store.Block
}

// An input is a source and its present block.
type input struct {
	source store.Cursor
	block  *store.Block
	next   int // next sample of block
}

func (in *input) time() int64 { return in.block.Times[in.next] }

// fill makes sure that the block has samples, and reports whether there are any.
func (in *input) fill() (bool, error) {
	for in.block == nil || in.next == in.block.Len() {
		b, err := in.source.Next()
		if err != nil || b == nil {
			return false, err
		}
		in.block, in.next = b, 0
	}
	return true, nil
}

// Next implements store.Cursor. Of a block that ends before all other inputs begin, a part is
// returned without copying it, unless some of its samples may have expired. A block of the spool has
// all samples of a series.
func (m *mergedSource) Next() (*store.Block, error) {
	m.gather.Reset()
	for m.gather.Len() < blockSamples && len(m.gather.Data) < blockBytes {
		if err := m.fill(); err != nil {
			return nil, err
		}
		if len(m.inputs) == 0 {
			break
		}
		first := m.first()
		if m.gather.Len() == 0 && len(first.block.TTLs) == 0 && m.alone(first) {
			from := first.next
			first.next = min(from+blockSamples, first.block.Len())
			m.out = store.Block{Columns: first.block.Slice(from, first.next)}
			return &m.out, nil
		}
		m.take(first)
	}
	if m.gather.Len() == 0 {
		return nil, nil
	}
	m.out = store.Block{Columns: m.gather}
	return &m.out, nil
}

// fill fills all inputs, and drops those that have ended.
func (m *mergedSource) fill() error {
	left := m.inputs[:0]
	for i, in := range m.inputs {
		more, err := in.fill()
		if err != nil {
			m.inputs = append(left, m.inputs[i:]...)
			return err
		}
		if more {
			left = append(left, in)
		} else {
			in.source.Close()
		}
	}
	clear(m.inputs[len(left):])
	m.inputs = left
	return nil
}

// first returns the first of the inputs whose sample comes next.
func (m *mergedSource) first() *input {
	first := m.inputs[0]
	for _, in := range m.inputs[1:] {
		if m.before(in.time(), first.time()) {
			first = in
		}
	}
	return first
}

// alone reports whether the rest of in's block comes before all samples of the other inputs.
func (m *mergedSource) alone(in *input) bool {
	last := in.block.Times[in.block.Len()-1]
	for _, other := range m.inputs {
		if other != in && !m.before(last, other.time()) {
			return false
		}
	}
	return true
}

// take appends the next sample of in, and skips the samples that it hides.
func (m *mergedSource) take(in *input) {
	ms := in.time()
	if !expired(&in.block.Columns, in.next, m.nowMS) {
		m.gather.AppendFrom(m.kind, &in.block.Columns, in.next)
	}
	for _, other := range m.inputs {
		if other.time() == ms {
			other.next++
		}
	}
}

func (m *mergedSource) before(a, b int64) bool {
	if m.descending {
		return a > b
	}
	return a < b
}

// Close implements store.Cursor.
func (m *mergedSource) Close() {
	for _, in := range m.inputs {
		in.source.Close()
	}
	m.inputs = nil
}
