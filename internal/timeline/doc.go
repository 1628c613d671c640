// Package timeline keeps ordered streams of events. Events are ordered by position: the
// time in microseconds, then the id. The newest events are the cheapest to read.
//
// An [Engine] knows how a timeline is laid out and answers requests. Below it a [Shelf]
// stores rows: package local in one process, package cassandra/events in a cluster.
//
//	timeline "deploys", over time ->
//
//	 layout entry 1: 1 d buckets, 1 partition       | entry 2: 1 h buckets, 3 partitions
//	+-------------------+---------------------------+---------+---------+---------+
//	| bucket            | bucket                    | bucket  |         | bucket  |
//	| part 0            | part 0                    | parts   | (empty) | parts   |
//	|                   |                           | 0, 1, 2 |         | 0, 1, 2 |
//	+-------------------+---------------------------+---------+---------+---------+
//	 ^ mark              ^ mark                      ^ mark              ^ mark
//
// The rules that make a reader see every acknowledged event:
//
//   - A bucket is marked in the directory, durably, before its first event is put.
//     Reading backwards ends at the oldest mark, never at an empty bucket.
//   - A layout entry applies to buckets that begin at least the lead time after it was
//     written. A process touches only buckets that begin within the lead time (less the
//     clock skew) after it last read the layout. So no process can use an old layout
//     for a new bucket.
//   - A layout entry begins where buckets of both the old and the new size begin, so no
//     bucket belongs to two layouts.
//   - A payload that is stored separately is durable before the event that points to it.
//
// An append of events takes these steps. All errors before the put concern single events or
// timelines, and the others continue:
//
//	identify  events without an id get one; invalid ones are rejected
//	open      timelines are locked against deletes; layouts are read; missing timelines are created
//	place     each event gets its part; of several at one position, the last one is put
//	mark      buckets that were not marked recently are marked
//	put       the shelf stores the events and their arrivals; after a slow put, marks are repeated
//	announce  readers that follow the timelines wake
//
// Events may be acknowledged earlier than they are put: Accept takes the first step and gives them a
// write timestamp, package spooled keeps them, and AppendAccepted takes all steps with that timestamp.
// What was deleted in between stays deleted: a deleted timeline is not created again by older
// events, and deletes are looked up (see DeletionLog) between mark and put, and again after the put.
//
// Events are immutable. An event that is put at the position of another one replaces it,
// so a retry is harmless.
package timeline
