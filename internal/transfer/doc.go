// Package transfer exports points from a store and imports them, in the format of
// KairosDB's export files: one JSON object per line, which is also valid ingest
// JSON.
//
//	{"name":"load","tags":{"host":"a"},"datapoints":[[1700000000000,5,"long"],[1700000001000,0.5,"double"]]}
//
// A line written here holds at most LinePoints samples of one series, in ascending
// time. Varve adds two things to the format:
//
//   - Values that JSON cannot express (custom types, null, NaN and infinities, text
//     that is not UTF-8) are written as the base64 of the stored bytes; the type of
//     the line is "base64:" and the stored type (see kairosjson.RawType). Longs and
//     doubles are then 8 bytes, big-endian. KairosDB refuses such lines because of
//     their type.
//   - A series without tags has the member "skip_validate":true, without which
//     imports refuse it.
//
// Times before 1970 are exported. Times-to-live are not, because stores do not
// return them; KairosDB does not export them either.
//
// # Import
//
// Lines are stored in blocks of about BlockBytes. A block is acknowledged when it is
// durable, so a caller that records the position of the last one can resume there.
// Storing lines twice is harmless. A line that cannot be stored is reported with its
// number and does not affect other lines.
package transfer
