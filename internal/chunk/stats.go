package chunk

import (
	"encoding/binary"
	"math"

	"varve/internal/model"
)

// statsMin is the fewest samples of a chunk with statistics.
const statsMin = 32

// The control byte of statistics. Its low bits are the decimal exponent of the
// mantissas that follow, or statsRaw.
const (
	statsExponentMask = 0x1f
	statsRaw          = 0x1f // five times 8 bytes
	statsSumRaw       = 0x20 // the sum is 8 bytes
	statsConst        = 0x40 // first, last, min and max are one mantissa
	statsUnknown      = 0x80
)

// statsOf computes the statistics of fixed values, without count and times. ok is false
// if a value is NaN.
func statsOf(kind model.Kind, vals []uint64) (s model.Stats, ok bool) {
	s = model.Stats{First: vals[0], Last: vals[len(vals)-1]}
	s.Min, s.Max = model.Float(kind, vals[0]), model.Float(kind, vals[0])
	for _, v := range vals {
		f := model.Float(kind, v)
		if f != f {
			return s, false
		}
		s.Min, s.Max = min(s.Min, f), max(s.Max, f) // min and max order -0 before 0
		s.Sum += f
	}
	return s, true
}

// appendStats appends statistics of a Long or Double column, or nothing if a
// value is NaN. m is the column's mantissas if it has them.
func appendStats(dst []byte, kind model.Kind, vals []uint64, m doubleInfo) []byte {
	s, ok := statsOf(kind, vals)
	if !ok {
		return dst
	}
	if m.decimal {
		if compact := appendMantissas(dst, kind, len(vals), &s, &m); compact != nil {
			return compact
		}
	}
	dst = append(dst, statsRaw)
	dst = binary.LittleEndian.AppendUint64(dst, s.First)
	dst = binary.LittleEndian.AppendUint64(dst, s.Last)
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Min))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Max))
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Sum))
}

// appendMantissas appends s as mantissas, or returns nil if these would not reproduce
// every bit. The sum of doubles differs slightly from the sum of mantissas; the
// difference is stored in units in the last place.
func appendMantissas(dst []byte, kind model.Kind, count int, s *model.Stats, m *doubleInfo) []byte {
	if !sameStats(s, expandMantissas(kind, m)) {
		return nil
	}
	control := byte(m.exponent)
	if m.min == m.max {
		control |= statsConst
	}
	off := int64(math.Float64bits(s.Sum) - math.Float64bits(scaled(m.sum, m.exponent)))
	if off < -1<<27 || off > 1<<27 {
		control |= statsSumRaw
	}
	dst = append(dst, control)
	dst = appendVarint(dst, uint64(m.first))
	if control&statsConst == 0 {
		dst = appendVarint(dst, uint64(m.last-m.first))
		dst = binary.AppendUvarint(dst, uint64(m.first-m.min))
		dst = binary.AppendUvarint(dst, uint64(m.max-m.first))
	}
	if control&statsSumRaw != 0 {
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Sum))
	}
	dst = appendVarint(dst, uint64(m.sum-m.first*int64(count)))
	return appendVarint(dst, uint64(off))
}

func scaled(m int64, exponent int) float64 { return float64(m) / powersOfTen[exponent] }

// expandMantissas returns all statistics but the sum.
func expandMantissas(kind model.Kind, m *doubleInfo) model.Stats {
	s := model.Stats{Min: scaled(m.min, m.exponent), Max: scaled(m.max, m.exponent)}
	if kind == model.Long {
		s.First, s.Last = uint64(m.first), uint64(m.last)
		return s
	}
	s.First = math.Float64bits(scaled(m.first, m.exponent))
	s.Last = math.Float64bits(scaled(m.last, m.exponent))
	return s
}

func sameStats(a *model.Stats, b model.Stats) bool {
	return a.First == b.First && a.Last == b.Last &&
		math.Float64bits(a.Min) == math.Float64bits(b.Min) &&
		math.Float64bits(a.Max) == math.Float64bits(b.Max)
}

// skipStats skips the bytes that readStats reads.
func skipStats(r *reader) {
	control := r.u8()
	if control == statsRaw {
		r.take(5 * 8)
		return
	}
	numbers := 1
	if control&statsConst == 0 {
		numbers += 3
	}
	if control&statsSumRaw != 0 {
		r.skipVarints(numbers)
		r.take(8)
		return
	}
	r.skipVarints(numbers + 2)
}

// readStats reads statistics of count values.
func readStats(r *reader, kind model.Kind, count int) model.Stats {
	control := r.u8()
	if control == statsRaw {
		return model.Stats{
			First: r.u64(), Last: r.u64(),
			Min: math.Float64frombits(r.u64()), Max: math.Float64frombits(r.u64()),
			Sum: math.Float64frombits(r.u64()),
		}
	}
	m := doubleInfo{exponent: int(control & statsExponentMask)}
	if control&statsUnknown != 0 || m.exponent > maxExponent || kind == model.Long && m.exponent != 0 {
		r.fail("unknown statistics %#x", control)
		return model.Stats{}
	}
	m.first = r.varint()
	m.last, m.min, m.max = m.first, m.first, m.first
	if control&statsConst == 0 {
		m.last += r.varint()
		m.min -= int64(r.uvarint())
		m.max += int64(r.uvarint())
	}
	s := expandMantissas(kind, &m)
	if control&statsSumRaw != 0 {
		s.Sum = math.Float64frombits(r.u64())
		return s
	}
	sum := r.varint() + m.first*int64(count)
	s.Sum = math.Float64frombits(math.Float64bits(scaled(sum, m.exponent)) + uint64(r.varint()))
	return s
}
