// Package spool keeps samples that were acknowledged and are on their way to a
// remote store: in a log, so that they outlive the process, and in memory, so
// that queries see them and a sink can gather them. It knows nothing of the
// store behind the sink.
//
// # Generations
//
//	Append --> log record --> durable ----------------------------> Append returns
//	   |                                                               (acknowledge: spool)
//	   +--> active generation --cut--> frozen --sink.Write--> drained
//	             head                  head, or a block file
//
// Samples gather in the active generation until it is cut: when it has lingered
// long enough and the sink is idle, when somebody waits for it, or when it is
// large. Frozen generations go to the sink one at a time, oldest first, each as
// often as it takes. A generation that the sink has taken is dropped, and its part
// of the log given up. What the sink has written of a generation that it could not take
// whole is no longer read from here: see PartialError.
//
// # What the log holds
//
// Batches with their write timestamps, and marks that end generations (see
// logrecord.go and docs/formats/spool.md). A mark is durable before the sink sees
// the generation, unless the disk is full.
//
// # Notes about samples
//
// Others keep notes about samples, as roll-ups do of those that come late: see
// [downsample.Journal]. They store them before segments are given up that have these
// samples, and before what says that a replay begins behind them is logged. A sample that
// is not replayed has been drained, and its note is stored.
//
// A start tells of which hours it has replayed samples, those of generations included that
// the log says were drained: these may share a segment with later ones, and their notes be
// in the memory of the process before. The hours are in the file hours from before the log
// is given up until somebody has noted them. After an orderly end notes are stored, and the
// start tells of nothing: the file noted says so, and is removed before anything is
// appended.
//
// # Full disks
//
// A log that fails for lack of space takes nothing until there is room for a new one;
// a spool that is opened on a full disk begins with such a log. What waits goes on being
// read and drained: generations are cut in memory, under the stamps that their samples
// have. Nothing says what was drained, so no part of the log is given up before all of
// it is drained; then it is removed as a whole, the newest segment first. A crash leaves
// a log that is drained again, from its begin.
//
// Notes that cannot be written to this disk go to the remote store: it was reached just
// now. Hours that a start has found have no other place than their file, but they need
// none once tasks are read, which are in the remote store too. Until both are done the log
// stays. Space that is reserved for notes would not do: others take it as soon as it is
// given back, and a file that is written in place needs a format of its own. Nor can notes
// be written into the space that the log gives back: a crash in between would lose them.
//
// # Write timestamps
//
// The write timestamp of a sample, its stamp, is the time at which Append put it
// into log and head, and is in both. Not the time at which the generation ends:
// that is linger later, or hours later in an outage, and then
//
//   - of two processes that acknowledge a value of the same series and time, the
//     one whose generation ended last would win, and not the one that was later;
//   - what another process deleted in between would be written above the
//     tombstone, and be there again.
//
// No single stamp of a generation can be right: with that of its end the above
// happens to its first samples, with that of its begin a tombstone, or an older
// value of another process, hides its last ones. So each sample has its own. With
// clocks that agree, the remote store then decides as if every sample had been
// written when it was acknowledged, however often and late it is written.
//
// The clock may be set back. By up to clockLead stamps stand still until it has
// caught up. By more, it had been wrong: stamps follow it, and what waits here
// with stamps of the wrong time gets some of now, in its order. What the remote
// store took with stamps in the future keeps them; that cannot be repaired.
//
// Invariants:
//
//   - Stamps ascend in the order of the log, and strictly from generation to
//     generation, unless the clock is set back. What Flush returns lies between
//     two generations.
//   - Generations have numbers, which strictly ascend, always. What is drained is
//     told by number.
//   - The records of a generation introduce every series that they use. So the
//     log can be given up generation by generation.
//   - No segment is given up that holds a record of a generation which is not
//     drained. A generation that spans segments ends with one; small ones share
//     a segment, and what is drained of them is told apart by the number that
//     later records carry.
//
// # Memory and disk
//
// Heads take at most max_memory, those of drained generations that views hold
// included. Before that the oldest frozen ones are written to block files, from
// where the sink and queries read them. The log keeps what
// they hold, so these files are only memory by other means: they are removed when
// the spool is opened, and made again while the log is replayed. Log and files
// together take at most max_bytes; then Append refuses.
//
// # Which sample is valid
//
// Of samples with the same series and time the one written last: generations in
// their order, and what a head says within one.
//
// # Locks, in the order in which they are taken
//
//	files     giving up log segments, and opening another log; held across I/O, on a full
//	          disk also while others store their notes, under locks of theirs
//	order     that of the log (package writelog): log order = head order = order of
//	          generations; no I/O
//	registry, index
//	          their own; no I/O
//	mu        the list of generations and their holders; no I/O
package spool
