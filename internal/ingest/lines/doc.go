// Package lines reads lines from connections and hands them on in blocks. Each connection reads a
// large block, has all its complete lines parsed into one batch and stored, and reads on:
//
//	socket -> buffer [ line \n line \n ... line \n | partial line ]
//	                   \___ one batch, one Append _/   moved to the front
//
// While the store is busy the socket fills, so that the next block is larger: a slow group commit
// is shared by more lines. A sender that is too fast is slowed down by its socket, and none of its
// lines is dropped.
//
// Invalid lines get no reply. If a sender never reads, an unread reply turns its close into a
// reset, which may cost it good lines. Invalid lines are counted by reason and shown at
// /admin/rejected.
package lines
