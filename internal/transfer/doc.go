// Package transfer moves points out of a store and into one as text, in the form
// of KairosDB's export files: one JSON object per line, which is valid ingest
// JSON too.
//
//	{"name":"load","tags":{"host":"a"},"datapoints":[[1700000000000,5,"long"],[1700000001000,0.5,"double"]]}
//
// A line written here holds samples of one series, at most LinePoints of them,
// in ascending time. Two things are Varve's own:
//
//   - What JSON cannot hold (custom types, null, NaN and infinities, text that
//     is not UTF-8) is written as the base64 of the stored bytes, with the stored
//     type behind "base64:" (see kairosjson.RawType). Longs and doubles are 8
//     bytes big-endian there. KairosDB refuses such lines by their type.
//   - A series without tags has the member "skip_validate":true, without which
//     no import takes it.
//
// Times of all signs are exported. Times-to-live are not: a store does not give
// them back, and neither does KairosDB.
//
// # Import
//
// Lines are stored in blocks of about BlockBytes. A block is acknowledged when
// it is durable, so whoever remembers the position of the last one can go on
// from there; storing lines twice is harmless. A line that cannot be stored is
// reported with its number, and the lines around it go on.
package transfer
