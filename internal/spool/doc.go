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
// of the log given up.
//
// # What the log holds
//
// Records of package record, and two of its own (see logrecord.go and
// docs/formats/spool.md). A record that ends a generation carries the write
// timestamp under which the sink writes it, and is durable before the sink sees
// the generation. After a crash the same samples therefore go to the remote
// store under the same timestamp, and what was deleted there meanwhile, under a
// later one, stays deleted.
//
// Invariants:
//
//   - Write timestamps strictly increase, also over restarts and when the clock
//     goes backwards. What Flush returns lies between two of them.
//   - The records of a generation introduce every series that they use. So the
//     log can be given up generation by generation.
//   - No segment is given up that holds a record of a generation which is not
//     drained. A generation that spans segments ends with one; small ones share
//     a segment, and what is drained of them is told apart by the timestamp that
//     later records carry.
//
// # Memory and disk
//
// Heads take at most max_memory. Before that the oldest frozen ones are written
// to block files, from where the sink and queries read them. The log keeps what
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
//	files     giving up log segments, and opening another log; held across I/O
//	order     log order = head order = order of generations; no I/O
//	registry, index
//	          their own; no I/O
//	mu        the list of generations and who holds them; no I/O
package spool
