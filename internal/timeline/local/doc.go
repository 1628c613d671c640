// Package local stores the timelines of a single process: a timeline.Shelf over ordered keys
// in Pebble, in a directory of its own. docs/formats/timelines.md draws the rows.
//
// A timeline is one run of keys, newest first. Buckets and partitions are not part of the
// keys: a range of time is one scan, whatever the layout is. The partition is stored with
// the event, so that one partition can be read as well.
//
// Order: a Put is one batch of Pebble, so its events and arrivals become durable together.
// Batches get their place in the log of arrivals and in Pebble's log under one lock, and
// are then synced together with those of other writers.
package local
