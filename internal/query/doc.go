// Package query admits requests for stored samples, limits them, and gives them
// cursors. It knows nothing of HTTP or of a query language. Each language works on a
// [Session]; languages share this engine but no operators.
//
// # A request
//
//	Engine.ReadText     reads what the client sent, within the memory of queries
//	  Text.Parse        waits for a turn, lets the front end parse it
//	Engine.Begin        waits for a free slot, opens a store.View: a Session
//	  Session.Select    finds series
//	  Session.Open      a Cursor over a series, any range, as often as needed
//	  Session.Parallel  work side by side; a panic becomes the error of the request
//	  Scan.Read         whole series for a Reducer, by statistics where they serve
//
// Above cursors there are two things for languages that know numbers only:
//
//	Session.OpenNumber  long and double series of one name as one series: a Number
//	Session.GridFold    sum, count, min, max, first, last of numbers by a Grid of time
//
// Deletes and lists of names are admitted here, too: Engine.Delete, Session.Names.
//
// # Bounds
//
// A session is limited in series, samples, memory and time, and only so many run
// at once while a bounded number wait. Each limit is a *store.LimitError that
// names its configuration key. A language takes the memory that it holds from a [Lease].
// Points that it generates without reading samples count against Session.MaxSamples. All
// loops check the context at least once per block of samples, or by Session.Tick, so
// that a query stops within milliseconds of cancel, disconnect or timeout.
//
// # Turns
//
// While queries wait for a slot, a query that has computed for 20 ms gives up its slot and
// waits for its next turn. While there are several queries, each yields to other goroutines
// every millisecond. So short queries finish soon beside any number of long ones.
//
// # Tenants
//
// Each tenant has an Engine, with slots of its own. The engines of a server share its
// processors by Turns, so that costly queries of one tenant do not delay short ones of
// another.
//
// # Watching
//
// Session.Stats says what a session did and, for a Request with Trace, where its time
// went. Engine.WriteDown keeps the running queries in a file, which the next start reads
// after a crash.
package query
