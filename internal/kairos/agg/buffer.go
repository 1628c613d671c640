package agg

import (
	"math"
	"slices"
	"unsafe"

	"varve/internal/model"
	"varve/internal/query"
	"varve/internal/store"
)

// A pointBuffer holds points in columns, within a memory budget.
type pointBuffer struct {
	lease *query.Lease
	times []int64
	bits  []uint64
	kinds []model.Kind
	order []int32  // see Point
	ends  []uint32 // of Data; nil while all points are of fixed kinds
	data  []byte

	wholes []model.Aggregate // Point.Whole of each point up to the last that has one
}

// pointBytes is the memory of a point without its Data.
const pointBytes = 8 + 8 + 1 + 4 + 4

func (b *pointBuffer) add(p *Point) error {
	if int64(len(b.data)+len(p.Data)) > math.MaxUint32 {
		return &store.LimitError{
			Limit: "query.max_memory", Max: math.MaxUint32, Need: int64(len(b.data) + len(p.Data)),
			What: "memory for the texts of one group, which no setting raises; narrow the time range or the tags",
		}
	}
	if len(b.times) == cap(b.times) {
		more := len(b.times) + min(len(b.times)+4, 64) // at least what append allocates
		if err := b.lease.Take(int64(more) * pointBytes); err != nil {
			return err
		}
	}
	if len(p.Data) > 0 {
		if err := b.lease.Take(int64(len(p.Data))); err != nil {
			return err
		}
	}
	b.times = append(b.times, p.TimeMS)
	b.bits = append(b.bits, p.Bits)
	b.kinds = append(b.kinds, p.Kind)
	b.order = append(b.order, p.order)
	b.data = append(b.data, p.Data...)
	b.ends = append(b.ends, uint32(len(b.data)))
	if p.Whole == nil {
		return nil
	}
	return b.addWhole(p.Whole)
}

// addWhole records the aggregate that the last point stands for.
func (b *pointBuffer) addWhole(a *model.Aggregate) error {
	n, before := len(b.times), cap(b.wholes)
	if n > before {
		b.wholes = slices.Grow(b.wholes, n-len(b.wholes)+min(n, 64))
	}
	if err := b.lease.Take(int64(cap(b.wholes)-before)*int64(unsafe.Sizeof(*a)) + int64(len(a.Sketch))); err != nil {
		return err
	}
	b.wholes = append(b.wholes, make([]model.Aggregate, n-len(b.wholes))...)
	b.wholes[n-1] = *a
	return nil
}

// fill adds all points of a stream.
func (b *pointBuffer) fill(in Stream) error {
	var p Point
	for {
		ok, err := in.Next(&p)
		if !ok || err != nil {
			return err
		}
		if err := b.add(&p); err != nil {
			return err
		}
	}
}

func (b *pointBuffer) get(i int, p *Point) {
	from := uint32(0)
	if i > 0 {
		from = b.ends[i-1]
	}
	*p = Point{TimeMS: b.times[i], Kind: b.kinds[i], Bits: b.bits[i], order: b.order[i]}
	if b.ends[i] > from {
		p.Data = b.data[from:b.ends[i]]
	}
	if i < len(b.wholes) && b.wholes[i].Count > 0 {
		p.Whole = &b.wholes[i]
	}
}

// forward yields the points in order.
func (b *pointBuffer) forward() Stream { return &bufferStream{buffer: b, step: 1} }

type bufferStream struct {
	buffer   *pointBuffer
	at, step int
}

func (s *bufferStream) Next(p *Point) (bool, error) {
	if s.at < 0 || s.at >= len(s.buffer.times) {
		return false, nil
	}
	s.buffer.get(s.at, p)
	s.at += s.step
	return true, nil
}

// reversed yields a stream backwards; it buffers all of it.
type reversed struct {
	in    Stream
	lease *query.Lease
	out   *bufferStream
	part  bool  // the points before an error are yielded too, then the error
	err   error // of in
}

func (r *reversed) Next(p *Point) (bool, error) {
	if r.out == nil {
		b := &pointBuffer{lease: r.lease}
		if r.err = b.fill(r.in); r.err != nil && !r.part {
			return false, r.err
		}
		r.out = &bufferStream{buffer: b, at: len(b.times) - 1, step: -1}
	}
	if ok, err := r.out.Next(p); ok || err != nil {
		return ok, err
	}
	return false, r.err
}

// limited ends a stream after n points.
type limited struct {
	in Stream
	n  int
}

func (l *limited) Next(p *Point) (bool, error) {
	if l.n <= 0 {
		return false, nil
	}
	l.n--
	return l.in.Next(p)
}
