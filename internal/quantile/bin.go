package quantile

import "math"

// perOctave is how many bins there are from a number to twice that number. The
// representative of a bin differs from each number in it by at most
// (g-1)/(g+1) = 0.0099 of that number, where g = 2^(1/perOctave).
const perOctave = 35

// lowers has the bounds of the bins of an octave: round(2^52 * (2^(i/35) - 1)), the
// mantissa bits of the first double of bin i. They are constants because bins must be
// the same on all machines, and the last bit of a computed power is not.
var lowers = [perOctave + 1]uint64{
	0x0000000000000, 0x051ed35254d7b, 0x0a57de9c16bc7, 0x0faba81d4e5df, 0x151ab8c56eea2,
	0x1aa59c4115e7d, 0x204ce10811781, 0x2611186bae675, 0x2bf2d6a54f7da, 0x31f2b2e54f85d,
	0x381147622f886, 0x3e4f316812c30, 0x44ad116889e7b, 0x4b2b8b0aaf3c7, 0x51cb453b9536c,
	0x588cea3f093be, 0x5f7127c0ac32a, 0x6678aee5629f8, 0x6da4345d1e0ad, 0x74f47075017a0,
	0x7c6a1f29e2ce6, 0x8406003b2ae5c, 0x8bc8d73e16610, 0x93b36bb158fff, 0x9bc68911258c0,
	0xa402feeb9c533, 0xac69a0f5a241c, 0xb4fb472022b1a, 0xbdb8cdadbe120, 0xc6a31548e794d,
	0xcfbb031a741a5, 0xd90180e09c9e4, 0xe2777d0676770, 0xec1deabbe3c14, 0xf5f5c20dfe5f2,
	1 << 52,
}

// guess has, for each value of the first 8 bits of a mantissa, the bin of the least
// mantissa that begins with them. At most one bin begins between two such mantissas.
var guess = func() (table [256]uint8) {
	bin := 0
	for i := range table {
		for lowers[bin+1] <= uint64(i)<<44 {
			bin++
		}
		table[i] = uint8(bin)
	}
	return table
}()

// representatives has the mantissa bits of the number that represents a bin: the one
// with the same relative distance from both ends.
var representatives = func() (table [perOctave]uint64) {
	at := func(i int) float64 { return 1 + float64(lowers[i])/(1<<52) }
	for i := range table {
		low, high := at(i), at(i+1)
		table[i] = math.Float64bits(2*low*high/(low+high)) & (1<<52 - 1)
	}
	return table
}()

const (
	topBin = (1<<11-2)*perOctave + 1 // of the infinity; -topBin is of the negative one
	oneBin = (1<<10-2)*perOctave + 1 // of 1
)

// binOf returns the bin of a number that is not NaN. Bins have the order of their
// numbers. Bin 0 has zero and all numbers closer to it than the least normal double,
// 2.2e-308; bin -i has the numbers of bin i with the opposite sign.
func binOf(v float64) int32 {
	bits := math.Float64bits(v)
	exponent, mantissa := bits>>52&(1<<11-1), bits&(1<<52-1)
	if exponent == 0 {
		return 0
	}
	in := uint64(guess[mantissa>>44])
	if mantissa >= lowers[in+1] {
		in++
	}
	bin := int32((exponent-1)*perOctave+in) + 1
	if bits>>63 != 0 {
		return -bin
	}
	return bin
}

// valueOf returns the number that represents a bin.
func valueOf(bin int32) float64 {
	switch {
	case bin < 0:
		return -valueOf(-bin)
	case bin == 0:
		return 0
	case bin >= topBin:
		return math.Inf(1)
	}
	octave, in := uint64(bin-1)/perOctave, uint64(bin-1)%perOctave
	return math.Float64frombits((octave+1)<<52 | representatives[in])
}
