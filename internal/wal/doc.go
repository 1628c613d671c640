// Package wal is a segmented, checksummed, group-committed log of opaque records. It
// knows nothing of samples.
//
// # Writing
//
// [Log.Append] copies a record into a buffer in memory and returns a [Ticket]. One
// goroutine writes and syncs a buffer while appenders fill the other one, so that one
// sync acknowledges everything that was queued during the previous sync. If several
// appenders are busy, a sync also waits a moment for the appenders that the previous
// sync served, so that they share a sync instead of taking turns. [Log.Wait] returns
// when a ticket is acknowledged. Records are on disk in the order of the Append calls.
//
// A caller that applies records to memory in the same order holds its own lock around
// Append and the change in memory. Append does no I/O; the caller waits for room with
// [Log.Reserve] before it takes that lock.
//
// # Reading
//
// [Replay] yields the records of a closed log, or of one whose process or machine died.
// It distinguishes a torn tail (bytes that were being written at the crash, never
// acknowledged as durable) from damage (bytes that were durable and are unreadable
// now). A torn tail is cut off and counted. Damage is a
// [varve/internal/store.CorruptionError] and ends the replay, unless the caller decides
// to continue after it.
//
// # Files
//
// docs/formats/wal.md draws the bytes. Invariants:
//
//   - Segments are numbered upwards from 1, without gaps. Only the process that created
//     a segment writes to it.
//   - A segment's header is durable before its first record is written, and everything
//     in the previous segment is durable before that header is written. The header
//     contains the length of the previous segment.
//   - Each record contains how much of its segment was durable when it was written.
//   - Checksums depend on the segment's number and the record's place, so old bytes in
//     a reused file are never mistaken for a record.
//   - After a failed write or sync the log accepts no more records. It does not repeat
//     a sync: the system may have dropped the pages that it could not write.
package wal
