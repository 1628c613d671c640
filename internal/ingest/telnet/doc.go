// Package telnet takes samples by KairosDB's telnet protocol, which OpenTSDB's
// put also is. docs/formats/telnet.md has the grammar.
//
// A [Command] is the pure parser of one line. A [Server] owns listener,
// connections and their goroutines. Each connection reads large blocks, parses
// all complete lines of a block into one batch, stores it, and reads on:
//
//	socket -> buffer [ line \n line \n ... line \n | partial line ]
//	                   \___ one batch, one Append _/   moved to the front
//
// While the store is busy the socket fills, so that the next block is larger:
// group commit is paid for by more lines when it is slow. A sender that is too
// fast is held up by its socket, never dropped.
//
// Faulty lines get no reply: an unread reply makes the close of a sender that
// never reads a reset, and that may cost it good lines. They are counted by
// reason and shown at /admin/rejected.
package telnet
