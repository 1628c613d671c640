package numeric

import "math/big"

// LeastSquares fits a line to values over time. The first value is at start, each
// further one a step later. ok is false if there are fewer than two. The sums of
// indexes are exact, because their differences are small in comparison to them.
func LeastSquares(values []float64, start, step int64) (slope, offset float64, ok bool) {
	n, places, squares := new(big.Int), new(big.Int), new(big.Int)
	sum, products := 0.0, 0.0
	const block = 1024 // the sum of this many squares fits into 64 bits
	for first := 0; first < len(values); first += block {
		var blockN, blockPlaces, blockSquares uint64
		for k, v := range values[first:min(first+block, len(values))] {
			if IsNull(v) {
				continue
			}
			i := uint64(first + k)
			blockN, blockPlaces, blockSquares = blockN+1, blockPlaces+i, blockSquares+i*i
			sum += v
			products += float64(i) * v
		}
		n.Add(n, new(big.Int).SetUint64(blockN))
		places.Add(places, new(big.Int).SetUint64(blockPlaces))
		squares.Add(squares, new(big.Int).SetUint64(blockSquares))
	}
	spread := new(big.Int).Sub(new(big.Int).Mul(n, squares), new(big.Int).Mul(places, places))
	if spread.Sign() == 0 {
		return 0, 0, false
	}
	float := func(i *big.Int) float64 {
		f, _ := new(big.Float).SetInt(i).Float64()
		return f
	}
	slope = (float(n)*products - float(places)*sum) / float(spread) / float64(step)
	offset = (float(squares)*sum-products*float(places))/float(spread) - slope*float64(start)
	return slope, offset, true
}
