// Package record encodes what a store writes to its log: batches of samples
// with the series they introduce, and deletions. It knows nothing of files: the
// log adds framing and checksums. The log also stores the type of each record,
// which is its version too: a change of the bytes below needs a new type, and a
// reader refuses types that it does not know.
//
// # Batch
//
// Integers are varints (zigzag where signed) unless a width is given.
//
//	+---------+----------------------------+---------+-----------+
//	| series  | (id, length, series key)*  | samples | sample*   |
//	| uvarint |                            | uvarint |           |
//	+---------+----------------------------+---------+-----------+
//
//	sample: +---------+----------------+------------------+------------------+
//	        | control | series id,     | time in ms,      | value            |
//	        | u8      | delta, zigzag  | delta, zigzag    |                  |
//	        +---------+----------------+------------------+------------------+
//
// Deltas are relative to the previous sample, those of the first to 0. The
// control byte:
//
//	bit 7     the time is that of the previous sample; the time delta is absent
//	bits 4-6  decimal exponent e of a double: value = mantissa / 10^e;
//	          7: the 8 bytes of the double follow instead
//	bits 0-3  0..8: length of the mantissa, zigzag, little-endian
//	          9: no value (null)
//	          10: length and bytes follow (string, complex, custom)
//	          11: not a sample: the time-to-live in seconds, a uvarint, of all
//	          samples from here to the next such entry (0 at the start)
//
// All other control bytes are errors, as is one that does not fit the kind of
// its series. A double is mantissa / 10^e rather than mantissa * 10^-e because
// the quotient is correctly rounded: a value that was parsed from decimal text
// is restored bit for bit. The encoder verifies that for each value.
//
// # Deletion
//
//	+----------+----------+----------+------------------------------+
//	| sequence | start ms | end ms   | ids: roaring bitmap, portable|
//	| u64      | i64      | i64      | serialised form              |
//	+----------+----------+----------+------------------------------+
//
// Fixed-width integers are little-endian.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2"

	"varve/internal/model"
	"varve/internal/store"
)

// Types of log records. The numbers are on disk and never reused.
const (
	TypeBatch    = 1
	TypeDeletion = 2
)

const (
	sameTime     = 0x80
	exponentRaw  = 7
	lengthMax    = 8
	lengthNull   = 9
	lengthBytes  = 10
	lengthTTL    = 11
	maxExponent  = 6
	maxMantissa  = 1 << 53
	missesToRest = 8  // after so many doubles in a row without an exponent,
	restBetween  = 16 // only every 16th is tried
)

var powers = [maxExponent + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6}

// A Definition introduces a series.
type Definition struct {
	ID  model.SeriesNumber
	Key string
}

// AppendDefinitions appends the first part of a batch record.
func AppendDefinitions(dst []byte, defs []Definition) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(defs)))
	for _, d := range defs {
		dst = binary.AppendUvarint(dst, uint64(d.ID))
		dst = binary.AppendUvarint(dst, uint64(len(d.Key)))
		dst = append(dst, d.Key...)
	}
	return dst
}

// definitionBytes bounds the size of the definitions of one record, unless a single one
// is larger. Further definitions of a batch go into records of their own.
const definitionBytes = 1 << 20

// Fit returns how many of the first definitions fit into one record: at least one.
func Fit(defs []Definition) int {
	size := 0
	for i, d := range defs {
		if size += len(d.Key) + 2*binary.MaxVarintLen32; size > definitionBytes {
			return max(i, 1)
		}
	}
	return len(defs)
}

// AppendSamples appends the second part of a batch record. kinds[i] is the kind
// of sample i's series.
func AppendSamples(dst []byte, b *store.Batch, kinds []model.Kind) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b.Samples)))
	var (
		id     int64
		ms     int64
		ttl    uint32
		scaler scaler
	)
	for i := range b.Samples {
		s := &b.Samples[i]
		if s.TTL != ttl {
			ttl = s.TTL
			dst = append(dst, lengthTTL)
			dst = binary.AppendUvarint(dst, uint64(ttl))
		}
		at := len(dst)
		dst = append(dst, 0)
		dst = binary.AppendVarint(dst, int64(s.Ref)-id)
		id = int64(s.Ref)
		control := byte(0)
		if s.TimeMS == ms {
			control = sameTime
		} else {
			dst = binary.AppendVarint(dst, s.TimeMS-ms)
			ms = s.TimeMS
		}
		switch k := kinds[i]; {
		case k == model.Long:
			var n byte
			dst, n = appendMantissa(dst, int64(s.Value))
			control |= n
		case k == model.Double:
			m, e := scaler.scale(s.Value)
			control |= e << 4
			if e == exponentRaw {
				dst = binary.LittleEndian.AppendUint64(dst, s.Value)
				control |= 8
				break
			}
			var n byte
			dst, n = appendMantissa(dst, m)
			control |= n
		case k.Variable():
			v := b.Bytes(*s)
			dst = binary.AppendUvarint(dst, uint64(len(v)))
			dst = append(dst, v...)
			control |= lengthBytes
		default:
			control |= lengthNull
		}
		dst[at] = control
	}
	return dst
}

func appendMantissa(dst []byte, m int64) ([]byte, byte) {
	z := uint64(m)<<1 ^ uint64(m>>63)
	n := (bits.Len64(z) + 7) / 8
	dst = binary.LittleEndian.AppendUint64(dst, z)
	return dst[:len(dst)-8+n], byte(n)
}

// scaler finds the decimal exponents of doubles. It tries the last one that fitted
// first. Doubles with random bits have none; after some of them it rarely tries.
type scaler struct {
	last   byte
	misses int
}

func (s *scaler) scale(word uint64) (mantissa int64, exponent byte) {
	if s.misses >= missesToRest && s.misses%restBetween != 0 {
		s.misses++
		return 0, exponentRaw
	}
	v := math.Float64frombits(word)
	if m, ok := fits(v, word, s.last); ok {
		s.misses = 0
		return m, s.last
	}
	for e := byte(0); e <= maxExponent; e++ {
		if m, ok := fits(v, word, e); ok {
			s.last, s.misses = e, 0
			return m, e
		}
	}
	s.misses++
	return 0, exponentRaw
}

func fits(v float64, word uint64, e byte) (int64, bool) {
	scaled := math.RoundToEven(v * powers[e])
	if !(math.Abs(scaled) < maxMantissa) {
		return 0, false
	}
	m := int64(scaled)
	return m, math.Float64bits(float64(m)/powers[e]) == word
}

// Definitions calls fn for each series that a batch record introduces and
// returns the rest of the record, for Samples. It does not check keys. It
// returns fn's error unchanged.
func Definitions(payload []byte, fn func(Definition) error) (rest []byte, err error) {
	r := reader{rest: payload}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		id := r.uvarint()
		key := r.bytes(r.uvarint())
		if id > math.MaxUint32 {
			r.fail("series id %d does not fit 32 bits", id)
		}
		if r.err == nil {
			if err := fn(Definition{model.SeriesNumber(id), string(key)}); err != nil {
				return nil, err
			}
		}
	}
	return r.rest, r.err
}

// Samples appends the samples of a batch record, after its definitions, to b.
// kind returns the kind of a series' values, 0 if there is no such series,
// which is an error. After an error, b has the samples before the fault.
func Samples(payload []byte, kind func(id model.SeriesNumber) model.Kind, b *store.Batch) error {
	r := reader{rest: payload}
	var (
		id  int64
		ms  int64
		ttl uint32
	)
	for n := r.uvarint(); n > 0 && r.err == nil; {
		control := r.byte()
		if control == lengthTTL {
			v := r.uvarint()
			if v > math.MaxUint32 {
				r.fail("time-to-live of %d s does not fit 32 bits", v)
			}
			ttl = uint32(v)
			continue
		}
		if control&0xf >= lengthTTL {
			r.fail("unknown control byte %#02x", control)
			break
		}
		n--
		id += r.varint()
		if control&sameTime == 0 {
			ms += r.varint()
		}
		if id < 0 || id > math.MaxUint32 {
			r.fail("series id %d does not fit 32 bits", id)
			break
		}
		k := kind(model.SeriesNumber(id))
		if k == 0 {
			r.fail("sample of unknown series %d", id)
			break
		}
		r.value(control, k, store.Sample{TimeMS: ms, Ref: store.Ref(id), TTL: ttl}, b)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes after the last sample", len(r.rest))
	}
	return r.err
}

// value reads a sample's value and adds the sample to b.
func (r *reader) value(control byte, k model.Kind, s store.Sample, b *store.Batch) {
	exponent, length := control&^sameTime>>4, control&0xf
	switch {
	case length == lengthBytes && k.Variable() && exponent == 0:
		v := r.bytes(r.uvarint())
		if r.err == nil {
			b.AddBytes(s.Ref, s.TimeMS, v, s.TTL)
		}
		return
	case length == lengthNull && k == model.Null && exponent == 0:
	case length <= lengthMax && k == model.Long && exponent == 0:
		s.Value = uint64(r.mantissa(length))
	case length == lengthMax && k == model.Double && exponent == exponentRaw:
		if raw := r.bytes(lengthMax); r.err == nil {
			s.Value = binary.LittleEndian.Uint64(raw)
		}
	case length <= lengthMax && k == model.Double && exponent <= maxExponent:
		s.Value = math.Float64bits(float64(r.mantissa(length)) / powers[exponent])
	default:
		r.fail("control byte %#02x does not fit a %s value", control, k)
	}
	if r.err == nil {
		b.Samples = append(b.Samples, s)
	}
}

// A Deletion hides samples of some series in a range of time from everything
// stored before it. Sequences grow by one with each deletion of a store.
type Deletion struct {
	Sequence uint64
	Range    model.TimeRange
	IDs      *roaring.Bitmap
}

// AppendDeletion appends a deletion record.
func AppendDeletion(dst []byte, d Deletion) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, d.Sequence)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.Range.StartMS))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(d.Range.EndMS))
	ids, err := d.IDs.ToBytes()
	if err != nil {
		return nil, fmt.Errorf("encode deletion %d: %w", d.Sequence, err)
	}
	return append(dst, ids...), nil
}

// SetSequence changes the sequence of a deletion that AppendDeletion has encoded.
func SetSequence(payload []byte, sequence uint64) {
	binary.LittleEndian.PutUint64(payload, sequence)
}

// ParseDeletion is the inverse of AppendDeletion.
func ParseDeletion(payload []byte) (Deletion, error) {
	if len(payload) < deletionHead {
		return Deletion{}, errCutOff
	}
	d := Deletion{
		Sequence: binary.LittleEndian.Uint64(payload),
		Range: model.TimeRange{
			StartMS: int64(binary.LittleEndian.Uint64(payload[8:])),
			EndMS:   int64(binary.LittleEndian.Uint64(payload[16:])),
		},
		IDs: roaring.New(),
	}
	n, err := d.IDs.ReadFrom(bytes.NewReader(payload[deletionHead:]))
	if err == nil {
		err = d.IDs.Validate()
	}
	if left := int64(len(payload)-deletionHead) - n; err == nil && left > 0 {
		err = fmt.Errorf("%d bytes after them", left)
	}
	if err != nil {
		return Deletion{}, fmt.Errorf("record: deletion %d: series ids: %w", d.Sequence, err)
	}
	return d, nil
}

const deletionHead = 8 + 8 + 8 // bytes before the ids

var errCutOff = errors.New("record: cut off")

// reader reads the fields of a record. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("record: "+format, args...)
	}
	r.rest = nil
}

func (r *reader) cutOff() {
	if r.err == nil {
		r.err = errCutOff
	}
	r.rest = nil
}

// badVarint fails because of a varint for which binary.Uvarint returned n.
func (r *reader) badVarint(n int) {
	if n == 0 {
		r.cutOff()
		return
	}
	r.fail("number does not fit 64 bits")
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.cutOff()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	if len(r.rest) > 0 && r.rest[0] < 0x80 { // most are one byte
		v := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.badVarint(n)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) varint() int64 { return unzigzag(r.uvarint()) }

func unzigzag(z uint64) int64 { return int64(z>>1) ^ -int64(z&1) }

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.cutOff()
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) mantissa(length byte) int64 {
	var z uint64
	if len(r.rest) >= 8 { // all but those at the end of the record
		z = binary.LittleEndian.Uint64(r.rest) & (1<<(8*length) - 1)
		r.rest = r.rest[length:]
	} else {
		for i, b := range r.bytes(uint64(length)) {
			z |= uint64(b) << (8 * i)
		}
	}
	return unzigzag(z)
}
