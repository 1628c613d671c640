package timeline

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"varve/internal/clip"
	"varve/internal/store"
)

// Bounds of the names of timelines and of the ids and types of events. They are part of the
// formats.
const (
	NameBytesMax = 256
	IDBytesMax   = 128
	TypeBytesMax = 128
)

// Times of events are microseconds since 1970, of the years 1 to 9999.
const (
	MinTime = -62_135_596_800_000_000
	MaxTime = 253_402_300_799_999_999
)

// An Event is something that happened. It is immutable once it is appended.
type Event struct {
	Time int64  // microseconds since 1970, MinTime to MaxTime
	ID   string // UTF-8, 1 to IDBytesMax bytes; unique together with Time
	Type string // UTF-8, up to TypeBytesMax bytes; may be empty
	Data []byte // any bytes; see BytesMark
}

// BytesMark is the first byte of data that is not JSON; no JSON begins with it. Front ends put it
// before the bytes of a client, so limits do not count it.
const BytesMark = 0

// dataBytes returns how many bytes of data the client has sent.
func (e *Event) dataBytes() int64 {
	if len(e.Data) > 0 && e.Data[0] == BytesMark {
		return int64(len(e.Data)) - 1
	}
	return int64(len(e.Data))
}

// Position returns the position of the event.
func (e *Event) Position() Position { return Position{e.Time, e.ID} }

// A Position orders events: by time, then by the bytes of the id.
type Position struct {
	Time int64
	ID   string
}

// Compare is negative if p comes before q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Time, q.Time), strings.Compare(p.ID, q.ID))
}

// Next returns the first position after p.
func (p Position) Next() Position { return Position{p.Time, p.ID + "\x00"} }

// At returns the position before all events of a time.
func At(time int64) Position { return Position{Time: time} }

// A Range is the positions from From on and before To. From is inclusive, To is not.
type Range struct {
	From, To Position
}

// All is the range of every event.
func All() Range { return Range{At(MinTime), At(MaxTime + 1)} }

// Empty reports whether no position is in the range.
func (r Range) Empty() bool { return r.From.Compare(r.To) >= 0 }

// Contains reports whether p is in the range.
func (r Range) Contains(p Position) bool { return r.From.Compare(p) <= 0 && p.Compare(r.To) < 0 }

// Intersect returns the range of the positions that are in both ranges.
func (r Range) Intersect(q Range) Range {
	if q.From.Compare(r.From) > 0 {
		r.From = q.From
	}
	if q.To.Compare(r.To) < 0 {
		r.To = q.To
	}
	return r
}

// A Direction is the order in which events are read.
type Direction int

// The zero Direction is newest first.
const (
	Descending Direction = iota
	Ascending
)

func (d Direction) String() string {
	if d == Ascending {
		return "asc"
	}
	return "desc"
}

// compare is Position.Compare in the order of reading.
func (d Direction) compare(p, q Position) int {
	if d == Ascending {
		return p.Compare(q)
	}
	return q.Compare(p)
}

// CheckName returns an error if no timeline can have this name. The errors of all checks are
// *store.InputErrors, except where one says otherwise.
func CheckName(name string) error {
	if name == "/" {
		return badf("a timeline cannot be called /, because no path can contain that name; longer names may contain it")
	}
	return checkText("the name of a timeline", name, 1, NameBytesMax)
}

// checkNewName is CheckName for a timeline that is written to. It also rejects . and .., because
// clients that follow the rules of URLs resolve them in a path, even percent-encoded, and would
// request something else.
func checkNewName(name string) error {
	if name == "." || name == ".." {
		return badf("a timeline cannot be called %s, because that means a directory in paths; longer names may contain it", name)
	}
	return CheckName(name)
}

func checkText(what, s string, bytesMin, bytesMax int) error {
	switch {
	case len(s) < bytesMin:
		return badf("%s is empty", what)
	case len(s) > bytesMax:
		return badf("%s has %d bytes, but may have at most %d: %s", what, len(s), bytesMax, clip.Text(s, 40))
	case !utf8.ValidString(s):
		return badf("%s is not UTF-8: %s", what, clip.Text(s, 40))
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return badf("%s has a control character: %s", what, clip.Text(s, 40))
	}
	return nil
}

// check returns an error if the event cannot be stored in any timeline.
func (e *Event) check(payloadMax int64) error {
	if err := checkText("the id of the event", e.ID, 1, IDBytesMax); err != nil {
		return err
	}
	if err := checkText("the type of the event", e.Type, 0, TypeBytesMax); err != nil {
		return err
	}
	if e.Time < MinTime || e.Time > MaxTime {
		return badf("the time of the event is %d microseconds since 1970, outside the years 1 to 9999", e.Time)
	}
	if n := e.dataBytes(); n > payloadMax {
		return &store.LimitError{Limit: "timeline.payload_bytes_max", Max: payloadMax, Need: n, What: "the data of an event"}
	}
	return nil
}

func badf(format string, args ...any) error {
	return &store.InputError{Reason: fmt.Sprintf(format, args...)}
}
