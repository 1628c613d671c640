// Package spooled acknowledges the events of chosen timelines when they are in a log on the
// local disk, and puts them into the timelines afterwards. While the storage is away, such
// timelines take events on.
//
//	Append --> checked --> record in the log, synced --> acknowledged
//	                          |
//	                          +--> drain: the engine appends it, until it succeeds
//
// What is in the log is not seen by readers before it is drained. An event keeps the time at
// which it was acknowledged as its write timestamp, so that a delete since then holds, and is
// placed by the layout that is valid when it is drained. To put it twice changes nothing:
// after a crash the log is drained again from its begin.
//
// The drain ends the segment that is being written, reads what came before it, appends that,
// and gives the segments up. So memory is bounded whatever the log holds, and the order of
// events, which timelines do not depend on, is that of arrival.
//
// The log is package writelog, as that of samples: it refuses records on a full disk and takes
// them again when there is room.
package spooled
