package timeline

import (
	"net/netip"
	"time"

	"varve/internal/store"
)

// ErrNotFound means that a timeline, or an event in it, does not exist.
var ErrNotFound error = &store.InputError{Reason: "not found"}

// An Addressed is an event and the timelines that it goes into.
type Addressed struct {
	Event              // without an ID the engine makes one; these sort by arrival
	Timelines []string // 1 to FanoutMax, without repeats
}

// A Result says what became of the events of an Append.
type Result struct {
	Accepted int         // events that are durable in all their timelines
	IDs      []string    // of each event, rejected or not
	Rejected []Rejection // ascending by Index
}

// A Rejection says why an event is not in a timeline. The kind of Err says whose fault it
// is: *store.InputError and *store.LimitError are the caller's. Anything else is the
// server's: the event may or may not be stored, and sending it again with its id is
// harmless.
type Rejection struct {
	Index    int
	Timeline string // "": none of the event's timelines has it
	Err      error
}

// A Query says which events to read.
type Query struct {
	Timelines []string  // 1 to FanoutMax; several are merged
	Order     Direction // newest first by default
	From      *int64    // microseconds, inclusive; nil: from the start
	Until     *int64    // microseconds, inclusive; nil: to the newest
	Type      string    // "": every type
	Limit     int       // 1 to PageEventsMax; 0: PageEvents
	Cursor    string    // from the page before; the rest of the query must be the same

	// Step is called between two steps of reading, by the goroutine that reads, with the bytes
	// that the page holds or is about to read. It may block so that other requests get a turn.
	// Its error ends the reading. It may be nil.
	Step func(bytes int64) error
}

// A Page is a piece of an answer.
type Page struct {
	Events []Found

	// Cursor continues after this page. It is "" only on a page with End that is newest first or
	// has an Until that has passed. A page oldest first that ends at the present has a cursor,
	// which continues with later events.
	Cursor string

	// End means that there is no more: the start of the timelines, the present, or a bound of
	// the query was reached. A page without End may be short or empty because finding more
	// would take too long: continue with Cursor.
	End bool
}

// A Found is an event that was read.
type Found struct {
	Timeline string
	Event
	Missing bool // the data is stored separately and was not found; Data is nil

	pointer PayloadKey // of Data, until fetch has read it
}

// A Start says where a timeline begins.
type Start struct {
	Bucket int64    // the oldest bucket; no event is older
	First  Position // of the oldest event; ID is "" if all were deleted
}

// Stats describes a timeline.
type Stats struct {
	Start    Start
	Newest   Position // ID is "" if there is no event
	Rate     float64  // events per second, over the newest (up to 100) events
	Bytes    float64  // of data per event, over the same
	Bucket   Part     // the bucket of now: Start and EndExcl
	Layout   Layout   // that is valid now
	Version  uint64   // of the history
	Appended uint64   // events since this process started
	Retained time.Duration
}

// A Proposal asks for another layout. Zero members stay as they are in the layout that is
// valid at From.
type Proposal struct {
	Version   uint64 // of the history that the caller has seen; 0: any
	From      int64  // microseconds; 0: as soon as possible
	Size      int64  // of buckets, microseconds: whole seconds, at most a century
	Factor    int
	Mode      Mode
	Threshold int
	Placement Placement
}

// A Named is a timeline in a list.
type Named struct {
	Name string
	Stats
}

// A Deletion says which events of a timeline to delete. At least one member is set.
type Deletion struct {
	From  *int64 // microseconds, inclusive
	Until *int64 // microseconds, inclusive
	ID    string // only events with this id; without From and Until, the whole timeline is searched
}

// A TailQuery says which arrivals to follow.
type TailQuery struct {
	Timeline string
	Type     string // "": every type
	Cursor   string // of the last arrival that the caller has; "": from now
	Sender   netip.Prefix
}

// A TailEvent is an event as it arrived.
type TailEvent struct {
	Event
	Missing bool
	Cursor  string // continues after this event
}
