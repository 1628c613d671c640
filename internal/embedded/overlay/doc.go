// Package overlay reads one series where the embedded store has samples of it:
// in block files, in the head that is being written to files, and in the head
// that takes writes.
//
// # Which sample is valid
//
// The places are layers: files by Sequence, then the frozen head, then the active
// one. Of samples with the same time that of the last layer is valid, and it hides
// the others even if it has expired. A layer has a time once.
//
// # Deletions
//
// Each layer knows up to which deletion (by sequence) it has applied them. Later
// ones hide its samples, and only its: what was written after a deletion is in a
// later layer. The list of deletions is read after the heads were looked at: a
// deletion is on the list before it is applied to the active head, so that a reader
// who misses a sample there does not see the one that it replaced.
//
// # Blocks
//
// A cursor hands out columns without copying them where no other layer has samples
// in between. A chunk that no other layer reaches into is not even decoded if the
// reader wants statistics: the chunk's own are handed out, or those of its parts. It is
// decoded if most of these would be of one sample.
package overlay

import (
	"varve/internal/blockfile"
	"varve/internal/head"
	"varve/internal/record"
)

// Layers are the places where samples are. They do not change.
type Layers struct {
	Files  []*blockfile.File // oldest first; those of buckets are passed over
	Frozen *head.Head        // nil = none
	Active *head.Head

	// FrozenDeletions: deletions up to this sequence were applied to Frozen.
	FrozenDeletions uint64
	// Deletions returns those that some file or Frozen has not applied.
	Deletions func() []*record.Deletion
	// Failed is told of errors of reading, for example of damage.
	Failed func(error)
}
