// Package quantile stores the distribution of numbers in little space, as counts of narrow
// bins. Percentiles are read from it with a relative error of at most [RelativeError]. It
// does no I/O and knows nothing of series or time.
//
// A bin has all numbers from g^i, inclusive, to g^(i+1), exclusive, with g = 2^(1/35), as in
// DDSketch (Masson, Rim and Lee, 2019). Negative numbers have bins of their own, as have zero
// and each infinity. Bins are computed from the bits of a number, without a logarithm, so all
// machines make the same sketch.
//
// Properties of sketches:
//
//   - A sketch depends on the numbers alone, neither on their order nor on the order of
//     merges. Equal sketches are equal strings.
//   - NaN is not counted.
//   - A sketch has at most [MaxBins] bins. Beyond that, the lowest ones are merged into the
//     highest of them. So the bins that remain are the highest ones of all numbers, in
//     whatever order sketches were merged. Small percentiles are then too high.
//
// Layout of a sketch, which has at least one number. Integers are varints of 7 bits per
// byte, least significant first, in the fewest bytes:
//
//	+----------------------+-----------+------------------+-----------+-----+
//	| first bin - 35,771   | count - 1 | (gap - 1) * 2    | count - 2 | ... |
//	| zigzag               |           | + (count > 1)    | if > 1    |     |
//	+----------------------+-----------+------------------+-----------+-----+
//	|        lowest bin                |       each higher bin              |
//
// Bin 35,771 is the bin of 1; gap is the distance from the previous bin.
package quantile
