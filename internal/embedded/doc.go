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
//	quarantine/  damaged files that Repair has put aside
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
// segment that is still needed. That commit is the only moment at which samples
// move from log to files: before it the log has all of them, after it the files
// do. Files that the manifest does not name are removed at the next start.
//
// Other packages keep notes about samples, as roll-ups do about late ones. They store the
// notes when a checkpoint is about to begin. At the next start, the store reports the hours
// of the samples that were in the log: see [downsample.Journal].
//
// # Partitions
//
// A block file holds samples of one partition, a span of RowWidth milliseconds
// (see rowtime.Partition). Partitions with few samples share a file, so that a
// thousand stray timestamps do not make a thousand files. No chunk crosses a
// partition's border.
//
// Files of a partition are merged with each other when some of similar size have
// gathered. Files with few samples, of one partition or of several, are merged
// with each other in the same way; a partition that gathers enough samples
// in this way gets a file of its own. If all samples of a file are deleted or have expired,
// the file is dropped without being read.
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
// the frozen head and in files: each file knows up to which sequence deletions are
// applied to it, and later ones are consulted for each chunk. Merging applies
// them, and saves those in the catalogue that other files still need. Samples in
// the active head are erased, in slices, so that writers do not wait; a batch has
// its series erased before it is applied, and a head is frozen when it has applied
// all deletions. A series whose last sample is gone is forgotten, with its names;
// its ref is void.
//
// # Expiry
//
// No reader sees an expired sample. A series of which all samples have expired, in
// the heads and in each file that has it, is forgotten. Expired samples of forgotten
// series stay in files until a merge; no query can reach them. Those in the active
// head are erased with the series.
//
// # Stages
//
// If a series has a retention policy with stages (Options.Book), samples that are old
// enough are folded into buckets of the next stage, and these into wider ones, see package
// buckets. A fold is a merge that also writes files of buckets. It takes all files that
// have samples of the same series and times, since only together they say which sample is
// valid. It leaves out series that have equally old samples in memory. Samples that are
// not folded yet are read as they are, finer than the policy promises. No reader sees
// samples that are older than the last stage.
//
// # Locks, in the order in which they are taken
//
//	backingUp    one backup at a time
//	expiry       one look for expired series at a time
//	checkpointing
//	             one checkpoint at a time; no part of the log is released
//	             while it is held
//	journal      of which hours samples were in the log; held across commits
//	cutting      deletions are logged, or a fold is committed
//	installing   one change of the set of files at a time; held across commits
//	order        that of the log (package writelog): log order = head order; no I/O,
//	             and no work that grows with what is stored
//	registry     its own lock: series by key and id; no I/O
//	values       that of [catalogue.Values]: held across commits, taken alone
//	mu           the current state and reference counts; no I/O
package embedded
