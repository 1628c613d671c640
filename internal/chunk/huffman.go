package chunk

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/klauspost/compress/huff0"
)

const (
	// huffmanMin is the fewest numbers for which a code table may pay, and
	// huffmanPerSymbol how many numbers it takes per possible symbol.
	huffmanMin       = 96
	huffmanPerSymbol = 2
	// huffmanBits is how many high bits of a number make a symbol.
	huffmanBits = 8
	// fourStreams is the fewest symbols that are coded as four interleaved
	// streams, which decode about twice as fast and cost six more bytes.
	fourStreams = 512
)

// appendSmallest appends p packed or Huffman-coded, whichever is smaller. Coding must
// save 4%, since it halves the speed of decoding.
func (e *encoder) appendSmallest(dst []byte, p *intPlan) []byte {
	start := len(dst)
	dst = e.appendPackedPlan(dst, p)
	limit := (len(dst) - start) * 24 / 25

	e.coded = e.appendCoded(e.coded[:0], p, limit)
	if n := len(e.coded); n > 0 && n <= limit {
		dst = append(dst[:start], e.coded...)
		limit = n
	}
	// Coding makes outliers cheap by itself; leaving them in may be better.
	if whole := *p; p.outliers > 0 && p.wholeWidth <= p.width+huffmanBits {
		whole.base, whole.width, whole.outliers = p.wholeBase, p.wholeWidth, 0
		e.coded = e.appendCoded(e.coded[:0], &whole, limit)
		if n := len(e.coded); n > 0 && n <= limit {
			dst = append(dst[:start], e.coded...)
		}
	}
	return dst
}

// appendCoded appends p with its high bits Huffman-coded, or nothing if they cannot be
// coded or do not fit limit bytes.
func (e *encoder) appendCoded(dst []byte, p *intPlan, limit int) []byte {
	low := lowBits(p.width)
	if len(p.packed) < huffmanPerSymbol<<(p.width-low) || p.width == 0 {
		return dst
	}
	mask := byte(1<<(p.width-low) - 1)
	symbols := resize(&e.symbols, len(p.packed))
	for i, v := range p.packed {
		symbols[i] = byte((v-p.base)>>low) & mask
	}
	if e.codedAtLeast(symbols)+packedLen(len(symbols), low) > limit {
		return dst
	}
	code := e.huffmanCode(symbols)
	if code == nil {
		return dst
	}
	dst = e.appendHeadAndOutliers(dst, p, intHuffman)
	dst = binary.AppendUvarint(dst, uint64(len(code)))
	dst = append(dst, code...)
	return appendPacked(dst, p.packed, p.base, low)
}

// codedAtLeast returns a lower bound, in bytes, of any coding of symbols. It uses the
// collision entropy, which takes one logarithm and is never above Shannon's: building
// the code to find its size would cost more than all other steps together.
func (e *encoder) codedAtLeast(symbols []byte) int {
	count := &e.symbolCount
	clear(count[:])
	for _, s := range symbols {
		count[s]++
	}
	squares := uint64(0)
	for _, n := range count {
		squares += uint64(n) * uint64(n)
	}
	n := float64(len(symbols))
	return int(n * math.Log2(n*n/float64(squares)) / 8)
}

// lowBits is the number of bits below the symbol in numbers of width bits.
func lowBits(width uint) uint { return width - min(width, huffmanBits) }

// huffmanCode returns table and streams, or nil if they are not smaller than the
// symbols.
func (e *encoder) huffmanCode(symbols []byte) []byte {
	if e.huffman == nil {
		e.huffman = &huff0.Scratch{Reuse: huff0.ReusePolicyNone}
	}
	compress := huff0.Compress1X
	if len(symbols) >= fourStreams {
		compress = huff0.Compress4X
	}
	code, _, err := compress(symbols, e.huffman)
	if err != nil {
		return nil
	}
	return code
}

// huffman reads len(out) Huffman-coded numbers of width bits and adds base.
func (d *Decoder) huffman(r *reader, width uint, base uint64, out []uint64) {
	code := r.take(int(min(r.uvarint(), MaxSamples*2)))
	low := lowBits(width)
	lows := r.take(packedLen(len(out), low))
	if r.err != nil {
		return
	}
	if d.huff == nil {
		d.huff = &huff0.Scratch{MaxDecodedSize: MaxSamples}
	}
	table, streams, err := huff0.ReadTable(code, d.huff)
	if err != nil {
		r.fail("Huffman table: %v", err)
		return
	}
	// The four-stream decoder requires an exact capacity, and it bounds the one-stream
	// decoder.
	buf := slices.Grow(d.symbols[:0], len(out))
	d.symbols = buf
	buf = buf[:0:len(out)]
	if len(out) >= fourStreams {
		buf, err = table.Decoder().Decompress4X(buf, streams)
	} else {
		buf, err = table.Decoder().Decompress1X(buf, streams)
	}
	if err != nil || len(buf) != len(out) {
		r.fail("Huffman streams: %d numbers of %d, %v", len(buf), len(out), err)
		return
	}
	unpack(lows, low, base, out)
	for i, symbol := range buf {
		out[i] += uint64(symbol) << low
	}
}
