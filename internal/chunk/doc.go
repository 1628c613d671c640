// Package chunk packs consecutive samples of one series into chunks, and chunks of many
// series into pages. It does no I/O.
//
// A chunk is columns: times, times-to-live if there are any, values. Numbers are turned
// into small integers where that loses nothing (a double with two decimals is an
// integer divided by 100), then into differences or offsets, then into packed bits.
// Every int64 and every bit pattern of a double is preserved.
//
// # Single chunk
//
// [Append] writes a self-contained chunk, for memory. The kind is not in it: the caller
// passes it to [Decoder.Decode]. "var" and "uvar" are varints, signed (zigzag) and
// unsigned:
//
//	+-------+-------+---------+-------------+----------+------------+---------+--------+
//	| count | flags | first   | last - first| TTL, s   | times      | TTLs    | values |
//	| uvar  | u8    | ms, var | ms, uvar    | if const | if coded   | if they |        |
//	|       |       |         |             |          |            | differ  |        |
//	+-------+-------+---------+-------------+----------+------------+---------+--------+
//
// # Page
//
// [PageBuilder] writes chunks of many series, ordered by series and time:
//
//	+---------+---------+-----+---------+----------------+
//	| version | entry 1 | ... | entry n | crc32c of all  |
//	| u8      |         |     |         | before, u32 LE |
//	+---------+---------+-----+---------+----------------+
//
// An entry begins with a header that [Iter] reads without touching the columns: series,
// kind, count, times, expiry and, from 32 fixed values on, statistics. An entry may use
// the times of an earlier one of its page. Each field and column is drawn in
// docs/formats/chunk.md.
//
// Invariants:
//   - 1 <= count <= MaxSamples: an empty chunk is never written.
//   - Times strictly increase, within a chunk and from chunk to chunk of a series.
//   - Statistics give back every bit of a left-to-right float64 pass over the values; a
//     chunk with a NaN has none.
//   - Decoding allocates for at most MaxSamples samples and MaxExpandedBytes of values
//     per chunk, or what the input holds, whatever the bytes say.
package chunk
