package chunk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"varve/internal/model"
)

// wantFormat expects decoding body, a chunk of n samples at equal steps with the
// given column, to fail for the given reason.
func wantFormat(t *testing.T, kind model.Kind, n int, column []byte, reason string) {
	t.Helper()
	b := append(binary.AppendUvarint(nil, uint64(n)), timesRegular)
	b = appendVarint(b, 0)
	b = binary.AppendUvarint(b, uint64(n-1))
	var d Decoder
	var dst model.Columns
	_, err := d.Decode(append(b, column...), kind, &dst)
	if format := (*FormatError)(nil); !errors.As(err, &format) || !strings.Contains(err.Error(), reason) {
		t.Errorf("got %v, want %q", err, reason)
	}
}

// TestLargestSizesAreEnforced crafts columns one beyond each limit, and at it.
func TestLargestSizesAreEnforced(t *testing.T) {
	e := encoders.Get().(*encoder)
	defer e.release()
	ints := func(v ...uint64) []byte { return e.appendInts(nil, v) }

	// Compressed strings that would grow beyond the limit, all of the right sizes.
	size := uint64(MaxExpandedBytes + 1)
	column := append([]byte{bytesPlain | bytesCompressed}, ints(size)...)
	column = binary.AppendUvarint(column, size)
	frame := compress(nil, make([]byte, size))
	column = append(binary.AppendUvarint(column, uint64(len(frame))), frame...)
	wantFormat(t, model.String, 1, column, "compressed bytes for values of")

	// One that says another size than its lengths do.
	column = append([]byte{bytesPlain | bytesCompressed}, ints(100)...)
	frame = compress(nil, make([]byte, 99))
	column = binary.AppendUvarint(column, 99)
	column = append(binary.AppendUvarint(column, uint64(len(frame))), frame...)
	wantFormat(t, model.String, 1, column, "99 compressed bytes for values of 100")

	// A string longer than offsets can address.
	wantFormat(t, model.String, 1, append([]byte{bytesPlain}, ints(math.MaxUint32+1)...), "byte string of")

	// A dictionary whose values grow beyond the limit when they are repeated.
	column = append([]byte{bytesDictionary, 1, bytesPlain}, ints(MaxExpandedBytes/2)...)
	column = append(column, make([]byte, MaxExpandedBytes/2)...)
	wantFormat(t, model.String, 3, append(column, ints(0, 0, 0)...), "values grow to 25165824 bytes, at most 16777216")

	// No pairs of sign and exponent, and one too many.
	for _, n := range []uint64{0, splitMaxTop + 1} {
		column := binary.AppendUvarint([]byte{doubleSplit}, n)
		wantFormat(t, model.Double, 2, append(column, make([]byte, 64)...), "sign and exponent pairs")
	}
	// A rank that is the number of pairs: the first one that is not there.
	column = binary.AppendUvarint([]byte{doubleSplit}, 1)
	column = append(binary.AppendUvarint(column, 1), ints(0, 1)...)
	column = append(column, make([]byte, packedLen(2, splitBits))...)
	wantFormat(t, model.Double, 2, column, "pair 1 of 1")
}

// TestFindPageAtTheEnd looks for pages in bytes that are as short as one can be,
// and one byte shorter.
func TestFindPageAtTheEnd(t *testing.T) {
	c := &model.Columns{Times: []int64{5}}
	var b PageBuilder
	b.Reset(Fast)
	b.Add(0, model.Null, c, 0, 1)
	page := b.Finish(nil)
	if n, _ := FindPage(page); n != len(page) {
		t.Errorf("the smallest page, of %d bytes: found %d", len(page), n)
	}
	for n := range page {
		if got, walked := FindPage(page[:n]); got != 0 || walked < 1 {
			t.Errorf("%d bytes of %d: found %d, looked at %d", n, len(page), got, walked)
		}
	}
	other := append([]byte{pageVersion + 1}, page[1:len(page)-checksumSize]...)
	other = binary.LittleEndian.AppendUint32(other, crc32.Checksum(other, castagnoli))
	if n, walked := FindPage(other); n != 0 || walked != 1 {
		t.Errorf("a page of another version: found %d, looked at %d", n, walked)
	}
}

// TestCodecNameOfDamage names columns of numbers whose mode is the first that is
// not known, and of the last one that is.
func TestCodecNameOfDamage(t *testing.T) {
	for mode, want := range map[int]string{len(intModeNames): "damaged", len(intModeNames) - 1: "deltaconst"} {
		if got := nameInts(reader{b: []byte{byte(mode), 0, 0, 0}}); got != want {
			t.Errorf("mode %d is %q, want %q", mode, got, want)
		}
	}
}

// TestPowersOfTen decodes 3/10^exponent for every exponent that a column may have. A round trip
// does not notice a wrong power of ten, because the encoder has the same.
func TestPowersOfTen(t *testing.T) {
	for exp := range maxExponent + 1 {
		want, err := strconv.ParseFloat(fmt.Sprintf("3e-%d", exp), 64)
		if err != nil {
			t.Fatal(err)
		}
		b := append(binary.AppendUvarint(nil, 2), timesRegular)
		b = binary.AppendUvarint(appendVarint(b, 0), 1)
		b = appendVarint(append(b, byte(exp), intConst), 3)
		var d Decoder
		var dst model.Columns
		if _, err := d.Decode(b, model.Double, &dst); err != nil {
			t.Fatal(err)
		}
		if len(dst.Values) != 2 || math.Float64frombits(dst.Values[0]) != want {
			t.Errorf("exponent %d: decoded %x, want 2 times %v", exp, dst.Values, want)
		}
	}
}

// TestTimesThatMissTheLast: a column of times must end at the last time of its header.
func TestTimesThatMissTheLast(t *testing.T) {
	e := encoders.Get().(*encoder)
	defer e.release()
	b := append(binary.AppendUvarint(nil, 3), timesCoded)
	b = binary.AppendUvarint(appendVarint(b, 0), 20)
	b = e.appendInts(append(b, timeInts), []uint64{10, 19})
	var d Decoder
	var dst model.Columns
	_, err := d.Decode(e.appendInts(append(b, 0), []uint64{1, 2, 3}), model.Double, &dst)
	if format := (*FormatError)(nil); !errors.As(err, &format) || !strings.Contains(err.Error(), "times end at 19, 20 expected") {
		t.Errorf("got %v, want times that do not end at 20", err)
	}
}

// TestManyExceptions: values of which many are not decimal take no more than plain bits.
func TestManyExceptions(t *testing.T) {
	e := encoders.Get().(*encoder)
	defer e.release()
	rng := rand.New(rand.NewPCG(1, 2))
	vals := make([]uint64, 512)
	for i := range vals {
		v := 1 + rng.Float64()
		if i%16 < 9 {
			v = math.Round(v*1e8) / 1e8
		}
		vals[i] = math.Float64bits(v)
	}
	plain := len(e.appendBinary(nil, vals))
	if exp, ok := e.scale(vals); !ok || exp != 8 {
		t.Fatalf("exponent %d, %v: the values do not pass as decimal", exp, ok)
	}
	if b, _ := e.appendDoubles(nil, vals); len(b) > plain {
		t.Errorf("%d bytes, as plain bits %d", len(b), plain)
	}
}
