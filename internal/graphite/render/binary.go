package render

import (
	"encoding/binary"
	"math"

	"varve/internal/graphite/function"
)

// An encoder writes values in a binary format.
type encoder interface {
	list(n int)
	endList(n int)
	object(n int)
	endObject()
	str(string)
	integer(int64)
	float(float64)
	boolean(bool)
	null()
	failed() error // of the writer below
}

// writeSeries writes a list with an object for each series, in the form that
// one graphite-web sends to another.
func writeSeries(e encoder, series []*function.Series) error {
	e.list(len(series))
	for _, s := range series {
		rows, err := s.Rows()
		if err != nil {
			return err
		}
		e.object(9)
		e.str("name")
		e.str(name(s))
		e.str("start")
		e.integer(s.Start)
		e.str("end")
		e.integer(s.End)
		e.str("step")
		e.integer(s.Step)
		e.str("values")
		e.list(len(rows))
		for _, v := range rows {
			if err := e.failed(); err != nil {
				return err
			}
			if v != v {
				e.null()
			} else {
				e.float(v)
			}
		}
		e.endList(len(rows))
		e.str("pathExpression")
		e.str(s.PathExpression)
		e.str("valuesPerPoint")
		e.integer(int64(s.PerPoint()))
		e.str("consolidationFunc")
		e.str(s.Consolidation)
		e.str("xFilesFactor")
		e.float(s.XFilesFactor)
		e.endObject()
		if err := e.failed(); err != nil {
			return err
		}
	}
	e.endList(len(series))
	return nil
}

// A pickler writes pickle's protocol 2, which Python 2 and 3 read. It uses only
// the opcodes of lists, dictionaries, strings, numbers, booleans and None.
type pickler struct{ *writer }

func writePickle(w *writer, series []*function.Series) error {
	w.Write([]byte{0x80, 2})
	if err := writeSeries(pickler{w}, series); err != nil {
		return err
	}
	return w.WriteByte('.')
}

func (p pickler) list(n int) {
	p.WriteByte(']')
	if n > 0 {
		p.WriteByte('(')
	}
}

func (p pickler) endList(n int) {
	if n > 0 {
		p.WriteByte('e')
	}
}

func (p pickler) object(int) { p.WriteString("}(") }
func (p pickler) endObject() { p.WriteByte('u') }
func (p pickler) null()      { p.WriteByte('N') }

func (p pickler) str(s string) {
	p.scratch = binary.LittleEndian.AppendUint32(append(p.scratch[:0], 'X'), uint32(len(s)))
	p.Write(p.scratch)
	p.WriteString(s)
}

func (p pickler) boolean(v bool) {
	if v {
		p.WriteByte(0x88)
	} else {
		p.WriteByte(0x89)
	}
}

func (p pickler) integer(n int64) {
	if n == int64(int32(n)) {
		p.scratch = binary.LittleEndian.AppendUint32(append(p.scratch[:0], 'J'), uint32(n))
	} else {
		p.scratch = binary.LittleEndian.AppendUint64(append(p.scratch[:0], 0x8a, 8), uint64(n))
	}
	p.Write(p.scratch)
}

func (p pickler) float(v float64) {
	p.scratch = binary.BigEndian.AppendUint64(append(p.scratch[:0], 'G'), math.Float64bits(v))
	p.Write(p.scratch)
}

// A msgpacker writes MessagePack.
type msgpacker struct{ *writer }

func writeMsgpack(w *writer, series []*function.Series) error {
	return writeSeries(msgpacker{w}, series)
}

func (m msgpacker) list(n int)   { m.head(n, 0x90, 16, 0xdc) }
func (m msgpacker) endList(int)  {}
func (m msgpacker) object(n int) { m.head(n, 0x80, 16, 0xde) }
func (m msgpacker) endObject()   {}
func (m msgpacker) null()        { m.WriteByte(0xc0) }

func (m msgpacker) boolean(v bool) {
	if v {
		m.WriteByte(0xc3)
	} else {
		m.WriteByte(0xc2)
	}
}

func (m msgpacker) float(v float64) {
	m.scratch = binary.BigEndian.AppendUint64(append(m.scratch[:0], 0xcb), math.Float64bits(v))
	m.Write(m.scratch)
}

// head writes a type and a length, which is in the type's byte, in 16 or in 32 bits.
func (m msgpacker) head(n int, small byte, below int, wide byte) {
	switch {
	case n < below:
		m.scratch = append(m.scratch[:0], small|byte(n))
	case n <= math.MaxUint16:
		m.scratch = binary.BigEndian.AppendUint16(append(m.scratch[:0], wide), uint16(n))
	default:
		m.scratch = binary.BigEndian.AppendUint32(append(m.scratch[:0], wide+1), uint32(n))
	}
	m.Write(m.scratch)
}

func (m msgpacker) str(s string) {
	m.head(len(s), 0xa0, 32, 0xda)
	m.WriteString(s)
}

func (m msgpacker) integer(n int64) {
	switch {
	case n >= 0 && n < 128:
		m.scratch = append(m.scratch[:0], byte(n))
	case n >= 0:
		m.scratch = binary.BigEndian.AppendUint64(append(m.scratch[:0], 0xcf), uint64(n))
	default:
		m.scratch = binary.BigEndian.AppendUint64(append(m.scratch[:0], 0xd3), uint64(n))
	}
	m.Write(m.scratch)
}
