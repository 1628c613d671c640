package model

// SeriesNumber identifies a series within a store: dense, assigned from 0 on, and the
// same in memory, in the log, in files and in the catalogue. It may be assigned to
// another series once nothing durable refers to it. A set of them is a roaring bitmap
// of plain uint32.
//
// It is not a store.Ref, which callers hold: a Ref becomes void when the epoch moves,
// and a view of the store over Cassandra has Refs that are not numbers of series at
// all.
type SeriesNumber uint32
