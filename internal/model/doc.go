// Package model holds the nouns that every other package shares: value types,
// tags, series, samples in columns, chunk statistics, matchers and time ranges.
// It does no I/O.
//
// # Series
//
// A series is metric + sorted tags + value type. Long and double values of one
// metric and tag set are two series, as in KairosDB, and may hold samples at
// the same time. Tags are ordered by name the way Java orders strings (UTF-16
// code units, see [CompareNames]), because KairosDB's row keys are.
//
// # Series key
//
// The canonical key identifies a series in maps, in the write-ahead log and in
// the catalogue. Lengths are unsigned varints:
//
//	+------+-----------------+--------+--------+------------------------+
//	| kind | custom type     | length | metric | tags                   |
//	| u8   | length + name,  |        |        | (length name           |
//	|      | Custom only     |        |        |  length value)*        |
//	+------+-----------------+--------+--------+------------------------+
//
// # Samples
//
// A sample is a time in milliseconds since the Unix epoch (negative before
// 1970) and a value. Samples travel in [Columns]; within one Columns times
// strictly increase.
package model
