package chunk

// skipInts advances r past an integer column of n numbers, at least one, without
// decoding them. It detects less damage than ints does.
func skipInts(r *reader, n int) {
	control := r.u8()
	if control&intUnknown != 0 {
		r.fail("unknown integer column %#x", control)
	}
	switch control {
	case intConst:
		r.skipVarints(1)
		return
	case intDeltaConst:
		r.skipVarints(2)
		return
	}
	width := uint(r.u8())
	if width > 64 {
		r.fail("%d bits per number", width)
	}
	varints := 1 // the base
	switch control & intModeMask {
	case intFrame:
	case intDelta:
		n, varints = n-1, 2
	case intDelta2:
		n, varints = n-2, 3
	default:
		r.fail("unknown integer column %#x", control)
	}
	if n < 0 {
		r.fail("second differences of one number")
	}
	r.skipVarints(varints)
	if control&intExceptions != 0 {
		skipPairs(r, n)
	}
	if control&intHuffman != 0 {
		r.take(int(min(r.uvarint(), MaxSamples*2)))
		width = lowBits(width)
	}
	if r.err == nil {
		r.take(packedLen(n, width))
	}
}

// skipPairs skips the list of outliers among n numbers.
func skipPairs(r *reader, n int) {
	count := r.uvarint()
	if count > uint64(max(n, 0)) {
		r.fail("%d outliers among %d numbers", count, n)
	}
	if count > 0 {
		r.skipVarints(2 * int(count))
	}
}

// skipDoubles advances r past a column of n doubles, at least one, as skipInts does.
func skipDoubles(r *reader, n int) {
	tag := r.u8()
	switch {
	case tag == doubleConst:
		r.take(8)
	case tag == doubleRaw:
		r.take(8 * n)
	case tag == doubleSplit:
		count := r.uvarint()
		if count == 0 || count > splitMaxTop {
			r.fail("%d sign and exponent pairs", count)
			return
		}
		r.skipVarints(int(count))
		skipInts(r, n)
		r.take(packedLen(n, splitBits))
	case tag&^(doubleExponentMask|doubleExceptions) == 0:
		if tag&doubleExceptions != 0 {
			count := r.uvarint()
			if count > uint64(n) {
				r.fail("%d exceptions among %d doubles", count, n)
				return
			}
			for range count {
				r.skipVarints(1)
				r.take(8)
			}
		}
		skipInts(r, n)
	default:
		r.fail("unknown column of doubles %#x", tag)
	}
}
