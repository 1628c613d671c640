// Package overlay reads one series from all places where the embedded store has
// samples of it: block files, the frozen head, which is being written to files, and the
// active head, which takes writes.
//
// # Which sample is valid
//
// These places are layers: files by Sequence, then the frozen head, then the active
// head. Of samples with the same time, the one in the last layer is valid. It hides the
// others even if it has expired. Within a layer, times are distinct.
//
// # Deletions
//
// Each layer knows the sequence up to which it has applied deletions. A later deletion hides the
// samples of this layer, but not those of later layers, which were written after it. A reader
// examines the heads first and the list of deletions second. A deletion is on the list before it is
// applied to the active head. So if a reader no longer finds a sample in that head, it does not see
// the older sample that this one replaced.
//
// # Blocks
//
// If no other layer has samples in between, a cursor returns columns without copying
// them. If the reader also accepts statistics, such a chunk is not even decoded: the
// cursor returns the statistics of the chunk, or of its parts. It decodes the chunk if
// most parts would have one sample.
package overlay

import (
	"varve/internal/blockfile"
	"varve/internal/head"
)

// Layers are the places where samples are. They do not change.
type Layers struct {
	Files  []*blockfile.File // oldest first; files of buckets are skipped
	Frozen *head.Head        // nil = none
	Active *head.Head

	// FrozenDeletions is the sequence up to which deletions were applied to
	// Frozen.
	FrozenDeletions uint64
	// Deletions returns the deletions that some file or Frozen has not applied.
	Deletions func() *Deletions
	// Failed is called with each error of reading, for example damage.
	Failed func(error)
}
