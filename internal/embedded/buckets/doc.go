// Package buckets reads and makes what is left of samples that a policy has thinned
// out: aggregates of buckets, in block files of their own, one step to a file, under
// the numbers of the series.
//
//	raw files      |            .........................|  samples
//	60 s files     |     xxxxxxxx                         |  buckets
//	1 h files      | XXXX                                 |
//	               +--------------------------------------+ time
//
// What is true at any time:
//
//   - Each sample that was stored, and has not been deleted, expired or outlived its
//     policy, is in exactly one place: among the samples, or in one bucket. A [Fold]
//     makes buckets of samples, or wider buckets of narrower ones, and one commit
//     exchanges the files. So there is nothing to repeat after a crash, and nothing
//     to compute again when samples come late: they are samples until they are folded
//     as well.
//   - Buckets of one series, step and time in several files add up. A sample that
//     comes late enough to find its bucket made is added to it by the next fold; it
//     can no longer replace one of its time.
//   - A deletion takes the buckets that lie in its range as a whole.
package buckets
