package downsample

// A Grid cuts all time into buckets, each of which begins where the one before ends.
type Grid interface {
	// Start is the first instant of the bucket that holds ms.
	Start(ms int64) int64

	// Next is the first instant after the bucket that holds ms.
	Next(ms int64) int64

	// Run is the time up to which buckets from start, which begins one, can be computed
	// together. They can without end if it is not bounded.
	Run(start int64) (endMS int64, bounded bool)
}
