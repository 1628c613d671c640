// Package query admits requests for stored samples, limits them, and gives them
// cursors. It depends neither on HTTP nor on a query language. Each language works on a
// [Session]; languages share this engine but no operators.
//
// # A request
//
//	Engine.ReadText     reads what the client sent, within the memory of queries
//	  Text.Parse        waits for a turn, lets the front end parse it
//	Engine.Begin        waits for a free slot, opens a store.View: a Session
//	  Session.Select    finds series
//	  Session.Open      a Cursor over a series, any range, as often as needed
//	  Session.Parallel  runs work in parallel; a panic becomes the error of the request
//	  Scan.Read         whole series for a Reducer, from statistics if they suffice
//
// For languages whose only values are numbers, there are two layers above cursors:
//
//	Session.OpenNumber  long and double series of one name as one series: a Number
//	Session.GridFold    sum, count, min, max, first, last of numbers by a Grid of time
//
// Deletes and lists of names are admitted here, too: Engine.Delete, Session.Names.
//
// # Bounds
//
// A session is limited in series, samples, memory and time. The number of sessions that
// run is bounded, and so is the number that wait. The error of each limit is a
// *store.LimitError that names its configuration key. A language takes the memory that it holds from a [Lease].
// Points that it generates without reading samples count against Session.MaxSamples. All
// loops check the context at least once per block of samples, or by Session.Tick, so
// that a query stops within milliseconds of cancel, disconnect or timeout.
//
// # Turns
//
// While queries wait for a slot, a query that has computed for 20 ms gives up its slot and
// waits for its next turn. A query that waits for memory, or for a store on other machines, lends
// its slot. While there are several queries, each yields to other goroutines
// every millisecond. Short queries thus finish soon beside any number of long ones.
//
// # Tenants
//
// Each tenant has an Engine, with slots of its own. The engines of a server share its
// processors by Turns, so that costly queries of one tenant do not delay short ones of
// another.
//
// # Watching
//
// Session.Stats counts the work of a session and, for a Request with Trace, the time of
// its phases. Engine.WriteDown keeps the running queries in a file, which the next start reads
// after a crash.
package query
