// Package wsp imports trees of Whisper files into a store, and exports them.
//
//	files -> walk -> workers: header, points -> lines of one series -> Sink
//	                    \--> faults of files, in the order of the files
//
// An import walks the tree in a fixed order and calls Done for each file in that order,
// after its points are stored. An import that resumes after the last such file loses
// nothing. Importing a file twice is harmless.
//
// # Limits
//
// Each worker holds one block of lines (transfer.BlockBytes) and one piece of a file.
// At most maxAhead files are in progress, or wait for an earlier file to finish.
package wsp
