package chunk

import (
	"encoding/binary"
	"slices"
)

// maxFastWidth is the widest number that one unaligned 8-byte load contains, at
// whichever bit of its first byte it starts.
const maxFastWidth = 57

// packedLen is the size in bytes of n numbers of width bits.
func packedLen(n int, width uint) int { return (n*int(width) + 7) / 8 }

// appendPacked appends the low width bits of vals[i]-base for all i, least
// significant bit first, the last byte padded with zeros.
func appendPacked(dst []byte, vals []uint64, base uint64, width uint) []byte {
	if width == 0 {
		return dst
	}
	at, size := len(dst), packedLen(len(vals), width)
	dst = slices.Grow(dst, size+8)[:at+size+8]
	out := dst[at:]
	mask := ^uint64(0) >> (64 - width)
	var acc uint64
	var have uint
	for _, v := range vals {
		v = (v - base) & mask
		acc |= v << have
		have += width
		if have >= 64 {
			binary.LittleEndian.PutUint64(out, acc)
			out = out[8:]
			have -= 64
			acc = v >> (width - have)
		}
	}
	binary.LittleEndian.PutUint64(out, acc)
	return dst[:at+size]
}

// unpack sets out[i] to base plus the i-th number of src, which is exactly
// packedLen(len(out), width) long.
func unpack(src []byte, width uint, base uint64, out []uint64) {
	switch {
	case width == 0:
		for i := range out {
			out[i] = base
		}
		return
	case width == 64:
		for i := range out {
			out[i] = base + binary.LittleEndian.Uint64(src[i*8:])
		}
		return
	case width > maxFastWidth:
		unpackWide(src, width, base, out)
		return
	}
	mask := ^uint64(0) >> (64 - width)
	n := 0
	if len(src) >= 8 { // numbers that a load within src reaches
		n = min(len(out), ((len(src)-8)*8+7)/int(width)+1)
	}
	bit, i := uint(0), 0
	if width*4 <= maxFastWidth { // one load holds four numbers
		w := width & 63 // spares a check per shift
		for ; i+4 <= n; i += 4 {
			four := binary.LittleEndian.Uint64(src[bit>>3:]) >> (bit & 7)
			o := out[i : i+4 : i+4]
			o[0] = base + four&mask
			o[1] = base + four>>w&mask
			o[2] = base + four>>(2*w&63)&mask
			o[3] = base + four>>(3*w&63)&mask
			bit += 4 * width
		}
	}
	for ; i < n; i++ {
		out[i] = base + binary.LittleEndian.Uint64(src[bit>>3:])>>(bit&7)&mask
		bit += width
	}
	// Loads of the last numbers would reach past src, so they are read from a copy with
	// slack. Fewer than 8 bytes are left.
	var tail [16]byte
	start := bit &^ 7
	copy(tail[:8], src[start>>3:])
	for ; i < len(out); i++ {
		at := bit - start
		out[i] = base + binary.LittleEndian.Uint64(tail[at>>3:])>>(at&7)&mask
		bit += width
	}
}

// unpackWide is unpack for numbers that may straddle nine bytes.
func unpackWide(src []byte, width uint, base uint64, out []uint64) {
	mask := ^uint64(0) >> (64 - width)
	bit := uint(0)
	for i := range out {
		var window [16]byte
		copy(window[:9], src[bit>>3:])
		shift := bit & 7
		v := binary.LittleEndian.Uint64(window[:]) >> shift
		v |= uint64(window[8]) << (64 - shift) // shifts by 64 give 0
		out[i] = base + v&mask
		bit += width
	}
}
