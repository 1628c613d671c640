// Package lines takes lines from connections and hands them on in blocks. Each
// connection reads large blocks, has all complete lines of a block parsed into one
// batch and stored, and reads on:
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
package lines
