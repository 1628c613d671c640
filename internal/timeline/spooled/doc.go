// Package spooled acknowledges the events of chosen timelines as soon as they are in a log on
// the local disk, and puts them into the timelines afterwards. Such timelines accept events
// even while the storage is unavailable.
//
//	Append --> checked --> record in the log, synced --> acknowledged
//	                          |
//	                          +--> drain: the engine appends it, until it succeeds
//
// Readers do not see an event before it is drained. The write timestamp of an event is the
// time at which it was acknowledged, so that a later delete removes it. The layout that is
// valid when the event is drained decides where it is stored. Putting an event twice is
// harmless: after a crash the log is drained again from its beginning.
//
// The drain ends the segment that is being written, reads and appends the events of all
// finished segments, and removes them. So memory is bounded, however large the log is.
// Events are appended in the order of arrival, though timelines do not depend on it.
//
// The log is that of package writelog, as for samples: it refuses records on a full disk and
// accepts them again when there is room.
package spooled
