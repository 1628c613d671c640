// Package quantile keeps how numbers are distributed, in little space: how many of them
// lie in each of many narrow bins. Percentiles are read from it with a relative error of
// at most [RelativeError]. It does no I/O and knows nothing of series or time.
//
// A bin has all numbers from g^i to g^(i+1), without the latter, g = 2^(1/35), as in
// DDSketch (Masson, Rim and Lee, 2019). There is one for zero, one for each infinity, and
// the same ones again for negative numbers. Bins are computed from the bits of a
// number, without a logarithm: all machines make the same sketch.
//
// What is true of sketches:
//
//   - A sketch depends on the numbers alone, not on their order, nor on which sketches
//     were merged in which order. Equal sketches are equal strings.
//   - NaN is not counted.
//   - At most [MaxBins] bins have a number. Beyond that the lowest ones become one, the
//     highest of them. So the bins that are left are the highest ones of all numbers,
//     whichever sketches were merged before. Small percentiles are too high then.
//
// Layout of a sketch, which has one number at least. Integers are varints of 7 bits per
// byte, least significant first, in the fewest bytes:
//
//	+----------------------+-----------+------------------+-----------+-----+
//	| first bin - 35,771   | count - 1 | (gap - 1) * 2    | count - 2 | ... |
//	| zigzag               |           | + (count > 1)    | if > 1    |     |
//	+----------------------+-----------+------------------+-----------+-----+
//	|        lowest bin                |       each higher bin              |
//
// Bin 35,771 is that of 1; gap is the distance from the bin before.
package quantile
