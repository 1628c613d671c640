// Package wsp moves trees of Whisper's files into a store and out of one.
//
//	files -> walk -> workers: header, points -> lines of one series -> Sink
//	                    \--> what is wrong with a file, in the order of the files
//
// An import goes through the tree in one order and remembers the last file up to which
// all is stored or told. Whoever goes on behind that file loses nothing; files that are
// imported twice do no harm.
//
// # Bounds
//
// Each worker holds one block of lines (transfer.BlockBytes) and one piece of a file.
// At most maxAhead files are begun or finished behind one that is not.
package wsp
