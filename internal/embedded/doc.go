// Package embedded is the store that needs no other process: a write-ahead log,
// a head in memory, immutable block files merged in the background, and a
// catalogue in Pebble.
//
// # Directory
//
//	LOCK         held while the store is open
//	catalogue/   Pebble: series, manifest, deletions, spec, key-values
//	log/         write-ahead log segments (package wal)
//	blocks/      block files (package blockfile), <number>.blk
//	quarantine/  damaged files that Repair has set aside
//	backups/     copies that Backup has made, unless backup_dir names another place
//
// # Life of a sample
//
//	Append --> log record --+--> durable --> Append returns
//	                        |
//	                        +--> active head --(checkpoint)--> frozen head --> block files
//	                                                                             |   ^
//	                                                                             +---+ merge
//
// Append writes a log record and applies it to the active head under one lock
// (order), so that memory, log and a later replay agree on which of two writes
// came last; then it waits for the log. A checkpoint swaps head and log segment
// under the same lock, writes the frozen head to files, and commits them to the
// catalogue together with the series they need and the number of the first log
// segment that is still needed. That commit moves the samples from the log to the
// files: before it a start reads all of them from the log, after it from the files.
// Files that the manifest does not name are removed at the next start.
//
// Other packages keep notes about samples, as roll-ups do about late ones. They store the
// notes when a checkpoint is about to begin. A start reports the hours of the samples in
// the log, because notes about these may be lost: see [downsample.Journal].
//
// # Partitions
//
// A block file holds samples of one partition, a span of RowWidth milliseconds
// (see rowtime.Partition). Partitions with few samples share a file, so that
// scattered timestamps do not create a file each. No chunk crosses a partition's
// border.
//
// Several files of a partition are merged when they have similar sizes. Files with few
// samples, of one partition or of several, are merged with each other in the same way;
// once a partition has enough samples there, it gets a file of its own. If all samples of
// a file are deleted or have expired, the file is dropped without being read.
//
// # Which sample is valid
//
// Of samples with the same series and time, the one written last is valid: the active
// head wins over the frozen head, that over files, and files win by Sequence. A merged
// file has the greatest Sequence of its inputs. So a merge must also include each file
// that is newer than one input but not newer than all, if it may have samples of the
// same series in the same partition.
//
// # Deletions
//
// A deletion is a log record (sequence, range, series ids). It hides samples in
// the frozen head and in files. Each file has the sequence up to which deletions are
// applied to it; readers apply later ones to each chunk. A merge applies them, and
// keeps those in the catalogue that other files still need. Samples in the active
// head are erased in slices, so that writers do not wait. Before a batch is applied,
// deletions are completed for its series, and before a head is frozen, for all. A
// series without samples is forgotten, with its names; its ref becomes void.
//
// # Expiry
//
// No reader sees an expired sample. A series is forgotten when all its samples have
// expired, in the heads and in each file. Its samples in the active head are then
// erased. Those in files stay there until a merge, where no query reaches them. After
// a start, nothing is removed or forgotten for a while, in case the clock is ahead: see
// expiredMS.
//
// # Stages
//
// If a series has a retention policy with stages (Options.Book), samples that are old
// enough are folded into buckets of the next stage, and these into wider ones, see package
// buckets. A fold is a merge that also writes files of buckets. It reads all files that
// have samples of the same series and times, because only together they determine which
// sample is valid. It skips series that have equally old samples in memory. Files with
// late samples wait, because these may be sent again: see heldBack. Readers see
// samples that are not folded yet unchanged, at a higher resolution than the policy
// promises. No reader sees samples that are older than the last stage.
//
// # Locks, in the order in which they are taken
//
//	backingUp    one backup at a time
//	expiry       one search for expired series at a time
//	checkpointing
//	             one checkpoint at a time; no part of the log is released
//	             while it is held
//	journal      the hours of the samples that a start found in the log; held across
//	             commits
//	cutting      held to log a deletion or to commit a fold
//	installing   one change of the set of files at a time; held across commits
//	order        of package writelog: log order = head order; no I/O, and no work
//	             that grows with the size of the store
//	registry     its own lock: series by key and id; no I/O
//	values       of [catalogue.Values]: held across commits; no other lock is held
//	mu           the current state and reference counts; no I/O
package embedded
