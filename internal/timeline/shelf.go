package timeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// A Shelf stores the rows of timelines. The engine alone is responsible for layouts, marks
// before events, merging, limits and the choice of which data is stored separately.
//
// Any goroutine may call any method at any time. A method that returns without an error
// has done all that was asked, durably (by the store's stated policy; on Cassandra at
// LOCAL_QUORUM), and every later call, by this process or another, sees it. Errors are
// *store.UnavailableError where the storage cannot serve now, *store.CorruptionError
// where stored bytes are not what was written, the context's error, or as stated. After
// any other error of a writing method the outcome is unknown, and the call may be
// repeated: all writing methods are idempotent, SetHistory through its version.
//
// Slices that are passed in are not kept or changed. Returned slices belong to the
// caller.
//
// timelinetest.Run checks this contract.
type Shelf interface {
	// Put stores entries in their parts. An entry at the position of an earlier one in the
	// same part replaces it. Entries of one call may be of several timelines and parts, in
	// any order. The engine has marked the buckets, and bounds a call by BatchEvents and
	// BatchBytes.
	//
	// If only some were stored, the error is a *PutError, which lists the others.
	//
	// The Payload of an entry is stored with a reference from the entry's timeline, not later
	// than the entry. If the entry replaces one with another Pointer, the reference of the
	// timeline to that payload is removed, as by DropPayloads; this is required only of entries
	// with MayPoint and without Fresh.
	//
	// Put records the arrival of each entry, see Arrivals.
	Put(ctx context.Context, entries []Placed) error

	// Slice reads entries of one part whose position is in r, in the order of d, and stops
	// at a limit. A part that cannot be read is an error, never an empty slice.
	Slice(ctx context.Context, p Part, r Range, d Direction, l Limit) (Slice, error)

	// Delete removes entries of one part whose position is in one of some ranges, which are
	// ascending. If a range covers the part, the shelf may remove the part as a whole. Entries
	// that were put at or after before may stay; where other processes write they do. On
	// Cassandra before is the timestamp of the tombstone.
	Delete(ctx context.Context, p Part, ranges []Range, before time.Time) error

	// Mark enters buckets, given by their start, in the directory of a timeline, and stores now
	// as the time at which they were last marked.
	Mark(ctx context.Context, timeline string, starts []int64, now time.Time) error

	// Unmark removes buckets from the directory that were last marked before a time. A
	// writer marks its buckets again at intervals, so that a bucket in use stays. On
	// Cassandra before is the timestamp of the tombstone, and now in Mark that of the row.
	Unmark(ctx context.Context, timeline string, starts []int64, before time.Time) error

	// Marks lists the starts of marked buckets from from on and before toExcl, in the order
	// of d, at most limit of them, limit > 0. Fewer than limit means that there are no more.
	Marks(ctx context.Context, timeline string, from, toExcl int64, d Direction, limit int) ([]int64, error)

	// History reads the history of a timeline. The zero History means that there is none.
	History(ctx context.Context, timeline string) (History, error)

	// SetHistory replaces the history of a timeline by h if the stored one has version old;
	// 0 means that there is none. h.Version is old+1, or h is the zero History, which
	// removes it. Otherwise nothing is changed and the error is ErrConflict. The timeline is
	// listed by Names before its history is there. An outcome that is unknown is an
	// error; the engine reads the history again.
	//
	// If ctx has a deadline, the history is not replaced after it, whatever happens to this
	// process in between: the engine relies on that when it adds a layout. (A Whole need not
	// ensure it. On Cassandra it applies to deadlines 2 s ahead or more.)
	SetHistory(ctx context.Context, timeline string, old uint64, h History) error

	// Names lists timelines that have a history, with a prefix and after a name, in the
	// order of bytes, at most limit of them, limit > 0. Fewer than limit means that there
	// are no more. It may list others; the engine reads the history of each. (Timelines
	// that were deleted keep a history for a while, see History.Deleted.)
	Names(ctx context.Context, prefix, after string, limit int) ([]string, error)

	// Count returns about how many timelines have a history. It may be a minute old.
	Count(ctx context.Context) (int, error)

	// Payload reads data that is stored separately. The error is ErrNoPayload if there is none.
	Payload(ctx context.Context, key PayloadKey) ([]byte, error)

	// DropPayloads removes the references of a timeline to payloads, and each payload with its
	// last reference. References that were put at or after before stay.
	DropPayloads(ctx context.Context, keys []PayloadKey, timeline string, before time.Time) error

	// Arrivals lists entries of a timeline in the order of arrival, so that a reader that
	// continues with Next gets each entry once, however late its time is: an entry whose
	// Put was acknowledged after Next was returned always comes after Next. A nil after
	// means now: nothing is listed, and Next is where the next arrival will be. Only
	// durable entries are listed. An entry that was put again may be listed again; one that
	// was deleted is left out. The log of arrivals is bounded: ErrBehind means that entries
	// after "after" were dropped from it. A client may have made up "after": if this shelf
	// cannot have written it, the error is a *store.InputError. It has at most
	// ArrivalBytesMax bytes.
	//
	// Arrivals does not wait. The engine calls it again after a Put of its own process,
	// and at intervals because of other processes.
	Arrivals(ctx context.Context, timeline string, after []byte, l Limit) (Arrivals, error)

	// Close stops the shelf. Calls after it return store.ErrClosed.
	Close() error
}

// A Whole is a shelf that keeps each timeline in one ordered run, whatever its buckets and
// partitions are, and to which no other process writes. Its Slice and Delete also take Everything
// as the part, so the engine reads and deletes without walking through buckets.
type Whole interface {
	IsWhole()
}

// A DeletionLog is a shelf to which several processes put events that they acknowledged
// earlier, see Engine.AppendAccepted. A delete leaves tombstones only in buckets that exist, but
// such an event may go into a bucket that does not exist yet. So a delete is recorded here before
// it lists the buckets, and a process that puts such events marks their buckets before it reads
// the deletes: one of the two sees the other.
type DeletionLog interface {
	// NoteDeletion records a delete and keeps it for at least DeletionsKept.
	NoteDeletion(ctx context.Context, timeline string, d Deleted) error

	// Deletions calls f for the deletes of a timeline whose Before is after a time. It ends
	// with the first error of f.
	Deletions(ctx context.Context, timeline string, after time.Time, f func(Deleted) error) error
}

// DeletionsKept is how long a delete applies to events that were acknowledged before it and are
// put after it.
const DeletionsKept = 30 * 24 * time.Hour

// A Deleted says which events a delete removes.
type Deleted struct {
	Range  Range
	ID     string    // only events of this id; "": all
	Before time.Time // only events that were put before, by the clock of Placed.Put
}

var (
	// ErrConflict means that the history has another version than expected.
	ErrConflict = errors.New("the layout of the timeline was changed meanwhile")

	// ErrNoPayload means that a payload that is stored separately does not exist.
	ErrNoPayload = errors.New("the data of the event is missing")

	// ErrBehind means that a reader is so far behind that arrivals after its cursor were dropped.
	ErrBehind = errors.New("the cursor is older than the log of arrivals: read the events since then by time, then follow the timeline without a cursor")
)

// ArrivalBytesMax bounds a position in the log of arrivals.
const ArrivalBytesMax = 512

// A Part is one partition of one bucket. Timeline, Start and Partition identify it.
type Part struct {
	Timeline  string
	Start     int64 // where the bucket starts, microseconds
	EndExcl   int64 // where it ends, for shelves that do not store buckets separately
	Partition int   // from 0
}

// EveryPartition is the Partition of Everything.
const EveryPartition = -1

// Everything stands for all parts of a timeline, see Whole.
func Everything(timeline string) Part {
	return Part{Timeline: timeline, Start: MinTime, EndExcl: MaxTime + 1, Partition: EveryPartition}
}

// An Entry is an event as a shelf stores it: with its data, or with a pointer to it.
type Entry struct {
	Event
	Pointer PayloadKey // zero: Data is all there is
	Size    int        // of the data that Pointer refers to, in bytes
}

// A Placed is an entry and where it goes.
type Placed struct {
	Part
	Entry
	Fresh bool // the id was made for this call, so no entry has it yet

	// Put is when the entry is put, by the same clock as before of Delete. Zero means now. On
	// Cassandra it is the write timestamp.
	Put time.Time

	MayPoint bool   // this entry, or the one it replaces, may have a Pointer
	Payload  []byte // what Pointer refers to
}

// A PayloadKey names data that is stored separately. It is a digest of the event with its data, so the
// data of an event of several timelines is stored once, and different data has different keys.
type PayloadKey [16]byte

// A Limit bounds what is read at once. At least one entry is read, if there is one.
type Limit struct {
	Entries int   // > 0
	Bytes   int64 // of entries, as Entry.Bytes counts them; > 0
}

// Bytes returns about how much memory an entry takes.
func (e *Entry) Bytes() int64 { return int64(len(e.Data)+len(e.ID)+len(e.Type)) + 96 }

// A Slice is what was read of a part.
type Slice struct {
	Entries []Entry
	More    bool // a limit was reached: there may be more in the range
}

// Arrivals is a piece of the log of arrivals.
type Arrivals struct {
	Entries []Entry
	After   [][]byte // of each entry: where to continue after it
	Next    []byte   // where to continue after all of them; never nil
	More    bool     // a limit was reached: ask again at once
}

// A PutError lists the entries of a Put that may not be stored; all others are stored durably.
type PutError struct {
	Failed map[int]error // by index
}

func (e *PutError) Error() string {
	for _, err := range e.Failed {
		return "put events: " + err.Error()
	}
	return "put events"
}

// Unwrap returns the errors of all entries.
func (e *PutError) Unwrap() []error {
	return slices.Collect(maps.Values(e.Failed))
}
