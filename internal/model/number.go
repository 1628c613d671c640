package model

// SeriesNumber is what a store calls one of its series by: dense, given out from 0 on,
// and the same in memory, in the log, in files and in the catalogue. It may be given to
// another series once nothing durable names it. A set of them is a roaring bitmap, whose
// elements are bare.
//
// It is not a store.Ref. That is what callers hold; it is void after an epoch, and a view
// of the store over Cassandra has refs that are no numbers at all.
type SeriesNumber uint32
