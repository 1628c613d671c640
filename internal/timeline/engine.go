package timeline

import (
	"context"
	"errors"
	"time"
)

// ErrNotFound means that a timeline, or an event in it, is not there.
var ErrNotFound = errors.New("not found")

// An Addressed is an event and the timelines that it goes into.
type Addressed struct {
	Event              // without an ID it gets one of ours, in the order of arrival
	Timelines []string // 1 to FanoutMax, without repeats
}

// A Result says what became of the events of an Append.
type Result struct {
	Accepted int         // events that are durable in all their timelines
	IDs      []string    // of each event, also of a rejected one that had or got one
	Rejected []Rejection // ascending by Index
}

// A Rejection says why an event is not in a timeline. The kind of Err says whose fault it
// is: *store.InputError and *store.LimitError are the caller's; anything else is the
// server's, the event may or may not be stored, and sending it again with its id is
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
}

// A Page is a piece of an answer.
type Page struct {
	Events []Found

	// Cursor continues behind this page. It is "" only at the end of a page newest first
	// or of one with an Until that has passed; a page oldest first that ends at the present
	// has one, which continues with events that come later.
	Cursor string

	// End means that there is no more: the start of the timelines, or the present, or the
	// bounds of the query. Without it the page may be short, or empty, since finding
	// more takes longer than a page may: go on with Cursor.
	End bool
}

// A Found is an event that was read.
type Found struct {
	Timeline string
	Event
	Missing bool // the data is kept apart and is not there; Data is nil
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
	Version   uint64 // of the history that the caller has seen; 0: whatever it is
	From      int64  // microseconds; 0: as soon as possible
	Size      int64  // of buckets, microseconds, one of Sizes
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
	ID    string // only the event of this id; without From and Until, looked for at all times
}

// A TailQuery says which arrivals to follow.
type TailQuery struct {
	Timeline string
	Type     string // "": every type
	Cursor   string // after which arrival to go on; "": from now
}

// A TailEvent is an event as it arrived.
type TailEvent struct {
	Event
	Missing bool
	Cursor  string // continues after this event
}

// An Engine answers requests on the timelines of a shelf. Its methods may be called by any
// goroutine.
type Engine struct{}

// A Subscription is a reader that follows a timeline.
type Subscription struct{}

// Open starts an engine. Close stops what it runs, and leaves the shelf open.
func Open(shelf Shelf, o Options) (*Engine, error) { panic("follows") }

// Append stores events, each in all of its timelines. What it says is accepted is durable
// and visible. An error means that nothing was tried: too many events, a cancelled
// context. Timelines are created by their first event.
func (e *Engine) Append(ctx context.Context, events []Addressed) (Result, error) { panic("follows") }

// Read returns a page.
func (e *Engine) Read(ctx context.Context, q Query) (Page, error) { panic("follows") }

// Latest returns the newest event. The error is ErrNotFound if there is none.
func (e *Engine) Latest(ctx context.Context, timeline string) (Found, error) { panic("follows") }

// Start returns where a timeline begins. The error is ErrNotFound if it is not there.
func (e *Engine) Start(ctx context.Context, timeline string) (Start, error) { panic("follows") }

// Stats describes a timeline. The error is ErrNotFound if it is not there.
func (e *Engine) Stats(ctx context.Context, timeline string) (Stats, error) { panic("follows") }

// Layout returns the history of a timeline, as it is stored now. The error is ErrNotFound if
// it is not there.
func (e *Engine) Layout(ctx context.Context, timeline string) (History, error) { panic("follows") }

// Propose adds an entry to the history of a timeline and returns the new history. A timeline
// that is not there is created with it, from Beginning. A *store.InputError says what
// is wrong with the proposal; ErrConflict that the history has another version.
func (e *Engine) Propose(ctx context.Context, timeline string, p Proposal) (History, error) {
	panic("follows")
}

// SetRetention says how old the events of a timeline become, 0 for ever. Older ones are
// invisible at once and removed later. The error is ErrNotFound if it is not there.
func (e *Engine) SetRetention(ctx context.Context, timeline string, d time.Duration) (History, error) {
	panic("follows")
}

// Names lists timelines by name. cursor is "" or what the page before returned; the last
// page returns "".
func (e *Engine) Names(ctx context.Context, prefix, cursor string, limit int) (names []Named, next string, err error) {
	panic("follows")
}

// Delete removes events of a timeline. They are invisible when it returns. A timeline that
// is not there, or has no such events, is no error.
func (e *Engine) Delete(ctx context.Context, timeline string, d Deletion) error { panic("follows") }

// DeleteTimeline removes a timeline. One that is not there is no error.
func (e *Engine) DeleteTimeline(ctx context.Context, timeline string) error { panic("follows") }

// Tail follows a timeline: it returns arrivals that are acknowledged after the cursor. The
// caller closes the subscription. A timeline need not be there yet.
func (e *Engine) Tail(ctx context.Context, q TailQuery) (*Subscription, error) { panic("follows") }

// Next waits for arrivals and returns some, at least one. It keeps none in advance: a slow
// caller costs no memory, and continues where it was as long as the log of arrivals
// reaches back to there; then the error is ErrBehind. Not safe for concurrent use.
func (s *Subscription) Next(ctx context.Context) ([]TailEvent, error) { panic("follows") }

// Cursor continues after everything that Next returned, or looked at and left out. Sent to an
// idle client it saves looking at the same again.
func (s *Subscription) Cursor() string { panic("follows") }

// Close ends the subscription.
func (s *Subscription) Close() { panic("follows") }

// Upkeep does a round of what is done at intervals: it removes events past their retention,
// drops marks of empty buckets and remains of deleted timelines, and adapts layouts.
func (e *Engine) Upkeep(ctx context.Context) error { panic("follows") }

// Close stops what the engine runs and waits for it.
func (e *Engine) Close() error { panic("follows") }
