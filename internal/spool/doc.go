// Package spool keeps acknowledged samples until a remote store has them: in a
// log, so that they survive the process, and in memory, so that queries see them
// and a sink can write them in batches. It does not depend on the store behind the
// sink.
//
// # Generations
//
// Append logs a batch, adds it to the active generation, and returns once the record is durable.
// A generation has these states:
//
//	            cut             sink.Write            all earlier ones    no view left
//	   active -------> frozen ---------------> written -----------> drained ---------> gone
//	                    |  ^ error, or a part
//	                    +--+
//
//	samples  in a head | in a head or, for lack of memory, in block files ............|
//	log      has them, for a replay .......................| may be released
//	queries  read them here and ...| only what the sink   | only in views opened before
//	         not in the store      | has not written      |
//
// The list held has them in the order of age, so the states in it descend: drained ones that views
// read, frozen and written ones, and the active one, which is always the last.
//
//   - active to frozen: when it has lingered long enough and the sink is idle, when a flush waits for
//     it, or when it is large. Only the order lock's holder cuts.
//   - frozen to written, to drained: by the drainer alone, one generation at a time, oldest first. After
//     a *PartialError it also tries later ones. They become drained in order, because the log names
//     only the last drained one.
//
// # What the log holds
//
// The log holds batches with their write timestamps, and marks that end generations
// (see logrecord.go and docs/formats/spool.md). A mark is durable before the sink
// sees the generation, unless the disk is full.
//
// # Notes about samples
//
// Other packages keep notes about samples, as roll-ups do about late ones: see
// [downsample.Journal]. They store a note before the spool releases the segments that have
// the samples, and before it logs a mark that makes a replay begin after them. So if a
// sample is not replayed, it has been drained and its note is stored.
//
// After a start, the spool reports the hours of all samples that it has replayed, also of drained
// ones: their notes may have been only in the memory of the previous process. The hours are in the
// file "hours" before the log is released, and until all users have noted them. An orderly shutdown
// stores all notes and creates the file "noted": then the next start reports no hours. That file is
// removed before the first append.
//
// # Full disks
//
// A log that fails for lack of space refuses records until there is room for a new log;
// a spool that is opened on a full disk begins with such a log. Pending samples are still
// read and drained: generations are cut in memory, and keep the stamps of their samples.
// The full log cannot record which generations were drained. So it is removed as a whole once
// all of it is drained, the newest segment first. After a crash all of it is drained again.
//
// Notes that cannot be written to this disk go to the remote store, which has just
// accepted samples. Hours that a start has found can be stored only in their file, but
// need not be stored once the roll-up tasks have been read from the remote store. The log
// stays until notes and hours are stored: if it were released first, a crash would lose them.
//
// # Write timestamps
//
// The write timestamp of a sample, its stamp, is the time at which Append put it
// into log and head; both hold it. If clocks agree, the remote store then treats every sample as
// if it had been written when it was acknowledged, however late and however often it is written.
//
// A stamp for a whole generation would not do. With the time of its end, hours later in an outage,
// its first samples would win over later writes of other processes, and reappear above their
// deletes. With the time of its beginning, older values and deletes would hide its last samples.
//
// The clock may be set back. If the step is at most clockLead, stamps stand still until
// the clock has caught up. If the step is larger, the clock was wrong before: stamps
// follow it, and pending samples with stamps in the future get current stamps in the
// same order. Samples that the remote store already has keep theirs.
//
// Invariants:
//
//   - Stamps ascend in the order of the log, and strictly from generation to
//     generation, unless the clock is set back. The stamp that Flush returns lies
//     between those of two generations.
//   - Generations have numbers, which always strictly ascend. The log names drained
//     generations by number.
//   - The records of a generation introduce every series that they use. So the
//     log can be released generation by generation.
//   - A segment with a record of an undrained generation is never released. A
//     generation that spans segments ends with a segment. Small generations share
//     a segment; later records carry the number of the last drained one.
//
// # Memory and disk
//
// Heads take at most max_memory, including those of drained generations that views
// hold. Before that bound is reached, the oldest frozen heads are written to block
// files, from which the sink and queries read them. The log has their samples too, so these
// files need not be durable: each start removes them. Log and files together take at most
// max_bytes; beyond that, Append refuses writes.
//
// # Which sample is valid
//
// Of samples with the same series and time, the one written last is valid: that of
// the latest generation and, within a generation, the one that its head returns.
//
// # Locks, in the order in which they are taken
//
//	files     held to release log segments and to open another log, across I/O; on a full
//	          disk also while other packages store their notes, under their own locks
//	order     of package writelog: log order = head order = order of generations; no I/O
//	registry, index
//	          their own; no I/O
//	mu        the list of generations and their holders; no I/O
package spool
