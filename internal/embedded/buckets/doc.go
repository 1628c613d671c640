// Package buckets reads and writes downsampled series: aggregates of time buckets to
// which a retention policy has reduced samples. Buckets are in block files of their own,
// one step to a file, under the numbers of the series.
//
//	raw files      |            .........................|  samples
//	60 s files     |     xxxxxxxx                         |  buckets
//	1 h files      | XXXX                                 |
//	               +--------------------------------------+ time
//
// Invariants:
//
//   - Each stored sample that is not deleted, expired or older than its policy is in
//     exactly one place: among the samples, or in one bucket. A [Fold] turns samples
//     into buckets, or buckets into wider ones, and one commit exchanges the files. So
//     nothing needs to be repeated after a crash, and nothing computed again for late
//     samples: they stay samples until they are folded too.
//   - Buckets of one series, step and time in several files add up. If a sample arrives
//     after its bucket was made, the next fold adds it to the bucket; it can no longer
//     replace an earlier sample of its time.
//   - A deletion removes the buckets that lie completely in its range.
package buckets
