package downsample

// A Grid cuts all time into buckets, each of which begins where the previous one ends.
type Grid interface {
	// Start is the first instant of the bucket that contains ms.
	Start(ms int64) int64

	// Next is the first instant after the bucket that contains ms.
	Next(ms int64) int64

	// Run is the time up to which the buckets from start, the beginning of a bucket,
	// can be computed together. If it is not bounded, there is no such limit.
	Run(start int64) (endMS int64, bounded bool)
}
