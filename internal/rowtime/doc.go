// Package rowtime is the arithmetic and the bytes of KairosDB's rows: which
// row a sample belongs to, the row's key, the sample's column in it and the
// bytes of its value. Both stores use it; it does no I/O.
//
//	data_points.key  +--------+----+-----------+----+--------+------+----------+
//	(Key)            | metric | 00 | row time  | 00 | length | type | tags     |
//	                 | UTF-8  |    | i64, ms   |    | u8     |      | n=v:n=v: |
//	                 +--------+----+-----------+----+--------+------+----------+
//	column1          i32: time - row time, in the keyspace's unit (Spec.Column)
//	value            depends on the type (AppendValue)
//
// Integers are big-endian. The page is docs/formats/kairosdb-rows.md; the tests
// run the vectors recorded from KairosDB 1.3 in testdata.
//
// # Row times and partitions
//
// KairosDB computes a row time as t - (abs(t) mod width), which below zero is
// not the start of an aligned span: each negative millisecond has a row of its
// own. That must stay so in a keyspace that KairosDB also reads. The embedded
// store, which needs spans that tile the time line, uses [Spec.Partition]
// instead; for t >= 0 both are the same.
package rowtime
